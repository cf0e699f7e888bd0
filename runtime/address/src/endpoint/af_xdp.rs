//! `xdp:IFNAME[,netns=N][,mode=auto|native|generic][,zerocopy=auto|on|off][,queues=N][,ring=N]`
//! `[,mtu=N][,promisc=on|off][,name=NAME]`

use std::path::{Path, PathBuf};

use mqnet_netdev::limits::CHANNELS_MAX;

use super::options::{Options, on_off};
use super::{Endpoint, device_name, parse_mtu};

/// Where in the kernel frames are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it can, else in the stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the stack.
    Generic,
}

/// An interface of the kernel, taken over by AF_XDP sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfXdp {
    /// Its name.
    pub interface: String,
    /// File of its network namespace.
    pub netns: Option<PathBuf>,
    /// Where frames are taken.
    pub mode: XdpMode,
    /// The device itself moves frames: it must, or must not; otherwise if it can.
    pub zero_copy: Option<bool>,
    /// Queues to set.
    pub queues: Option<u16>,
    /// Frames in each ring.
    pub ring: Option<u16>,
    /// MTU to insist on.
    pub mtu: Option<u32>,
    /// Leave the address filter alone.
    pub keep_filter: bool,
    /// Name of the netdev; otherwise that of the interface.
    pub name: Option<String>,
}

/// Fewest and most frames in a ring.
const RING: std::ops::RangeInclusive<u16> = 64..=8192;

fn ring(value: &str) -> Result<u16, String> {
    let number = value.parse().ok().filter(|n: &u16| RING.contains(n) && n.is_power_of_two());
    let (least, most) = (RING.start(), RING.end());
    number.ok_or(format!("ring={value}: must be a power of two from {least} to {most}"))
}

fn queues(value: &str) -> Result<u16, String> {
    let number = value.parse().ok().filter(|n| (1..=CHANNELS_MAX).contains(n));
    number.ok_or(format!("queues={value}: must be a number from 1 to {CHANNELS_MAX}"))
}

pub(super) fn parse(interface: &str, mut options: Options<'_>) -> Result<Endpoint, String> {
    let interface = device_name(interface)?.to_owned();
    let mut nic = AfXdp { interface, ..AfXdp::default() };
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("netns", Some(v)) if v.contains('/') => nic.netns = Some(v.into()),
            ("netns", Some(v)) => nic.netns = Some(Path::new("/run/netns").join(v)),
            ("mode", Some(v)) => {
                nic.mode = match v {
                    "auto" => XdpMode::Auto,
                    "native" => XdpMode::Native,
                    "generic" => XdpMode::Generic,
                    _ => return Err(format!("mode={v}: must be auto, native or generic")),
                }
            }
            ("zerocopy", Some("auto")) => nic.zero_copy = None,
            ("zerocopy", Some(v)) => {
                let sure =
                    on_off(key, v).map_err(|_| format!("{key}={v}: must be auto, on or off"));
                nic.zero_copy = Some(sure?);
            }
            ("queues", Some(v)) => nic.queues = Some(queues(v)?),
            ("ring", Some(v)) => nic.ring = Some(ring(v)?),
            ("mtu", Some(v)) => nic.mtu = Some(parse_mtu(v)?),
            ("promisc", Some(v)) => nic.keep_filter = !on_off(key, v)?,
            ("name", Some(v)) => nic.name = Some(device_name(v)?.to_owned()),
            _ => {
                let known = "netns= mode= zerocopy= queues= ring= mtu= promisc= name= qdisc= \
                             full= rx-locality=";
                return Err(options.unknown(known));
            }
        }
    }
    if nic.mode == XdpMode::Generic && nic.zero_copy == Some(true) {
        return Err("zerocopy=on needs the driver: not with mode=generic".to_owned());
    }
    Ok(Endpoint::AfXdp(nic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    // Goal: every option means what it says, and what is left out has its default.
    #[test]
    fn options_are_read() {
        let plain = AfXdp { interface: "eth0".to_owned(), ..AfXdp::default() };
        let read = |text: &str| parse(&format!("xdp:eth0{text}")).unwrap();
        assert_eq!(read(""), Endpoint::AfXdp(plain.clone()));
        assert_eq!(read(",mode=auto,zerocopy=auto,promisc=on"), Endpoint::AfXdp(plain.clone()));
        assert_eq!(read("").netdev_name(), "eth0");
        let all =
            read(",netns=n,mode=native,zerocopy=off,queues=8,ring=512,mtu=9000,promisc=off,name=x");
        let want = AfXdp {
            netns: Some("/run/netns/n".into()),
            mode: XdpMode::Native,
            zero_copy: Some(false),
            queues: Some(8),
            ring: Some(512),
            mtu: Some(9000),
            keep_filter: true,
            name: Some("x".to_owned()),
            ..plain
        };
        assert_eq!(all, Endpoint::AfXdp(want));
        assert_eq!(all.netdev_name(), "x");
    }

    // Goal: wrong values are refused with the allowed ones.
    #[test]
    fn wrong_options_are_refused() {
        for (text, words) in [
            ("xdp:", "1 to 15 bytes"),
            ("xdp:a/b", "1 to 15 bytes"),
            ("xdp:e,queues=0", "from 1 to 64"),
            ("xdp:e,queues=65", "from 1 to 64"),
            ("xdp:e,ring=100", "power of two from 64 to 8192"),
            ("xdp:e,ring=32", "power of two from 64 to 8192"),
            ("xdp:e,ring=16384", "power of two from 64 to 8192"),
            ("xdp:e,mode=fast", "auto, native or generic"),
            ("xdp:e,zerocopy=yes", "auto, on or off"),
            ("xdp:e,promisc=yes", "on or off"),
            ("xdp:e,mode=generic,zerocopy=on", "not with mode=generic"),
            ("xdp:e,mtu=67", "mtu=67"),
            ("xdp:e,window=1M", "allowed: netns="),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
