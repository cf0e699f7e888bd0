//! Both ends of an NTB link for benchmarks: two processes with the real engine, or both ends on one
//! thread for instruction counts.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use mqnet_engine::{Cpus, Direction, IdlePolicy, Lane, LaneId, Link, LinkConfig};
use mqnet_netdev::{Channel, Function, LinkStatus, QueuePairStats};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::clock;
use mqnet_wire::Layer;

use super::child::{self, Child, RunFolder};
use super::slices::{self, End};
use super::traffic::{self, Role, Traffic};
use super::{Burst, LinkPlug, LinkSetup, Result};
use mqnet_daemon::endpoint;

/// Bytes of each window: the default of `ntb:`.
const WINDOW: u32 = 16 << 20;

/// Entry points of the NTB link.
pub(crate) const PLUG: LinkPlug = LinkPlug { start, burst };

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Which {
    /// Source of frames.
    Tx,
    /// Sink of frames; prints the number of frames for each line of its standard input.
    Rx,
    /// Source of frames without a copy, as in `testpmd`.
    Make,
    /// Sink of frames without a copy, as in `testpmd`.
    Take,
    /// Link between two addresses, which are separated by a blank.
    Join,
}

impl Which {
    fn word(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Rx => "rx",
            Self::Make => "make",
            Self::Take => "take",
            Self::Join => "join",
        }
    }
}

/// Arguments of the hidden subcommand `bench-end`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndArgs {
    which: Which,
    /// Address of the function that is measured.
    endpoint: String,
    bytes: usize,
    cpu: usize,
    channels: u16,
}

pub(super) fn ntb(path: &Path, seed: u64) -> NtbFunction {
    let config = NtbConfig { path: path.to_owned(), window: WINDOW, mtu: None };
    NtbFunction::memfd(&config, seed)
}

/// Runs one end as a process until its standard input is closed.
pub(super) fn run(args: &EndArgs) -> Result<()> {
    let config = LinkConfig {
        channels: None,
        workers: Some(1),
        cpus: Cpus::List(vec![args.cpu]),
        idle: IdlePolicy::default(),
        ..LinkConfig::default()
    };
    let open = |address: &str| -> Result<Box<dyn Function>> {
        Ok(endpoint::open(mqnet_address::parse(address)?, Vec::new())?.function)
    };
    let (first, second) = args.endpoint.split_once(' ').unwrap_or(("", &args.endpoint));
    let measured = open(second)?;
    let role = match args.which {
        Which::Tx => Role::Source(args.bytes),
        Which::Rx | Which::Join => Role::Sink,
        Which::Make => Role::Maker(args.bytes),
        Which::Take => Role::Taker,
    };
    let other: Box<dyn Function> = match args.which {
        Which::Join => open(first)?,
        _ => Box::new(Traffic::new(role, args.channels)),
    };
    let stats = [other.stats().to_vec(), measured.stats().to_vec()];
    std::thread::spawn(move || answer(&stats));
    let mut link = Link::new(other, measured, config)?;
    loop {
        link.turn(clock::monotonic())?;
        let timeout = Duration::from_millis(if link.running().is_some() { 500 } else { 5 });
        mqnet_sysio::poll::wait_readable(&link.events(), timeout)?;
    }
}

/// For each input line, prints the number of received frames and the number of notifications that
/// were sent or armed.
fn answer([first, second]: &[Vec<Arc<QueuePairStats>>; 2]) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        let frames: u64 = first.iter().map(|s| s.tx.packets.get()).sum();
        let calls = |s: &Arc<QueuePairStats>| {
            s.tx.kicks.get() + s.rx.kicks.get() + s.tx.arms.get() + s.rx.arms.get()
        };
        let calls: u64 = second.iter().map(calls).sum();
        println!("{frames} {calls}");
        line.clear();
    }
    std::process::exit(0);
}

/// Process of one end.
pub(super) struct Half(Child);

impl Half {
    /// Starts one end.
    pub(super) fn start(setup: &LinkSetup, which: Which, endpoint: &str) -> Result<Self> {
        let sends = matches!(which, Which::Tx | Which::Make);
        let cpu = if sends { setup.tx_cpu } else { setup.rx_cpu };
        let (bytes, cpu, channels) =
            (setup.bytes.to_string(), cpu.to_string(), setup.channels.to_string());
        let which = which.word();
        let args = ["bench-end", which, endpoint, &bytes, &cpu, &channels];
        Child::spawn(&format!("mqnet {which}"), child::own(&args)?, Stdio::piped()).map(Self)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Last lines of the process output.
    pub(super) fn tail(&self) -> String {
        self.0.tail()
    }

    /// Number of frames that this end has received.
    pub(super) fn received(&mut self) -> Result<u64> {
        self.counts().map(|[frames, _]| frames)
    }

    /// Number of frames received, and number of notifications sent to the peer or armed at this
    /// end. Each notification takes about one system call.
    pub(super) fn counts(&mut self) -> Result<[u64; 2]> {
        let mark = self.0.mark();
        self.0.say("frames")?;
        self.0.wait_for(mark, Duration::from_secs(5), |text| {
            let (frames, calls) = text.split_once('\n')?.0.split_once(' ')?;
            Some([frames.parse().ok()?, calls.trim().parse().ok()?])
        })
    }
}

/// Running pair of processes.
pub(super) struct Pair {
    rx: Half,
    tx: Half,
    _folder: Option<RunFolder>,
}

fn start(setup: &LinkSetup) -> Result<Box<dyn End>> {
    let folder = RunFolder::new()?;
    // The number of channels distinguishes two links in one folder.
    let socket = folder.path.join(format!("link{}.sock", setup.channels));
    let socket = socket.to_str().ok_or("the folder for sockets has a strange name")?.to_owned();
    let endpoint = format!("ntb:{socket}");
    let pair = pair_at(setup, &endpoint)?;
    Ok(Box::new(Pair { _folder: Some(folder), ..pair }))
}

/// Starts two processes that connect at this address, and waits until frames arrive.
pub(super) fn pair_at(setup: &LinkSetup, endpoint: &str) -> Result<Pair> {
    let [rx, tx] = [Which::Rx, Which::Tx].map(|which| Half::start(setup, which, endpoint));
    let mut pair = Pair { rx: rx?, tx: tx?, _folder: None };
    if slices::moves_frames(&mut pair)? {
        return Ok(pair);
    }
    Err(format!("our link moves no frames: {} {}", pair.rx.tail(), pair.tx.tail()).into())
}

impl End for Pair {
    fn pids(&self) -> Vec<u32> {
        vec![self.rx.pid(), self.tx.pid()]
    }

    fn frames_received(&mut self) -> Result<u64> {
        self.rx.received()
    }
}

/// Creates both ends on this thread. Their lanes are polled alternately, in place of two workers.
fn burst(bytes: usize, qdisc: Option<&str>) -> Result<Burst> {
    // The names distinguish a link with a discipline and one without in one folder.
    let name = if qdisc.is_some() { "queued.sock" } else { "link.sock" };
    let (mut a, mut b, folder) = connect(1, name)?;
    let plan = a.agreement().ok_or("the link of this thread with itself went down")?.plan.clone();
    let stats: [Arc<QueuePairStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let (near, far) = (first(a.open(&plan)?)?, first(b.open(&plan)?)?);
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
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

/// Resources that the lanes of both ends need.
pub(super) struct Both {
    pub(super) a: NtbFunction,
    pub(super) b: NtbFunction,
    /// For each channel, counters of the frame source at one end and of the frame sink at the
    /// other.
    pub(super) outside: Vec<[Arc<QueuePairStats>; 2]>,
    _folder: RunFolder,
}

/// Creates a link with all channels: for each channel the lane into the link and the lane out of
/// it.
pub(super) fn both(bytes: usize, channels: u16, name: &str) -> Result<(Vec<[Lane; 2]>, Both)> {
    let (mut a, mut b, folder) = connect(channels, name)?;
    let plan = a.agreement().ok_or("the link of this thread with itself went down")?.plan.clone();
    let private = traffic::share(usize::from(channels));
    let ends = a.open(&plan)?.into_iter().zip(b.open(&plan)?).enumerate();
    let mut outside = Vec::new();
    let lanes = ends.map(|(channel, (near, far))| -> Result<[Lane; 2]> {
        let stats: [Arc<QueuePairStats>; 2] = [Arc::default(), Arc::default()];
        outside.push(stats.clone());
        let source = traffic::channel(Role::Source(bytes), &stats[0], private);
        let sink = traffic::channel(Role::Sink, &stats[1], private);
        let id = LaneId { set: 0, channel: channel as u16, way: Direction::AToB };
        let (max, counts) = (plan.frame_max, a.stats()[channel].clone());
        let send = Lane::new(id, source.rx, near.tx, max, None, counts)?;
        Ok([send, Lane::new(id, far.rx, sink.tx, max, None, stats[1].clone())?])
    });
    let lanes = lanes.collect::<Result<Vec<[Lane; 2]>>>()?;
    Ok((lanes, Both { a, b, outside, _folder: folder }))
}

/// Polls both lanes once (256 small frames, or as many as fit). Returns the number of sent frames.
pub(super) fn step(send: &mut Lane, receive: &mut Lane) -> usize {
    let sent = send.poll(clock::monotonic).map_or(0, |polled| polled.frames);
    // Ignore errors: if the sink refused a frame, the ring would stay full and later calls would
    // move no frames.
    let _ = receive.poll(clock::monotonic);
    sent
}

pub(super) fn first(channels: Vec<Channel>) -> Result<Channel> {
    Ok(channels.into_iter().next().ok_or("a link without channels")?)
}

/// Creates two ends and completes their handshake.
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
