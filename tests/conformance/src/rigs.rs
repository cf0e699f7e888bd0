//! Rigs of the backends.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction, RequestedMode};
use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::{Caps, Channel, Function, KernelInterface, LinkStatus, Plan};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::{clock, namespace, process};
use mqnet_tap::{Io, TapConfig, TapFunction};

use crate::Rig;
use crate::setups::{Setup, partner};

mod program;

pub use program::{from_program, to_program};

/// Temporary folder, removed on drop.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mqnet-conformance-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for sockets");
        Self(path)
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn first(channels: Vec<Channel>) -> Channel {
    channels.into_iter().next().expect("a channel")
}

/// Rig of the loopback device.
pub fn loopback() -> Rig {
    let mut function = Loopback::new(1);
    let caps = function.caps();
    let plan = Plan::join(&caps, &caps).expect("plan");
    let channel = first(function.open(&plan).expect("open"));
    let stats = function.stats()[0].clone();
    Rig {
        name: "loopback",
        tx: channel.tx,
        rx: channel.rx,
        tx_stats: stats.clone(),
        rx_stats: stats,
        frame_max: plan.frame_max,
        lossless: true,
        keep: Box::new(function),
    }
}

/// Resources that the queues of a rig need, in the order of their teardown.
struct Stand {
    _rest: Vec<Channel>,
    _functions: Vec<Box<dyn Function>>,
    _setup: Box<dyn Setup>,
}

/// Rig of one channel of a setup. Frames that are sent through end `from` arrive at the other end,
/// or at the same end if the setup has only one.
pub fn of_setup(mut setup: Box<dyn Setup>, from: usize, channel: usize) -> Rig {
    let count = setup.ends();
    let channels = *setup.channels().start();
    let mut functions: Vec<_> = (0..count).map(|end| setup.make(end)).collect();
    functions.iter_mut().for_each(|function| function.set_partner(&partner(channels)));
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|end| setup.follows(*end).is_some());
    let mut opened: Vec<Vec<Channel>> = (0..count).map(|_| Vec::new()).collect();
    let lossless = setup.lossless();
    // Start value of the minimum over the plans: no limit in a lossless setup, otherwise the
    // setup's largest frame.
    let mut frame_max = if lossless { u32::MAX } else { setup.frame_max() as u32 };
    for end in order {
        mqnet_testkit::until("an end is up", || {
            let now = clock::monotonic();
            setup.turn(now);
            let statuses: Vec<_> = functions.iter_mut().map(|f| f.poll_link(now)).collect();
            matches!(statuses[end], LinkStatus::Up { .. }).then_some(())
        });
        let function = &mut functions[end];
        let agreed = function.peer().map(|peer| peer.plan().expect("up").mirrored());
        let plan = agreed
            .unwrap_or_else(|| Plan::join(&function.caps(), &partner(channels)).expect("a plan"));
        frame_max = frame_max.min(plan.frame_max);
        opened[end] = function.open(&plan).expect("open");
        setup.opened(end, &mut **function);
    }
    let to = if count == 1 { from } else { 1 - from };
    let [tx_stats, rx_stats] = [from, to].map(|end| functions[end].stats()[channel].clone());
    let near = opened[from].remove(channel);
    let (tx, rx, mut rest) = match count {
        1 => (near.tx, near.rx, Vec::new()),
        _ => {
            let far = opened[to].remove(channel);
            (near.tx, far.rx, vec![Channel { rx: near.rx, tx: far.tx }])
        }
    };
    rest.extend(opened.into_iter().flatten());
    let name = setup.rig_name();
    let keep = Box::new(Stand { _rest: rest, _functions: functions, _setup: setup });
    Rig { name, tx, rx, tx_stats, rx_stats, frame_max, lossless, keep }
}

/// Creates two ends of a bridge and completes their handshake.
pub fn connected(window: u32, partner: &Caps) -> (NtbFunction, NtbFunction, Folder) {
    let folder = Folder::new();
    let path = folder.0.join("x.sock");
    let end = |seed| {
        let config = NtbConfig { path: path.clone(), window, mtu: None };
        let mut end = NtbFunction::memfd(&config, seed);
        end.set_partner(partner);
        end
    };
    let (mut a, mut b) = (end(1), end(2));
    shake_hands(&mut a, &mut b);
    (a, b, folder)
}

/// Polls two ends until both are up.
pub fn shake_hands(a: &mut NtbFunction, b: &mut NtbFunction) {
    for _ in 0..2000 {
        let now = clock::monotonic();
        let up = |status| matches!(status, LinkStatus::Up { .. });
        if up(a.poll_link(now)) & up(b.poll_link(now)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the ends did not come up: {:?} {:?}", a.state(), b.state());
}

/// Rig of a bridge with windows of `window` bytes.
pub fn ntb(window: u32) -> Rig {
    let caps = Loopback::new(1).caps();
    let (mut a, mut b, folder) = connected(window, &caps);
    let plan = a.agreement().expect("up").plan.clone();
    let (near, far) = (first(a.open(&plan).expect("open")), first(b.open(&plan).expect("open")));
    let (tx_stats, rx_stats) = (a.stats()[0].clone(), b.stats()[0].clone());
    Rig {
        name: "ntb",
        tx: near.tx,
        rx: far.rx,
        tx_stats,
        rx_stats,
        frame_max: plan.frame_max,
        lossless: true,
        keep: Box::new((near.rx, far.tx, a, b, folder)),
    }
}

/// Rig of a bridge with the protocol of the kernel's `ntb_transport` and with slots of `slot`
/// bytes.
pub fn ntb_transport(window: u32, slot: u32) -> Rig {
    let caps = Loopback::new(1).caps();
    let (ends, plan, [near, far]) = mqnet_ntb::fuzzing::joined(window, slot, &caps);
    let [tx_stats, rx_stats] = ends.each_ref().map(|end| end.stats()[0].clone());
    Rig {
        name: "ntb_transport",
        tx: near.tx,
        rx: far.rx,
        tx_stats,
        rx_stats,
        frame_max: plan.frame_max,
        lossless: true,
        keep: Box::new((near.rx, far.tx, ends)),
    }
}

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).status().expect("ip");
    assert!(done.success(), "ip {args}");
}

/// Moves this thread into a new network namespace. Without root, skips the test and returns false.
pub fn own_network() -> bool {
    if !process::is_root() {
        mqnet_testkit::skip("a TAP in a namespace of its own needs root");
        return false;
    }
    namespace::enter_new_net().expect("unshare(CLONE_NEWNET)");
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("disable ipv6");
    true
}

/// Methods of writing frames to a TAP that this kernel supports. A missing io_uring is reported as
/// a skip.
pub fn ways() -> Vec<Io> {
    match TapFunction::open(TapConfig { name: "tq".into(), io: Io::Uring, ..TapConfig::default() })
    {
        Ok(_) => vec![Io::Plain, Io::Uring],
        Err(e) => {
            mqnet_testkit::skip(&format!("one of two ways: {e}"));
            vec![Io::Plain]
        }
    }
}

/// Opens a TAP with one queue and the default write method, for a link to an equal device.
pub fn tap(name: &str, mtu: u32) -> (TapFunction, Channel, Plan) {
    tap_written(name, mtu, Io::Auto)
}

/// Opens a TAP with one queue and the given write method.
pub fn tap_written(name: &str, mtu: u32, io: Io) -> (TapFunction, Channel, Plan) {
    let open = || {
        let config = TapConfig { name: name.into(), mtu: Some(mtu), io, ..TapConfig::default() };
        TapFunction::open(config)
    };
    // The kernel may still be removing the previous TAP of this name.
    let mut opened = open();
    for _ in 0..50 {
        if opened.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        opened = open();
    }
    ready(opened.expect("tap"))
}

/// Opens the queue of a TAP and sets the TAP's carrier.
pub fn ready(mut tap: TapFunction) -> (TapFunction, Channel, Plan) {
    let caps = tap.caps();
    let plan = Plan::join(&caps, &caps).expect("plan");
    let channel = first(tap.open(&plan).expect("open"));
    tap.set_carrier(true);
    (tap, channel, plan)
}

/// Rig of two TAPs on one kernel bridge.
pub fn taps() -> Rig {
    taps_written(Io::Auto)
}

/// Rig of two TAPs on one kernel bridge, with the given write method.
pub fn taps_written(io: Io) -> Rig {
    bridged(tap_written("ta", 9000, io))
}

/// Rig of the TAP `ta` and a new TAP `tb` on one kernel bridge.
pub fn bridged((a, near, plan): (TapFunction, Channel, Plan)) -> Rig {
    let (b, far, _) = tap("tb", 9000);
    ip("link add br0 type bridge mcast_snooping 0");
    for line in ["ta", "tb"] {
        ip(&format!("link set {line} master br0"));
        ip(&format!("link set {line} up"));
    }
    ip("link set br0 mtu 9000");
    ip("link set br0 up");
    let (tx_stats, rx_stats) = (a.stats()[0].clone(), b.stats()[0].clone());
    // The rig sends without offloads, so its largest frame is an Ethernet frame with the MTU of
    // `tb`.
    let frame_max = 9000 + 14;
    assert!(plan.frame_max >= frame_max);
    let keep = Box::new((near.rx, far.tx, Bridge, a, b));
    let (tx, rx) = (near.tx, far.rx);
    Rig { name: "tap", tx, rx, tx_stats, rx_stats, frame_max, lossless: false, keep }
}

struct Bridge;

impl Drop for Bridge {
    fn drop(&mut self) {
        ip("link del br0");
    }
}

/// Rig of a veth pair with AF_XDP on both interfaces.
pub fn nics(mode: RequestedMode) -> Rig {
    const MTU: u32 = 9000;
    let queues = "numrxqueues 1 numtxqueues 1";
    ip(&format!("link add xa {queues} type veth peer name xb {queues}"));
    let open = |name: &str| {
        ip(&format!("link set {name} mtu {MTU} up"));
        let config = AfXdpConfig { interface: name.into(), mode, ..AfXdpConfig::default() };
        AfXdpFunction::new(config).expect("an interface")
    };
    let (mut a, mut b) = (open("xa"), open("xb"));
    mqnet_testkit::until("both ends of the wire", || {
        let now = clock::monotonic();
        let up = |status| matches!(status, LinkStatus::Up { .. });
        (up(a.poll_link(now)) & up(b.poll_link(now))).then_some(())
    });
    let plan = Plan::join(&a.caps(), &b.caps()).expect("plan");
    let (near, far) = (first(a.open(&plan).expect("open")), first(b.open(&plan).expect("open")));
    let (tx_stats, rx_stats) = (a.stats()[0].clone(), b.stats()[0].clone());
    let keep = Box::new((near.rx, far.tx, a, b, Wire));
    let (tx, rx, frame_max) = (near.tx, far.rx, MTU + 14);
    Rig { name: "af_xdp", tx, rx, tx_stats, rx_stats, frame_max, lossless: false, keep }
}

struct Wire;

impl Drop for Wire {
    fn drop(&mut self) {
        ip("link del xa");
    }
}
