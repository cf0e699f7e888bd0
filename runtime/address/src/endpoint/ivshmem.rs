//! `ntb:ivshmem=...`: end of a bridge in the memory of an ivshmem device.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::EndpointConfig;
use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MTU, NAME, name_of, socket_path};

/// Location of an ivshmem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IvshmemAt {
    /// Socket of the ivshmem server, or file of the memory, on the host.
    Socket(PathBuf),
    /// Only ivshmem PCI function of a guest.
    OnlyPci,
    /// PCI function of a guest with this address.
    Pci(String),
}

/// End of a bridge in the memory of an ivshmem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ivshmem {
    /// Location of the device.
    pub at: IvshmemAt,
    /// Half of the memory that this end uses, 0 or 1; `None`: the free half.
    pub side: Option<u8>,
    /// MTU that the link must have; `None`: any.
    pub mtu: Option<u32>,
    /// Name of the netdev; `None`: name of the socket's file, or `ivshmem`.
    pub name: Option<String>,
}

impl Ivshmem {
    /// True for a PCI function of a guest; false for a socket or a file on the host.
    pub fn is_pci(&self) -> bool {
        !matches!(self.at, IvshmemAt::Socket(_))
    }
}

const OPTIONS: &[OptionDecl] = &[
    option(
        "side",
        ValueType::Choice(&["0", "1"]),
        "half of the memory for this end; otherwise the free one. Set it at both ends, or at none",
    ),
    MTU.means("MTU to insist on"),
    NAME.means("name of the netdev; otherwise that of the socket's file, or ivshmem"),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "ntb:ivshmem=",
    target: "SOCKET|FILE|pci|0000:00:04.0",
    summary: "bridge in the memory of QEMU's ivshmem device",
    notes: "Its ends are two guests, or a guest and its host. On the host the target is the \
            server's socket or the file of the memory; in a guest the PCI function, or pci for \
            the only one.",
    document: "ivshmem.md",
    example: "ntb:ivshmem=/run/iv.sock,side=0",
    driver: "mqnet-ntb",
    rings: "has no rings",
    is_interface: false,
    is_path: |device| device != "pci" && pci_address(device).is_none(),
    options: &[OPTIONS],
    parse: |device, options| {
        let at = match (device, pci_address(device)) {
            ("pci", _) => IvshmemAt::OnlyPci,
            (_, Some(address)) => IvshmemAt::Pci(address),
            _ => IvshmemAt::Socket(socket_path(device)?),
        };
        Ok(super::Endpoint::Ivshmem(Ivshmem {
            at,
            side: options.pick("side", [0, 1]),
            mtu: options.optional("mtu"),
            name: options.optional("name"),
        }))
    },
};

/// Folder of the PCI functions in sysfs.
const PCI: &str = "/sys/bus/pci/devices";

impl EndpointConfig for Ivshmem {
    fn netdev_name(&self) -> String {
        let path = match &self.at {
            IvshmemAt::Socket(path) => path.as_path(),
            IvshmemAt::OnlyPci | IvshmemAt::Pci(_) => Path::new(""),
        };
        name_of(self.name.as_ref(), path, "ivshmem")
    }

    /// Path of the socket or file; for a PCI function, its folder in sysfs.
    fn path(&self) -> Option<Cow<'_, Path>> {
        Some(match &self.at {
            IvshmemAt::Socket(path) => path.into(),
            IvshmemAt::OnlyPci => Path::new(PCI).into(),
            IvshmemAt::Pci(address) => Path::new(PCI).join(address).into(),
        })
    }
}

/// Parses the address of a PCI function, with or without its domain. Returns the full address;
/// `None` if the text is no PCI address.
fn pci_address(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.split_once(':').unwrap_or(("0000", rest));
    let hex = |text: &str, digits: usize| {
        let all = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        all.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (domain, bus) = (hex(domain, 4)?, hex(bus, 2)?);
    let device = hex(device, 2).filter(|&n| n < 32)?;
    let function = hex(function, 1).filter(|&n| n < 8)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Endpoint, parse};
    use super::*;

    fn ivshmem(text: &str) -> Ivshmem {
        match parse(text).unwrap() {
            Endpoint::Ivshmem(device) => device,
            other => panic!("{text}: {other:?}"),
        }
    }

    // Goal: the parser distinguishes sockets, PCI addresses with and without domain, and `pci`.
    #[test]
    fn locations_are_distinguished() {
        let at = |text: &str| ivshmem(&format!("ntb:ivshmem={text}")).at;
        assert_eq!(at("/run/iv.sock"), IvshmemAt::Socket("/run/iv.sock".into()));
        assert_eq!(at("pci"), IvshmemAt::OnlyPci);
        for text in ["0000:00:04.0", "00:04.0"] {
            assert_eq!(at(text), IvshmemAt::Pci("0000:00:04.0".to_owned()));
        }
        assert_eq!(at("00:20.0"), IvshmemAt::Socket("00:20.0".into()));
    }

    // Goal: every option is read, and the netdev has a name without `name=`.
    #[test]
    fn options_are_read() {
        let full = ivshmem("ntb:ivshmem=pci,side=1,mtu=9000,name=iv0");
        assert_eq!((full.side, full.mtu, full.netdev_name()), (Some(1), Some(9000), "iv0".into()));
        assert_eq!(ivshmem("ntb:ivshmem=/run/x.sock").netdev_name(), "x");
        assert_eq!(ivshmem("ntb:ivshmem=pci").netdev_name(), "ivshmem");
    }

    // Goal: the error of an invalid address contains the wrong part and the allowed values.
    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("ntb:ivshmem=", "0 bytes"),
            ("ntb:ivshmem=pci,side=2", "side=2: must be 0 or 1"),
            ("ntb:ivshmem=pci,window=4M", "unknown option 'window=4M'; allowed: side= mtu="),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
