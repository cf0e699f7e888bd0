//! How to open a TAP.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

/// An address with its prefix length, `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix, 0..=32 or 0..=128.
    pub prefix: u8,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not an address with a prefix (like 10.0.0.1/24)");
        let (ip, prefix) = text.split_once('/').ok_or_else(bad)?;
        let ip: IpAddr = ip.parse().map_err(|_| bad())?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|&p| p <= max).ok_or_else(bad)?;
        Ok(Self { ip, prefix })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// How to open a TAP.
#[derive(Debug, Default)]
pub struct TapConfig {
    /// Name of the device, at most 15 bytes; may hold a `%d`.
    pub name: String,
    /// Network namespace to work in (a file such as `/run/netns/NAME`).
    pub netns: Option<PathBuf>,
    /// Ethernet address to set.
    pub mac: Option<[u8; 6]>,
    /// MTU to set, and to want from the other side.
    pub mtu: Option<u32>,
    /// Addresses to add. With any, the device is also set up.
    pub addresses: Vec<Address>,
    /// Keep the device after this process.
    pub persist: bool,
    /// Descriptors of queues that are attached already; the device is then taken as it is.
    pub fds: Vec<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: addresses of both families parse and print; nonsense is refused with an example.
    #[test]
    fn addresses_round_trip() {
        for text in ["10.0.0.1/24", "fd00::1/64", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in ["", "10.0.0.1", "10.0.0.1/33", "fd00::1/129", "x/8", "10.0.0.1/-1"] {
            assert!(bad.parse::<Address>().unwrap_err().contains("like 10.0.0.1/24"), "{bad}");
        }
    }
}
