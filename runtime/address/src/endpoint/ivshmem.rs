//! `ntb:ivshmem=SOCKET|FILE|pci|0000:00:04.0[,side=0|1][,mtu=N][,name=NAME]`

use std::path::PathBuf;

use super::options::Options;
use super::{device_name, parse_mtu, socket_path, stem_of};

/// Where an ivshmem device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IvshmemAt {
    /// On the host: the socket of its server, or the file of its memory.
    Socket(PathBuf),
    /// In a guest: the only PCI function of the kind.
    OnlyPci,
    /// In a guest: the PCI function with this address.
    Pci(String),
}

/// One end of a bridge in the memory of an ivshmem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ivshmem {
    /// Where the device is.
    pub at: IvshmemAt,
    /// Which half of the memory is ours.
    pub side: Option<u8>,
    /// MTU to insist on.
    pub mtu: Option<u32>,
    /// Name of the netdev; otherwise that of the socket's file, or `ivshmem`.
    pub name: Option<String>,
}

impl Ivshmem {
    /// True for a PCI function of this kernel, false for a device on the host.
    pub fn is_pci(&self) -> bool {
        !matches!(self.at, IvshmemAt::Socket(_))
    }

    pub(super) fn netdev_name(&self) -> String {
        let of_device = || match &self.at {
            IvshmemAt::Socket(path) => stem_of(path),
            IvshmemAt::OnlyPci | IvshmemAt::Pci(_) => None,
        };
        self.name.clone().or_else(of_device).unwrap_or_else(|| "ivshmem".to_owned())
    }
}

/// The address of a PCI function, with its domain or without.
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

/// True for a PCI function, false for a path.
pub(super) fn is_device(device: &str) -> bool {
    device == "pci" || pci_address(device).is_some()
}

pub(super) fn parse(device: &str, mut options: Options<'_>) -> Result<Ivshmem, String> {
    let (mut side, mut mtu, mut name) = (None, None, None);
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("side", Some("0")) => side = Some(0),
            ("side", Some("1")) => side = Some(1),
            ("side", Some(v)) => return Err(format!("side={v}: must be 0 or 1")),
            ("mtu", Some(v)) => mtu = Some(parse_mtu(v)?),
            ("name", Some(v)) => name = Some(device_name(v)?.to_owned()),
            _ => return Err(options.unknown("side= mtu= name= qdisc= full= rx-locality=")),
        }
    }
    let at = match (device, pci_address(device)) {
        ("pci", _) => IvshmemAt::OnlyPci,
        (_, Some(address)) => IvshmemAt::Pci(address),
        _ => IvshmemAt::Socket(socket_path(device)?),
    };
    Ok(Ivshmem { at, side, mtu, name })
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

    // Goal: sockets, PCI addresses in full and in short, and "the only one" are told apart.
    #[test]
    fn places_are_told_apart() {
        let at = |text: &str| ivshmem(&format!("ntb:ivshmem={text}")).at;
        assert_eq!(at("/run/iv.sock"), IvshmemAt::Socket("/run/iv.sock".into()));
        assert_eq!(at("pci"), IvshmemAt::OnlyPci);
        for text in ["0000:00:04.0", "00:04.0"] {
            assert_eq!(at(text), IvshmemAt::Pci("0000:00:04.0".to_owned()));
        }
        assert_eq!(at("00:20.0"), IvshmemAt::Socket("00:20.0".into()));
    }

    // Goal: options mean what they say, and the netdev has a name.
    #[test]
    fn options_are_read() {
        let full = ivshmem("ntb:ivshmem=pci,side=1,mtu=9000,name=iv0");
        assert_eq!((full.side, full.mtu, full.netdev_name()), (Some(1), Some(9000), "iv0".into()));
        assert_eq!(ivshmem("ntb:ivshmem=/run/x.sock").netdev_name(), "x");
        assert_eq!(ivshmem("ntb:ivshmem=pci").netdev_name(), "ivshmem");
    }

    // Goal: what cannot be is refused with the field and what would be right.
    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("ntb:ivshmem=", "0 bytes"),
            ("ntb:ivshmem=pci,side=2", "side=2: must be 0 or 1"),
            ("ntb:ivshmem=pci,window=4M", "unknown option 'window=4M'; allowed: side= mtu="),
            ("ntb:ivshmem=pci,mtu=1", "mtu=1"),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
