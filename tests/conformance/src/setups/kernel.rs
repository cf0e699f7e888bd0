//! Devices of the kernel in a separate network namespace.

use std::process::Command;
use std::time::Duration;

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction, RequestedMode};
use mqnet_netdev::{Function, PrivateFlags};
use mqnet_tap::{Io, TapConfig, TapFunction};

use super::Setup;

/// Runs `ip` with the given arguments.
pub(crate) fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).status().expect("ip");
    assert!(done.success(), "ip {args}");
}

/// Waits until a kernel bridge forwards to a port. The bridge does so some time after the port has
/// a carrier.
pub(crate) fn until_forwarding(port: &str) {
    mqnet_testkit::until("the bridge forwards", || {
        let shown = Command::new("ip").args(["-d", "link", "show", port]).output();
        let shown = String::from_utf8_lossy(&shown.expect("ip").stdout).into_owned();
        shown.contains("state forwarding").then_some(())
    });
}

/// Two TAPs on one kernel bridge.
pub struct Taps {
    io: Io,
    /// True if mqnet's steering program selects the queues.
    steering: bool,
}

/// Names of the TAPs.
const TAPS: [&str; 2] = ["ta", "tb"];

impl Taps {
    /// Creates the kernel bridge. `io` is the write method of the TAPs, `steering` enables mqnet's
    /// steering program.
    pub fn new(io: Io, steering: bool) -> Self {
        ip("link add br0 type bridge mcast_snooping 0");
        ip("link set br0 up");
        Self { io, steering }
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        ip("link del br0");
    }
}

fn join(tap: &str) {
    ip(&format!("link set {tap} master br0"));
    ip(&format!("link set {tap} up"));
}

impl Setup for Taps {
    fn name(&self) -> String {
        format!("tap ({:?}, steering {})", self.io, self.steering)
    }

    fn rig_name(&self) -> &'static str {
        "tap"
    }

    fn make(&mut self, end: usize) -> Box<dyn Function> {
        let config = || TapConfig { name: TAPS[end].into(), io: self.io, ..TapConfig::default() };
        // Retry while the kernel still removes the previous TAP of this name.
        let mut tap = mqnet_testkit::until("a TAP", || TapFunction::open(config()).ok());
        if !self.steering {
            tap.set_flag("flow-steering", false).expect("a flag of every TAP");
        }
        join(TAPS[end]);
        Box::new(tap)
    }

    fn keeps_descriptors(&self) -> bool {
        true
    }

    fn opened(&mut self, end: usize, function: &mut dyn Function) {
        function.set_carrier(true);
        until_forwarding(TAPS[end]);
    }

    fn unplug(&mut self) -> Vec<usize> {
        ip("link del ta");
        vec![0]
    }

    fn plug(&mut self) {
        ip("tuntap add dev ta mode tap multi_queue");
        join("ta");
    }
}

/// Veth pair with AF_XDP on both interfaces.
pub struct Nics {
    mode: RequestedMode,
}

/// Names of the interfaces.
const NICS: [&str; 2] = ["xa", "xb"];

impl Nics {
    /// Creates the veth pair.
    pub fn new(mode: RequestedMode) -> Self {
        let queues = "numrxqueues 4 numtxqueues 4";
        ip(&format!("link add xa {queues} type veth peer name xb {queues}"));
        NICS.iter().for_each(|nic| ip(&format!("link set {nic} up")));
        Self { mode }
    }
}

impl Drop for Nics {
    fn drop(&mut self) {
        ip("link del xa");
    }
}

impl Setup for Nics {
    fn name(&self) -> String {
        format!("af_xdp ({:?})", self.mode)
    }

    fn rig_name(&self) -> &'static str {
        "af_xdp"
    }

    fn make(&mut self, end: usize) -> Box<dyn Function> {
        let (interface, mode) = (NICS[end].to_owned(), self.mode);
        let config = AfXdpConfig { interface, mode, ..AfXdpConfig::default() };
        Box::new(AfXdpFunction::new(config).expect("an interface"))
    }

    /// Waits between two polls, because the kernel closes sockets asynchronously after their owner
    /// has dropped them.
    fn turn(&mut self, _now: Duration) {
        std::thread::sleep(Duration::from_millis(1));
    }

    fn unplug(&mut self) -> Vec<usize> {
        ip("link set xa down");
        vec![0, 1]
    }

    fn plug(&mut self) {
        ip("link set xa up");
    }
}
