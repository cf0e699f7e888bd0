//! `xdp:IFNAME`: interface of this kernel, taken over by AF_XDP sockets.

use std::path::{Path, PathBuf};

use super::EndpointConfig;
use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MTU, NAME, NETNS, ON_OFF, QUEUES, device_name};

/// XDP attachment mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfXdpMode {
    /// Driver mode if the driver supports it, otherwise generic mode.
    #[default]
    Auto,
    /// Driver mode (native XDP).
    Native,
    /// Generic mode: frames are taken in the network stack.
    Generic,
}

/// Interface of this kernel, taken over by AF_XDP sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfXdp {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace file of the interface; `None`: the namespace of mqnet.
    pub netns: Option<PathBuf>,
    /// XDP attachment mode.
    pub mode: AfXdpMode,
    /// Zero copy: true requires it, false forbids it, `None` uses it if possible.
    pub zero_copy: Option<bool>,
    /// Number of queues to set; `None`: the queues of the interface.
    pub queues: Option<u16>,
    /// Number of frames in each ring; `None`: depends on the number of queues.
    pub ring: Option<u16>,
    /// MTU of the link; `None`: MTU of the interface.
    pub mtu: Option<u32>,
    /// True to leave the address filter unchanged; false to enable promiscuous mode.
    pub keep_filter: bool,
    /// Name of the netdev; `None`: name of the interface.
    pub name: Option<String>,
}

const OPTIONS: &[OptionDecl] = &[
    NETNS.means("network namespace of the interface"),
    option(
        "mode",
        ValueType::Choice(&["auto", "native", "generic"]),
        "native: frames are received in the driver; generic: in the stack, which works with any \
         driver; auto: native if possible",
    )
    .or("auto"),
    option(
        "zerocopy",
        ValueType::Choice(&["auto", "on", "off"]),
        "the device moves frames into and out of mqnet's memory: if it can, always, or never",
    )
    .or("auto"),
    option(
        "queues",
        QUEUES,
        "queues to set, as ethtool -L, and to restore afterwards; otherwise those of the \
             interface are followed, and an interface with more than 64 is refused",
    ),
    option(
        "ring",
        ValueType::PowerOfTwo(64, 8192),
        "frames in each ring; otherwise 2048 for up to 8 queues, fewer for more, so that at \
             most 128 MiB are locked",
    ),
    MTU.means("MTU of the link; otherwise, and at most, that of the interface"),
    option(
        "promisc",
        ON_OFF,
        "receive frames for all addresses; off: the address filter is not changed",
    )
    .or("on"),
    NAME.means("name of the netdev; otherwise that of the interface"),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "xdp:",
    target: "IFNAME",
    summary: "network interface of this kernel, by AF_XDP sockets",
    notes: "Every queue of the interface is a channel.",
    document: "af_xdp.md",
    example: "xdp:eth0,mode=native,zerocopy=on",
    driver: "mqnet-af-xdp",
    rings: "its rings are set when it is opened: xdp:NAME,ring=N",
    is_interface: true,
    is_path: |_| false,
    options: &[OPTIONS],
    parse: |interface, options| {
        let modes = [AfXdpMode::Auto, AfXdpMode::Native, AfXdpMode::Generic];
        let nic = AfXdp {
            interface: device_name(interface)?,
            netns: options.optional::<String>("netns").map(PathBuf::from),
            mode: options.pick("mode", modes).unwrap_or_default(),
            zero_copy: options.pick("zerocopy", [None, Some(true), Some(false)]).flatten(),
            queues: options.optional("queues"),
            ring: options.optional("ring"),
            mtu: options.optional("mtu"),
            keep_filter: !options.value::<bool>("promisc"),
            name: options.optional("name"),
        };
        if nic.mode == AfXdpMode::Generic && nic.zero_copy == Some(true) {
            return Err("zerocopy=on needs the driver: not with mode=generic".to_owned());
        }
        Ok(super::Endpoint::AfXdp(nic))
    },
};

impl EndpointConfig for AfXdp {
    fn netdev_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.interface.clone())
    }

    fn namespace(&self) -> Option<&Path> {
        self.netns.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, parse};

    // Goal: every option is read, and absent options have their defaults.
    #[test]
    fn options_are_read() {
        let plain = AfXdp { interface: "eth0".to_owned(), ..AfXdp::default() };
        let read = |text: &str| parse(&format!("xdp:eth0{text}")).unwrap();
        assert_eq!(read(""), Endpoint::AfXdp(plain.clone()));
        assert_eq!(read(",mode=auto,zerocopy=auto,promisc=on"), Endpoint::AfXdp(plain.clone()));
        assert_eq!(read("").config().netdev_name(), "eth0");
        let all =
            read(",netns=n,mode=native,zerocopy=off,queues=8,ring=512,mtu=9000,promisc=off,name=x");
        let want = AfXdp {
            netns: Some("/run/netns/n".into()),
            mode: AfXdpMode::Native,
            zero_copy: Some(false),
            queues: Some(8),
            ring: Some(512),
            mtu: Some(9000),
            keep_filter: true,
            name: Some("x".to_owned()),
            ..plain
        };
        assert_eq!(all, Endpoint::AfXdp(want));
        assert_eq!(all.config().netdev_name(), "x");
    }

    // Goal: invalid interface names and options that exclude each other are rejected.
    #[test]
    fn wrong_options_are_refused() {
        for (text, words) in [
            ("xdp:", "1 to 15 bytes"),
            ("xdp:a/b", "1 to 15 bytes"),
            ("xdp:e,mode=generic,zerocopy=on", "not with mode=generic"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
