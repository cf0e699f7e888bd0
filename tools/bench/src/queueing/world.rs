//! Link of two ports on the real engine: senders on one side, a sink on the other.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mqnet_engine::{Cpus, EgressConfig, Full, LinkConfig};
use mqnet_port::{Error, LinkDriver, Packet, PortConfig, PortFunction, Receiver, Sender};
use mqnet_sysio::{clock, poll};
use mqnet_wire::Layer;

use super::frame::{self, Frame, LEN_MAX, Words};
use super::pacer::{Pacer, Speed};
use super::window::Window;
use crate::Result as BenchResult;

/// Frames per queue, about the default of the kernel's TUN.
const DEPTH: u32 = 512;

/// Maximum time that a sink runs ahead of its rate before it sleeps; short, so that its batches
/// stay small.
const BATCH: Duration = Duration::from_micros(50);

/// Longest wait of a sink for a frame before it checks for the end.
const NAP: Duration = Duration::from_millis(2);

/// Time limit for the frames that are in flight at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Parameters of a sender.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) port: u16,
    /// Bytes of the smallest and largest frames.
    pub(super) sizes: (usize, usize),
    /// Maximum number of frames in flight.
    pub(super) window: u64,
    /// True if the sender waits while the queue is full; otherwise it drops the frame and
    /// continues.
    pub(super) waits: bool,
    /// Interval between frames; each then carries its send time. `None`: no pause and no send time.
    pub(super) every: Option<Duration>,
}

/// Parameters of the path between the senders and the sink, and of the measurement.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) qdisc: Option<&'static str>,
    pub(super) full: Full,
    pub(super) speed: Speed,
    pub(super) warm_up: Duration,
    pub(super) slice: Duration,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Received frames per second in the slice.
    pub(super) rate: f64,
    /// Received bytes of each flow in the slice.
    pub(super) bytes: Vec<u64>,
    /// Delays of the time-stamped frames in the slice, in nanoseconds.
    pub(super) delays: Vec<u64>,
    /// Accepted frames that had not arrived at the end.
    pub(super) lost: u64,
    /// Frames that a full queue refused with an error to the sender.
    pub(super) refused: u64,
    /// Drop counters of the engine for the path to the sink.
    pub(super) drops: Vec<(&'static str, u64)>,
}

struct Shared<'a> {
    flows: &'a [Flow],
    windows: Vec<Window>,
    stop: AtomicBool,
    measuring: AtomicBool,
    /// True after the measurement: the sink then takes all frames without a rate limit.
    draining: AtomicBool,
    over: AtomicBool,
}

fn port(name: &str) -> BenchResult<(PortFunction, Sender, Receiver)> {
    let config = PortConfig {
        name: name.to_owned(),
        channels: 1,
        layer: Layer::Ip,
        mtu: LEN_MAX as u32,
        mtu_max: LEN_MAX as u32,
        depth: DEPTH,
    };
    let (port, ends) = PortFunction::open(config)?;
    let (receiver, sender) = ends.into_iter().next().ok_or("a port without channels")?;
    Ok((port, sender, receiver))
}

/// Runs the flows for the times of `setup` and returns the results.
pub(super) fn run(setup: &Setup, flows: &[Flow]) -> BenchResult<Outcome> {
    let (feed, sender, _deaf) = port("feed")?;
    let (sink, _mute, receiver) = port("sink")?;
    let egress =
        EgressConfig { qdisc: setup.qdisc.map(str::to_owned), full: setup.full, learn: false };
    let config = LinkConfig {
        cpus: Cpus::Float,
        egress: [EgressConfig::default(), egress],
        ..LinkConfig::default()
    };
    let driver = LinkDriver::start(Box::new(feed), sink, config)?;
    let shared = Shared {
        flows,
        windows: flows.iter().map(|_| Window::default()).collect(),
        stop: AtomicBool::new(false),
        measuring: AtomicBool::new(false),
        draining: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        let consumer = scope.spawn(move || shared.consume(receiver, setup.speed));
        let (gone, all_gone) = mpsc::channel::<()>();
        for number in 0..flows.len() {
            let (sender, gone) = (sender.clone(), gone.clone());
            scope.spawn(move || {
                shared.send(number, sender);
                drop(gone);
            });
        }
        drop(gone);
        let mut outcome = shared.measure(setup);
        // A sender may be blocked by a full queue, which the sink then drains.
        shared.draining.store(true, Ordering::Relaxed);
        let _ = all_gone.recv_timeout(DRAIN);
        shared.settle(&driver, &mut outcome);
        shared.over.store(true, Ordering::Relaxed);
        // The end of the link releases threads that still wait.
        drop(driver);
        outcome.delays = consumer.join().map_err(|_| "the sink's thread failed")??;
        Ok(outcome)
    })
}

impl Shared<'_> {
    fn total(&self, what: fn(&Window) -> u64) -> u64 {
        self.windows.iter().map(what).sum()
    }

    fn send(&self, number: usize, mut sender: Sender) {
        let (flow, window) = (&self.flows[number], &self.windows[number]);
        window.begin();
        let mut frame = Frame::new(flow.port);
        let (mut seq, mut forgiven) = (0u64, 0);
        let mut next = clock::monotonic();
        let (least, span) = (flow.sizes.0, flow.sizes.1 - flow.sizes.0 + 1);
        while !self.stop.load(Ordering::Relaxed) {
            if flow.window != u64::MAX {
                window.wait(&mut forgiven, flow.window, &self.stop);
            }
            let mut at = 0;
            if let Some(every) = flow.every {
                next += every;
                poll::pause(next.saturating_sub(clock::monotonic()));
                at = clock::monotonic().as_nanos() as u64;
            }
            let len = least + (seq as usize * 37) % span;
            let bytes = frame.fill(len, Words { flow: number as u32, seq, at });
            let result = if flow.waits { sender.send(bytes) } else { sender.try_send(bytes) };
            match result {
                Ok(()) => {
                    seq += 1;
                    window.note_sent();
                }
                Err(Error::Full) => window.note_refused(),
                Err(_) => return,
            }
        }
    }

    /// Receives frames until the end; returns the delays of the time-stamped frames.
    fn consume(&self, mut receiver: Receiver, speed: Speed) -> Result<Vec<u64>, String> {
        let (mut pacer, mut delays) = (Pacer::new(speed), Vec::new());
        loop {
            match receiver.try_recv() {
                Ok(Some(packet)) => {
                    self.deliver(packet, &mut pacer, &mut delays)?;
                    continue;
                }
                Err(Error::Closed) => return Ok(delays),
                other => drop(other.map_err(|e| e.to_string())?),
            }
            if self.over.load(Ordering::Relaxed) {
                return Ok(delays);
            }
            poll::wait_readable(&[receiver.as_fd()], NAP).map_err(|e| e.to_string())?;
        }
    }

    fn deliver(
        &self,
        packet: Packet<'_>,
        pacer: &mut Pacer,
        delays: &mut Vec<u64>,
    ) -> Result<(), String> {
        let len = packet.len();
        if pacer.is_slow() && !self.draining.load(Ordering::Relaxed) {
            let now = clock::monotonic();
            let ahead = pacer.take(len, now).saturating_sub(now);
            if ahead > BATCH {
                poll::pause(ahead);
            }
        }
        let words = frame::read(&packet).ok_or("a frame that nobody sent")?;
        // The buffer is released after the service time, as by a device that sends the frame.
        drop(packet);
        let number = words.flow as usize;
        let flow = self.flows.get(number).ok_or("a frame of a flow that is none")?;
        self.windows[number].note_received(words.seq, len, flow.window);
        if words.at != 0 && self.measuring.load(Ordering::Relaxed) {
            delays.push((clock::monotonic().as_nanos() as u64).saturating_sub(words.at));
        }
        Ok(())
    }

    /// Counts frames and bytes in the slice after the warm-up.
    fn measure(&self, setup: &Setup) -> Outcome {
        poll::pause(setup.warm_up);
        let bytes = || self.windows.iter().map(Window::bytes).collect::<Vec<_>>();
        let (before, frames, start) = (bytes(), self.total(Window::frames), Instant::now());
        self.measuring.store(true, Ordering::Relaxed);
        poll::pause(setup.slice);
        self.measuring.store(false, Ordering::Relaxed);
        let (after, seconds) = (bytes(), start.elapsed().as_secs_f64());
        let frames = self.total(Window::frames) - frames;
        self.stop.store(true, Ordering::Relaxed);
        let bytes = after.iter().zip(before).map(|(after, before)| after - before).collect();
        Outcome { rate: frames as f64 / seconds, bytes, ..Outcome::default() }
    }

    /// Waits until every accepted frame has arrived or was counted as dropped, for at most
    /// [`DRAIN`].
    fn settle(&self, driver: &LinkDriver, outcome: &mut Outcome) {
        let begin = Instant::now();
        loop {
            let way = driver.stats().to_program;
            let (sent, frames) = (self.total(Window::sent), self.total(Window::frames));
            outcome.lost = sent - frames.min(sent);
            outcome.refused = self.total(Window::refused);
            let settled = sent == frames + way.dropped();
            outcome.drops = way.drops;
            if settled || begin.elapsed() > DRAIN {
                return;
            }
            poll::pause(Duration::from_micros(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16, window: u64, waits: bool) -> Flow {
        Flow { port, sizes: (64, 200), window, waits, every: None }
    }

    fn setup(qdisc: Option<&'static str>, full: Full) -> Setup {
        let (warm_up, slice) = (Duration::ZERO, Duration::from_millis(200));
        Setup { qdisc, full, speed: Speed::Frames(50e3), warm_up, slice }
    }

    // Goal: with backpressure, by the queue or by a discipline, every accepted frame arrives.
    #[test]
    fn backpressure_loses_nothing() {
        let blocking = [flow(1, u64::MAX, true), flow(2, u64::MAX, true)];
        let outcome = run(&setup(None, Full::Stop), &blocking).unwrap();
        assert!(outcome.rate > 0.0 && outcome.lost == 0, "{outcome:?}");
        let limited = [flow(1, 128, true), flow(2, 128, true)];
        let outcome = run(&setup(Some("fq_codel"), Full::Stop), &limited).unwrap();
        assert!(outcome.rate > 0.0 && outcome.lost == 0, "{outcome:?}");
        assert!(outcome.bytes.iter().all(|&bytes| bytes > 0), "{outcome:?}");
    }

    // Goal: tail drop loses the excess frames, and each lost frame has a drop reason.
    #[test]
    fn tail_drop_is_counted() {
        let careless = [flow(1, u64::MAX, false)];
        let outcome = run(&setup(None, Full::Drop), &careless).unwrap();
        let dropped: u64 = outcome.drops.iter().map(|(_, n)| n).sum();
        assert!(outcome.lost > 0 && outcome.lost == dropped, "{outcome:?}");
    }

    // Goal: a time-stamped frame has a positive delay, also through a discipline.
    #[test]
    fn pings_are_timed() {
        let every = Some(Duration::from_millis(5));
        let ping = Flow { every, ..flow(7, u64::MAX, true) };
        let outcome = run(&setup(Some("pfifo"), Full::Stop), &[ping]).unwrap();
        assert!(!outcome.delays.is_empty() && outcome.lost == 0, "{outcome:?}");
        assert!(outcome.delays.iter().all(|&ns| ns > 0), "{outcome:?}");
    }
}
