//! `ntb:vfio-user=SOCKET`: emulated NTB endpoint, driven by a guest's kernel.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MTU, NAME, name_of, socket_path};
use super::{EndpointConfig, SocketAccess, access};

/// Names of the emulated devices.
pub(super) const DEVICES: [&str; 3] = ["rcar", "imx8", "j721e"];

/// Number of vectors without a queue pair: link events, an unused vector, and a vector that
/// `ntb_transport` reserves.
const OTHER_VECTORS: u16 = 3;
/// Default number of queue pairs.
const QUEUES: u16 = 4;
/// Part of the default window size per queue pair, in bytes.
const WINDOW_EACH: u32 = 512 << 10;
/// Smallest window in bytes.
const WINDOW_MIN: u32 = 2 << 20;

/// Emulated NTB endpoint, driven by a guest's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtbVfioUser {
    /// Socket to which QEMU connects.
    pub path: PathBuf,
    /// Emulated device: `rcar`, `imx8` or `j721e`.
    pub device: &'static str,
    /// Number of memory windows.
    pub windows: u16,
    /// Size of each memory window in bytes.
    pub window: u32,
    /// Number of interrupt vectors.
    pub vectors: u16,
    /// Largest number of queue pairs.
    pub queues: u16,
    /// Size of a slot in bytes.
    pub transport_mtu: u32,
    /// MTU that the link must have; `None`: any.
    pub mtu: Option<u32>,
    /// Name of the netdev; `None`: name of the socket's file.
    pub name: Option<String>,
    /// Permissions of the socket.
    pub access: SocketAccess,
}

const OPTIONS: &[OptionDecl] = &[
    option("device", ValueType::Choice(&DEVICES), "emulated endpoint").or("rcar"),
    option(
        "windows",
        ValueType::Number(1, 4),
        "memory windows: rcar has 1, imx8 up to 2, j721e up to 4",
    )
    .or("1"),
    option(
        "window",
        ValueType::Size(WINDOW_MIN, 256 << 20),
        "size of each window, a power of two; otherwise 512K for each queue pair, at least 2M. \
         Above 4M the guest needs cma= on its command line",
    ),
    option("vectors", ValueType::Number(4, 32), "interrupt vectors").or("32"),
    option(
        "queues",
        ValueType::Number(1, 29),
        "most queue pairs, at most vectors - 3; otherwise 4. The guest sets the number by \
         max_num_clients= of ntb_transport",
    ),
    option(
        "transport-mtu",
        ValueType::Size(2 << 10, 1 << 20),
        "bytes of a slot, the same as transport_mtu= of the guest's ntb_transport",
    )
    .or("64K"),
    MTU.means("MTU to insist on"),
    NAME,
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "ntb:vfio-user=",
    target: "SOCKET",
    summary: "emulated NTB endpoint, driven by a guest's kernel with ntb_hw_epf",
    notes: "The peer is the guest's ntb_netdev. QEMU 11 or newer connects once: after a restart of \
            mqnet restart the guest.",
    document: "ntb.md",
    example: "ntb:vfio-user=/run/vm0.sock,device=imx8,windows=2,queues=12",
    driver: "mqnet-ntb",
    rings: "its slots are set when it is opened: ntb:vfio-user=SOCKET,window=SIZE,queues=N",
    is_interface: false,
    is_path: |_| true,
    options: &[OPTIONS, access::OPTIONS],
    parse: |path, options| {
        let device = options.pick("device", DEVICES).unwrap_or(DEVICES[0]);
        let windows: u16 = options.value("windows");
        let most = match device {
            "rcar" => 1,
            "imx8" => 2,
            _ => 4,
        };
        if windows > most {
            return Err(format!("windows={windows}: {device} has at most {most}"));
        }
        let vectors: u16 = options.value("vectors");
        let most = vectors - OTHER_VECTORS;
        let queues = options.optional("queues").unwrap_or(QUEUES.min(most));
        if queues > most {
            return Err(format!("queues={queues}: vectors={vectors} allows at most {most}"));
        }
        let each = u32::from(queues.div_ceil(windows)) * WINDOW_EACH;
        let window: u32 =
            options.optional("window").unwrap_or(each.next_power_of_two().max(WINDOW_MIN));
        if !window.is_power_of_two() {
            let next = window.next_power_of_two() >> 20;
            return Err(format!("window={window}: must be a power of two, such as {next}M"));
        }
        Ok(super::Endpoint::NtbVfioUser(NtbVfioUser {
            path: socket_path(path)?,
            device,
            windows,
            window,
            vectors,
            queues,
            transport_mtu: options.value("transport-mtu"),
            mtu: options.optional("mtu"),
            name: options.optional("name"),
            access: SocketAccess::read(options, true, "")?,
        }))
    },
};

impl EndpointConfig for NtbVfioUser {
    fn netdev_name(&self) -> String {
        name_of(self.name.as_ref(), &self.path, "ntb")
    }

    fn path(&self) -> Option<Cow<'_, Path>> {
        Some((&self.path).into())
    }

    fn access(&self) -> Option<&SocketAccess> {
        Some(&self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Endpoint, parse};
    use super::*;

    fn end(text: &str) -> Result<NtbVfioUser, String> {
        match parse(text) {
            Ok(Endpoint::NtbVfioUser(end)) => Ok(end),
            Ok(other) => panic!("{text}: {other:?}"),
            Err(e) => Err(e.to_string()),
        }
    }

    // Goal: the default window size fits the number of queue pairs, and the default number of queue
    // pairs fits the vectors.
    #[test]
    fn defaults_fit_given_options() {
        let of = |text: &str| end(&format!("ntb:vfio-user=/x{text}")).unwrap();
        let shape = |text: &str| {
            let end = of(text);
            (end.device, end.windows, end.window, end.vectors, end.queues, end.transport_mtu)
        };
        assert_eq!(shape(""), ("rcar", 1, 2 << 20, 32, 4, 65536));
        assert_eq!(shape(",queues=8"), ("rcar", 1, 4 << 20, 32, 8, 65536));
        assert_eq!(shape(",queues=29"), ("rcar", 1, 16 << 20, 32, 29, 65536));
        assert_eq!(shape(",vectors=4").4, 1);
        assert_eq!(shape(",device=j721e,windows=4,queues=29").2, 4 << 20);
    }

    // Goal: the error of inconsistent values contains the allowed values.
    #[test]
    fn mistakes_are_named() {
        for (options, words) in [
            ("windows=2", "windows=2: rcar has at most 1"),
            ("device=imx8,windows=3", "windows=3: imx8 has at most 2"),
            ("vectors=8,queues=6", "queues=6: vectors=8 allows at most 5"),
            ("window=3M", "must be a power of two, such as 4M"),
            ("window=1M", "window=1M: must be a size from 2M to 256M"),
        ] {
            let message = end(&format!("ntb:vfio-user=/x,{options}")).unwrap_err();
            assert!(message.contains(words), "{options}: {message}");
        }
        let group = parse("ntb:vfio-user=/x+ntb:vfio-user=/y").unwrap_err().to_string();
        assert!(group.contains("ntb_transport"), "{group}");
    }
}
