//! The two ends of our NTB link for the benchmarks: two processes with the real engine, or both
//! ends on one thread to be counted.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use mqnet_engine::{Cpus, IdlePolicy, Lane, LaneId, Link, LinkConfig, Way};
use mqnet_netdev::{Channel, ChannelStats, Function, LinkStatus};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::clock;
use mqnet_wire::Layer;

use super::child::{self, Child, RunFolder};
use super::slices::End;
use super::traffic::{self, Role, Traffic};
use super::{Burst, LinkPlug, LinkSetup, Result};

/// Bytes of each window: the default of `ntb:`.
const WINDOW: u32 = 16 << 20;

/// Our link for the benchmarks.
pub(crate) const PLUG: LinkPlug = LinkPlug { start, burst };

/// Which end a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Brings frames.
    Tx,
    /// Takes frames; says how many when a line comes on its standard input.
    Rx,
}

/// What the hidden subcommand `bench-end` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndArgs {
    which: Which,
    socket: std::path::PathBuf,
    bytes: usize,
    cpu: usize,
    channels: u16,
}

fn ntb(path: &Path, seed: u64) -> NtbFunction {
    let config = NtbConfig { path: path.to_owned(), window: WINDOW, mtu: None };
    NtbFunction::memfd(&config, seed)
}

/// One end as a process.
pub(super) fn run(args: &EndArgs) -> Result<()> {
    let role = match args.which {
        Which::Tx => Role::Source(args.bytes),
        Which::Rx => Role::Sink,
    };
    let config = LinkConfig {
        channels: None,
        workers: Some(1),
        cpus: Cpus::List(vec![args.cpu]),
        idle: IdlePolicy::default(),
        ..LinkConfig::default()
    };
    let bridge = ntb(&args.socket, u64::from(std::process::id()));
    let traffic = Traffic::new(role, args.channels);
    let stats: Vec<Arc<ChannelStats>> = traffic.stats().to_vec();
    if args.which == Which::Rx {
        std::thread::spawn(move || answer(&stats));
    }
    let mut link = Link::new(Box::new(traffic), Box::new(bridge), config)?;
    loop {
        link.turn(clock::monotonic())?;
        let timeout = Duration::from_millis(if link.running().is_some() { 500 } else { 5 });
        mqnet_sysio::poll::wait_readable(&link.events(), timeout)?;
    }
}

/// Says how many frames have come, once a line.
fn answer(stats: &[Arc<ChannelStats>]) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        let frames: u64 = stats.iter().map(|s| s.tx.packets.get()).sum();
        println!("{frames}");
        line.clear();
    }
    std::process::exit(0);
}

/// A running pair of processes.
struct Pair {
    children: [Child; 2],
    _folder: RunFolder,
}

fn start(setup: &LinkSetup) -> Result<Box<dyn End>> {
    let folder = RunFolder::new()?;
    // Two links may run beside each other in one folder.
    let socket = folder.path.join(format!("link{}.sock", setup.channels));
    let socket = socket.to_str().ok_or("the folder for sockets has a strange name")?.to_owned();
    let (bytes, channels) = (setup.bytes.to_string(), setup.channels.to_string());
    let open = |which: &str, cpu: usize| -> Result<Child> {
        let args = ["bench-end", which, &socket, &bytes, &cpu.to_string(), &channels];
        Child::spawn(&format!("mqnet {which}"), child::own(&args)?, Stdio::piped())
    };
    let children = [open("rx", setup.rx_cpu)?, open("tx", setup.tx_cpu)?];
    let mut pair = Pair { children, _folder: folder };
    for _ in 0..200 {
        if pair.frames_received()? > 0 {
            return Ok(Box::new(pair));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let [rx, tx] = &pair.children;
    Err(format!("our link moves no frames: {} {}", rx.tail(), tx.tail()).into())
}

impl End for Pair {
    fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    fn frames_received(&mut self) -> Result<u64> {
        let receiver = &mut self.children[0];
        let mark = receiver.mark();
        receiver.say("frames")?;
        receiver.wait_for(mark, Duration::from_secs(5), |text| {
            text.split_once('\n').and_then(|(line, _)| line.trim().parse().ok())
        })
    }
}

/// Both ends on this thread: the lanes are polled by turns, as two workers would.
fn burst(bytes: usize, qdisc: Option<&str>) -> Result<Burst> {
    // Two links may be in one folder: one with a discipline and one without.
    let name = if qdisc.is_some() { "queued.sock" } else { "link.sock" };
    let (mut a, mut b, folder) = connect(1, name)?;
    let plan = a.agreement().ok_or("the link of this thread with itself went down")?.plan.clone();
    let stats: [Arc<ChannelStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let (near, far) = (first(a.open(&plan)?)?, first(b.open(&plan)?)?);
    let id = LaneId { set: 0, channel: 0, way: Way::Forth };
    let mut send = Lane::new(id, source.rx, near.tx, plan.frame_max, None, a.stats()[0].clone())?;
    if let Some(words) = qdisc {
        send = send.with_qdisc(words, Layer::Ethernet)?;
    }
    let mut receive = Lane::new(id, far.rx, sink.tx, plan.frame_max, None, stats[1].clone())?;
    Ok(Box::new(move || {
        let _alive = (&folder, &a, &b);
        let sent = send.poll(clock::monotonic).map_or(0, |p| p.frames);
        let _ = receive.poll(clock::monotonic);
        sent
    }))
}

fn first(channels: Vec<Channel>) -> Result<Channel> {
    Ok(channels.into_iter().next().ok_or("a link without channels")?)
}

/// Two ends that have shaken hands.
fn connect(channels: u16, name: &str) -> Result<(NtbFunction, NtbFunction, RunFolder)> {
    let folder = RunFolder::new()?;
    let path = folder.path.join(name);
    let caps = Traffic::new(Role::Sink, channels).caps();
    let [mut a, mut b] = [1, 2].map(|seed| ntb(&path, seed));
    a.set_partner(&caps);
    b.set_partner(&caps);
    for _ in 0..1000 {
        let now = clock::monotonic();
        let up = |status| matches!(status, LinkStatus::Up { .. });
        if up(a.poll_link(now)) & up(b.poll_link(now)) {
            return Ok((a, b, folder));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("the two ends did not find each other".into())
}
