//! Round trips of bare frames over a link: the processes of both ends, which run the real engine,
//! and the client that starts the measurements.

use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mqnet_engine::{Cpus, IdlePolicy, Link, LinkConfig};
use mqnet_netdev::{
    Armed, Burst, Caps, Channel, Fault, Function, OpenChannelsError, OwningRx, Plan, Queue,
    QueuePairStats, Rx, SyscallTx, Trigger, Tx, WakeSource,
};
use mqnet_shmem::Span;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{clock, poll};
use mqnet_wire::VnetHdr;

use super::super::Result;
use super::super::child::{self, Child, RunFolder};
use super::super::histogram::Histogram;
use super::super::slices;
use super::super::traffic::{Role, Traffic};
use mqnet_daemon::endpoint;

/// Bytes of a ping.
pub(super) const BYTES: usize = 64;
/// Bytes of a frame of the parallel bulk flow.
const BULK: usize = 1514;
/// Time limit of the last response of a measurement.
const LAST: Duration = Duration::from_secs(1);

/// Arguments of the hidden subcommand `bench-ping`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PingArgs {
    /// Send requests; without the option the process responds.
    #[arg(long)]
    asks: bool,
    /// Run a flow of frames in parallel to the pings.
    #[arg(long)]
    loaded: bool,
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    cpu: usize,
    /// Poll window in microseconds.
    #[arg(long)]
    window_us: u64,
}

/// State shared by the two queues of the pings' channel. The same worker polls both queues.
struct State {
    /// Number of frames that wait to be sent.
    due: AtomicU32,
    /// Set while the sending queue is armed.
    armed: AtomicBool,
    event: EventFd,
    /// State of the requesting end; none at the other end.
    asks: Option<Asks>,
}

#[derive(Default)]
struct Asks {
    sent_ns: AtomicU64,
    outstanding: AtomicBool,
    /// True if the next ping follows immediately after a response.
    again: AtomicBool,
    histogram: Mutex<Histogram>,
}

impl State {
    /// Schedules one more frame. Only the worker's thread may call this function.
    fn send_one(&self) {
        self.due.fetch_add(1, Ordering::Relaxed);
        if self.armed.swap(false, Ordering::Relaxed) {
            // `ring` fails only without a descriptor, and `self.event` owns one.
            let _ = self.event.ring();
        }
    }
}

impl Asks {
    fn lock(&self) -> std::sync::MutexGuard<'_, Histogram> {
        self.histogram.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// RX queue that provides the due frames.
struct Sends {
    state: Arc<State>,
    frame: [u8; BYTES],
}

impl Queue for Sends {
    fn arm(&mut self, _need: u32) -> std::result::Result<Armed, Fault> {
        self.state.armed.store(true, Ordering::Relaxed);
        let is_due = self.state.due.load(Ordering::Relaxed) > 0;
        Ok(if is_due { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.state.event.as_fd(), trigger: Trigger::Edge })
    }
}

impl OwningRx for Sends {
    fn peek<'a>(
        &'a mut self,
        burst: &mut Burst<'a>,
        budget: usize,
    ) -> std::result::Result<(), Fault> {
        let due = self.state.due.load(Ordering::Relaxed) as usize;
        for _ in 0..due.min(budget) {
            burst.push(VnetHdr::default(), BYTES as u32, Span::of(&self.frame));
        }
        if let (Some(asks), true) = (&self.state.asks, due > 0) {
            asks.sent_ns.store(now_ns(), Ordering::Relaxed);
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> std::result::Result<(), Fault> {
        self.state.due.fetch_sub(frames as u32, Ordering::Relaxed);
        Ok(())
    }
}

/// TX queue that consumes the received pings.
struct Takes(Arc<State>);

impl Queue for Takes {
    fn arm(&mut self, _need: u32) -> std::result::Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Takes {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> std::result::Result<usize, Fault> {
        let frames = burst.frames().len() - from;
        let state = &self.0;
        match &state.asks {
            None => (0..frames).for_each(|_| state.send_one()),
            Some(asks) if frames > 0 => {
                let took = now_ns() - asks.sent_ns.load(Ordering::Relaxed);
                asks.lock().add(took);
                if asks.again.load(Ordering::Relaxed) {
                    state.send_one();
                } else {
                    asks.outstanding.store(false, Ordering::Relaxed);
                }
            }
            Some(_) => {}
        }
        Ok(frames)
    }
}

fn now_ns() -> u64 {
    clock::monotonic().as_nanos() as u64
}

/// Function with the pings on its first channel and an optional bulk flow on the second.
struct Pings {
    bulk: Traffic,
    state: Arc<State>,
}

impl Function for Pings {
    fn name(&self) -> &str {
        "pings"
    }

    fn caps(&self) -> Caps {
        self.bulk.caps()
    }

    fn open(&mut self, plan: &Plan) -> std::result::Result<Vec<Channel>, OpenChannelsError> {
        let mut channels = self.bulk.open(plan)?;
        if let Some(first) = channels.first_mut() {
            let sends = Sends { state: self.state.clone(), frame: [0x5a; BYTES] };
            first.rx = Rx::Owning(Box::new(sends));
            first.tx = Tx::Syscall(Box::new(Takes(self.state.clone())));
        }
        Ok(channels)
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        self.bulk.stats()
    }
}

/// Runs one end as a process until its standard input is closed.
pub(crate) fn ping(args: &PingArgs) -> Result<()> {
    let window = Duration::from_micros(args.window_us);
    let idle = match args.window_us {
        0 => IdlePolicy { window, spins: 0, polls: 0 },
        _ => IdlePolicy { window, ..IdlePolicy::default() },
    };
    let config = LinkConfig {
        channels: None,
        workers: Some(1),
        cpus: Cpus::List(vec![args.cpu]),
        idle,
        ..LinkConfig::default()
    };
    let state = Arc::new(State {
        due: AtomicU32::new(0),
        armed: AtomicBool::new(false),
        event: EventFd::new()?,
        asks: args.asks.then(Asks::default),
    });
    let role = if args.asks { Role::Source(BULK) } else { Role::Sink };
    let bulk = Traffic::new(role, 1 + u16::from(args.loaded));
    let measured = endpoint::open(mqnet_address::parse(&args.endpoint)?, Vec::new())?.function;
    let asked = state.clone();
    std::thread::spawn(move || answer(&asked));
    let mut link = Link::new(Box::new(Pings { bulk, state }), measured, config)?;
    loop {
        link.turn(clock::monotonic())?;
        let timeout = Duration::from_millis(if link.running().is_some() { 500 } else { 5 });
        poll::wait_readable(&link.events(), timeout)?;
    }
}

/// Measures once for each input line and prints the histogram. A line contains the length in
/// milliseconds, and the pause in microseconds between a response and the next request.
fn answer(state: &State) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        if let (Some(asks), Some(Ok(ms)), Some(Ok(gap_us))) =
            (&state.asks, words.next(), words.next())
        {
            let [length, gap] = [Duration::from_millis(ms), Duration::from_micros(gap_us)];
            println!("done {}", turn(state, asks, length, gap).tell());
        }
        line.clear();
    }
    std::process::exit(0);
}

fn turn(state: &State, asks: &Asks, length: Duration, gap: Duration) -> Histogram {
    *asks.lock() = Histogram::default();
    let end = clock::monotonic() + length;
    asks.again.store(gap.is_zero(), Ordering::Relaxed);
    while clock::monotonic() < end {
        if !asks.outstanding.swap(true, Ordering::Relaxed) {
            state.due.fetch_add(1, Ordering::Relaxed);
            // Signal the event even if the queue is not armed: only the worker's thread knows if
            // the worker sleeps.
            let _ = state.event.ring();
        }
        let left = end.saturating_sub(clock::monotonic());
        poll::pause(if gap.is_zero() { left } else { gap });
    }
    asks.again.store(false, Ordering::Relaxed);
    let late = clock::monotonic() + LAST;
    while asks.outstanding.load(Ordering::Relaxed) && clock::monotonic() < late {
        poll::pause(Duration::from_millis(1));
    }
    asks.lock().clone()
}

/// Processes of both ends; stopped between two measurements.
pub(super) struct Pair {
    asks: Child,
    answers: Child,
}

impl Pair {
    pub(super) fn start(
        cpus: [usize; 2],
        folder: &RunFolder,
        window: Duration,
        loaded: bool,
    ) -> Result<Self> {
        let window = window.as_micros().to_string();
        let socket = folder.path.join(format!("ping-{window}-{loaded}.sock"));
        let endpoint = format!("ntb:{}", socket.display());
        let start = |cpu: usize, asks: bool| -> Result<Child> {
            let cpu = cpu.to_string();
            let words = ["bench-ping", "--endpoint", &endpoint, "--cpu", &cpu, "--window-us"];
            let mut command = child::own(&words)?;
            command.arg(&window);
            command.args(asks.then_some("--asks")).args(loaded.then_some("--loaded"));
            Child::spawn("mqnet bench-ping", command, Stdio::piped())
        };
        let mut pair = Self { answers: start(cpus[1], false)?, asks: start(cpus[0], true)? };
        // The first measurements may start before the link is up.
        for _ in 0..50 {
            if pair.ask(Duration::from_millis(20), Duration::from_millis(1))?.len() > 0 {
                slices::freeze(&pair.pids())?;
                return Ok(pair);
            }
        }
        let (asks, answers) = (pair.asks.tail(), pair.answers.tail());
        Err(format!("no answer comes: {asks} {answers}").into())
    }

    pub(super) fn pids(&self) -> [u32; 2] {
        [self.asks.pid(), self.answers.pid()]
    }

    /// Resumes both ends for one measurement.
    pub(super) fn turn(&mut self, length: Duration, gap: Duration) -> Result<Histogram> {
        slices::thaw(&self.pids())?;
        let histogram = self.ask(length, gap)?;
        slices::freeze(&self.pids())?;
        Ok(histogram)
    }

    fn ask(&mut self, length: Duration, gap: Duration) -> Result<Histogram> {
        ask(&mut self.asks, length, &format!("{} {}", length.as_millis(), gap.as_micros()))
    }
}

/// Sends a line to the process and waits for the histogram.
pub(super) fn ask(child: &mut Child, length: Duration, line: &str) -> Result<Histogram> {
    let mark = child.mark();
    child.say(line)?;
    child.wait_for(mark, length + Duration::from_secs(15), |text| {
        let (answer, _) = text.split_once("done ")?.1.split_once('\n')?;
        Histogram::parse(answer)
    })
}
