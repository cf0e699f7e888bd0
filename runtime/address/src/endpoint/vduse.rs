//! `vduse:NAME`: virtio NIC of this kernel, implemented in user space.

use super::EndpointConfig;
use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MAC, MTU, ON_OFF, device_name};

/// Virtio NIC of this kernel, implemented in user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vduse {
    /// Name of the VDUSE device and of the netdev.
    pub name: String,
    /// Ethernet address; `None`: the kernel chooses one.
    pub mac: Option<[u8; 6]>,
    /// MTU to offer, which the link must have.
    pub mtu: Option<u32>,
    /// True to offer packed rings; false for split rings only.
    pub packed: bool,
    /// True to keep device and netdev when the link is closed.
    pub persist: bool,
}

const OPTIONS: &[OptionDecl] = &[
    MAC.means("Ethernet address; otherwise the kernel chooses one"),
    MTU.means("MTU to offer and to insist on"),
    option("packed", ON_OFF, "offer packed rings; off: split rings only").or("on"),
    option("persist", ValueType::Flag, "keep device and netdev afterwards"),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "vduse:",
    target: "NAME",
    summary: "network device of this kernel, driven by its own virtio-net",
    notes: "The netdev has the name of the device. The modules vduse, virtio_vdpa and virtio_net \
            are needed.",
    document: "vduse.md",
    example: "vduse:v0,mac=02:00:00:00:00:01",
    driver: "mqnet-vduse",
    rings: "its rings belong to the driver: set them in the VMM or the guest",
    is_interface: true,
    is_path: |_| false,
    options: &[OPTIONS],
    parse: |name, options| {
        let name = device_name(name)?;
        if name == "control" {
            return Err(format!("'{name}' cannot be a name below /dev/vduse"));
        }
        Ok(super::Endpoint::Vduse(Vduse {
            name,
            mac: options.optional("mac"),
            mtu: options.optional("mtu"),
            packed: options.value("packed"),
            persist: options.value("persist"),
        }))
    },
};

impl EndpointConfig for Vduse {
    fn netdev_name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::endpoint::{Endpoint, parse};

    // Goal: every option is read, and the netdev has the name of the device.
    #[test]
    fn options_are_read() {
        let address = "vduse:v0,mac=02:00:00:00:00:01,mtu=9000,packed=off,persist";
        let Ok(Endpoint::Vduse(card)) = parse(address) else { panic!("{address}") };
        assert_eq!((&*card.name, card.mac), ("v0", Some([2, 0, 0, 0, 0, 1])));
        assert_eq!((card.mtu, card.packed, card.persist), (Some(9000), false, true));
        assert_eq!(Endpoint::Vduse(card).config().netdev_name(), "v0");
        let Ok(Endpoint::Vduse(card)) = parse("vduse:v0") else { panic!() };
        assert_eq!((card.mac, card.mtu, card.packed, card.persist), (None, None, true, false));
    }

    // Goal: the error of an invalid name or option contains the rule or the allowed options.
    #[test]
    fn nonsense_is_refused() {
        for (address, part) in [
            ("vduse:", "not a valid interface name"),
            ("vduse:a/b", "not a valid interface name"),
            ("vduse:control", "below /dev/vduse"),
            ("vduse:v0,queues=2", "persist"),
        ] {
            let text = parse(address).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
