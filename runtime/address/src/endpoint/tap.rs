//! `tap:NAME`: TAP device of this kernel.

use std::path::{Path, PathBuf};

use mqnet_netdev::{InterfaceAddress, Io};

use super::EndpointConfig;
use super::declaration::KindDecl;
use super::option::{Custom, OptionDecl, ValueType, option};
use super::value::Value;
use super::values::{DESCRIPTORS, MAC, MTU, NETNS, device_name};

/// TAP device of this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapEndpoint {
    /// Name of the device; may be empty if `fds` is not.
    pub name: String,
    /// Network namespace file of the device; `None`: the namespace of mqnet.
    pub netns: Option<PathBuf>,
    /// Ethernet address to set.
    pub mac: Option<[u8; 6]>,
    /// MTU to set, which the link must have.
    pub mtu: Option<u32>,
    /// IP addresses to add.
    pub addresses: Vec<InterfaceAddress>,
    /// True to keep the device when the link is closed.
    pub persist: bool,
    /// Use of io_uring or of plain system calls.
    pub io: Io,
    /// Descriptors of the device's queues, inherited from the parent process.
    pub fds: Vec<i32>,
}

const OPTIONS: &[OptionDecl] = &[
    NETNS,
    MAC,
    MTU,
    option(
        "address",
        ValueType::Custom(&Custom {
            syntax: "IP/PREFIX",
            allowed: "an IP address with the length of its prefix",
            example: "10.0.0.1/24",
            read: |text| text.parse().ok().map(Value::Address),
        }),
        "IP address to add; may be repeated",
    ),
    option("persist", ValueType::Flag, "keep the device afterwards"),
    option(
        "io",
        ValueType::Choice(&["auto", "uring", "plain"]),
        "auto: many frames per system call where the kernel allows it; uring: many, or an error; \
         plain: one",
    )
    .or("auto"),
    option("fd", DESCRIPTORS, "queues that the parent process has attached"),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "tap:",
    target: "NAME",
    summary: "TAP device with several queues and every offload of the kernel",
    notes: "An existing device is used (without multi_queue: for one channel) and restored \
            afterwards. Before Linux 7.3 the kernel drops frames for which its ring has no room \
            (txqueuelen).",
    document: "tap.md",
    example: "tap:vm0,address=10.0.0.1/24,mtu=9000",
    driver: "mqnet-tap",
    rings: "a TAP's ring is the kernel's: ip link set NAME txqueuelen N",
    is_interface: true,
    is_path: |_| false,
    options: &[OPTIONS],
    parse: |name, options| {
        let fds: Vec<i32> = options.all("fd");
        let name =
            if name.is_empty() && !fds.is_empty() { String::new() } else { device_name(name)? };
        Ok(super::Endpoint::Tap(TapEndpoint {
            name,
            netns: options.optional::<String>("netns").map(PathBuf::from),
            mac: options.optional("mac"),
            mtu: options.optional("mtu"),
            addresses: options.all("address"),
            persist: options.value("persist"),
            io: options.pick("io", [Io::Auto, Io::Uring, Io::Plain]).unwrap_or_default(),
            fds,
        }))
    },
};

impl EndpointConfig for TapEndpoint {
    fn netdev_name(&self) -> String {
        self.name.clone()
    }

    fn namespace(&self) -> Option<&Path> {
        self.netns.as_deref()
    }

    fn inherited(&self) -> &[i32] {
        &self.fds
    }
}
