//! IP address of a device, as the operating system reports it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with its prefix length, `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// IP address.
    pub ip: IpAddr,
    /// Prefix length, 0 to 32 for IPv4 and 0 to 128 for IPv6.
    pub prefix: u8,
}

impl FromStr for InterfaceAddress {
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

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: addresses of both families are parsed and printed; invalid text is rejected with an
    // example.
    #[test]
    fn addresses_round_trip() {
        for text in ["10.0.0.1/24", "fd00::1/64", "0.0.0.0/0"] {
            assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
        }
        for bad in ["", "10.0.0.1", "10.0.0.1/33", "fd00::1/129", "x/8", "10.0.0.1/-1"] {
            assert!(
                bad.parse::<InterfaceAddress>().unwrap_err().contains("like 10.0.0.1/24"),
                "{bad}"
            );
        }
    }
}
