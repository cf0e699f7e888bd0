//! `vduse:NAME[,mac=M][,mtu=N][,packed=on|off][,persist]`

use super::options::{Options, on_off, parse_mac};
use super::{device_name, parse_mtu};

/// A network card of this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vduse {
    /// Name of the device, and of the netdev.
    pub name: String,
    /// Ethernet address; otherwise the kernel invents one.
    pub mac: Option<[u8; 6]>,
    /// MTU to offer and to insist on.
    pub mtu: Option<u32>,
    /// Offer packed rings.
    pub packed: bool,
    /// Keep device and netdev afterwards.
    pub persist: bool,
}

pub(super) fn parse(name: &str, mut options: Options<'_>) -> Result<Vduse, String> {
    let name = device_name(name)?.to_owned();
    if name == "control" {
        return Err(format!("'{name}' cannot be a name below /dev/vduse"));
    }
    let mut card = Vduse { name, mac: None, mtu: None, packed: true, persist: false };
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("mac", Some(v)) => card.mac = Some(parse_mac(v)?),
            ("mtu", Some(v)) => card.mtu = Some(parse_mtu(v)?),
            ("packed", Some(v)) => card.packed = on_off(key, v)?,
            ("persist", None) => card.persist = true,
            _ => return Err(options.unknown("mac= mtu= packed= persist qdisc= full= rx-locality=")),
        }
    }
    Ok(card)
}

#[cfg(test)]
mod tests {
    use crate::endpoint::{Endpoint, parse};

    // Goal: every option is read, and the netdev is called like the device.
    #[test]
    fn options_are_read() {
        let address = "vduse:v0,mac=02:00:00:00:00:01,mtu=9000,packed=off,persist";
        let Ok(Endpoint::Vduse(card)) = parse(address) else { panic!("{address}") };
        assert_eq!((&*card.name, card.mac), ("v0", Some([2, 0, 0, 0, 0, 1])));
        assert_eq!((card.mtu, card.packed, card.persist), (Some(9000), false, true));
        assert_eq!(Endpoint::Vduse(card).netdev_name(), "v0");
        let Ok(Endpoint::Vduse(card)) = parse("vduse:v0") else { panic!() };
        assert_eq!((card.mac, card.mtu, card.packed, card.persist), (None, None, true, false));
    }

    // Goal: what cannot be a device or an option is refused with the field.
    #[test]
    fn nonsense_is_refused() {
        for (address, part) in [
            ("vduse:", "not a valid interface name"),
            ("vduse:a/b", "not a valid interface name"),
            ("vduse:control", "below /dev/vduse"),
            ("vduse:v0,queues=2", "persist"),
            ("vduse:v0,mtu=1", "mtu=1"),
            ("vduse:v0,persist=1", "persist"),
        ] {
            let text = parse(address).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
