//! Host of a test: a network namespace, and the commands in this namespace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mqnet_sysio::namespace;
use serde_json::Value;

use crate::process::run_command;

/// Network namespace, and the prefix of commands in it.
#[derive(Debug)]
pub struct Host {
    prefix: Vec<String>,
    net: PathBuf,
    /// Name of a namespace that this process created and removes on drop.
    named: Option<String>,
}

/// Kernel counters of one network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Received frames dropped by the network stack because a queue was full.
    pub rx_dropped: u64,
    /// Frames dropped because the device's ring was full.
    pub tx_dropped: u64,
    /// Frames dropped by the device's qdisc.
    pub qdisc_dropped: u64,
}

impl Host {
    /// Creates a namespace with its loopback device up.
    pub(crate) fn create(name: &str) -> Self {
        ip(&["netns", "add", name]);
        let host = Self {
            prefix: ["ip", "netns", "exec", name].map(str::to_owned).to_vec(),
            net: Path::new("/run/netns").join(name),
            named: Some(name.to_owned()),
        };
        host.run(&["ip", "link", "set", "lo", "up"]);
        host
    }

    /// Returns the user and network namespaces of a process as a host.
    pub fn of_process(pid: u32) -> Self {
        let pid = pid.to_string();
        let prefix = ["nsenter", "-t", &pid, "-U", "-n", "--preserve-credentials", "--"];
        let net = Path::new("/proc").join(&pid).join("ns/net");
        Self { prefix: prefix.map(str::to_owned).to_vec(), net, named: None }
    }

    /// Name of the namespace, for `netns=`.
    pub fn name(&self) -> &str {
        self.named.as_deref().expect("a namespace with a name")
    }

    /// Command to run in this namespace.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).args(words).stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed; returns its stdout.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        let output = run_command(&mut self.command(words));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}: {err}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that prints JSON.
    #[track_caller]
    pub fn run_json(&self, words: &[&str]) -> Value {
        let text = self.run(words);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"))
    }

    /// Calls `f` on a new thread in this namespace: sockets that `f` creates belong to this host.
    pub fn within<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        namespace::run_in_net(&self.net, f)
            .unwrap_or_else(|e| panic!("entering {}: {e}", self.net.display()))
    }

    /// Entry of a device in `ip -j link`; `None` for an unknown device.
    pub fn device(&self, device: &str) -> Option<Value> {
        let words = ["ip", "-j", "-d", "-s", "link", "show", "dev", device];
        let output = run_command(&mut self.command(&words));
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        list.get(0).cloned()
    }

    /// Returns true if the device exists and has a carrier.
    pub fn has_carrier(&self, device: &str) -> bool {
        self.device(device).is_some_and(|info| {
            let flags = info["flags"].as_array().cloned().unwrap_or_default();
            flags.iter().any(|flag| flag == "LOWER_UP")
        })
    }

    /// Kernel counters of a device.
    #[track_caller]
    pub fn counters(&self, device: &str) -> LinkCounters {
        let info = self.device(device).expect("the device");
        let number = |side: &str| {
            info["stats64"][side]["dropped"].as_u64().expect("a counter of the device")
        };
        let qdiscs = self.run_json(&["tc", "-j", "-s", "qdisc", "show", "dev", device]);
        let qdiscs = qdiscs.as_array().expect("a list of qdiscs").iter();
        // Omit `mq`: its drops are the sum over its children, which are counted too.
        let leaves = qdiscs.filter(|q| q["kind"] != "mq");
        LinkCounters {
            rx_dropped: number("rx"),
            tx_dropped: number("tx"),
            qdisc_dropped: leaves.filter_map(|q| q["drops"].as_u64()).sum(),
        }
    }

    /// Sets a queue length of a TAP or TUN that suffices on a busy machine. The kernel drops frames
    /// at a full ring, and a test without loss would attribute these drops to mqnet.
    #[track_caller]
    pub fn lengthen(&self, device: &str) {
        self.run(&["ip", "link", "set", "dev", device, "txqueuelen", "4000"]);
    }

    /// Value of a protocol counter of `nstat` (`UdpRcvbufErrors`, `Udp6InCsumErrors`).
    #[track_caller]
    pub fn protocol(&self, counter: &str) -> u64 {
        let all = self.run_json(&["nstat", "-a", "-z", "-s", "-j"]);
        let value = all["kernel"][counter].as_u64();
        value.unwrap_or_else(|| panic!("the kernel has no counter {counter}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(name) = &self.named {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[track_caller]
fn ip(words: &[&str]) {
    let output = run_command(Command::new("ip").args(words));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {err}");
}
