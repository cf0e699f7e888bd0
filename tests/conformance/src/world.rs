//! Two engines that are joined by a bridge. Each engine has a simulated host, which sends numbered
//! frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqnet_engine::{EgressConfig, Link, LinkConfig, LinkSettings, Notice};
use mqnet_netdev::stats::equation;
use mqnet_netdev::{DropReason, LaneSums};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::{clock, poll};

use crate::flows::Flows;
use crate::rigs::Folder;

/// Maximum number of frames in flight in one direction.
const WINDOW: u64 = 20_000;

/// Link of one engine, its host, and the log of the link.
pub struct End {
    pub link: Link,
    pub flows: Flows,
    pub log: Vec<String>,
}

impl End {
    fn new(folder: &Folder, seed: u64, swap: bool, attached: Option<&str>) -> Self {
        let flows = Flows::new();
        let path = folder.0.join("x.sock");
        let config = NtbConfig { path, window: 4 << 20, mtu: None };
        let ntb = Box::new(NtbFunction::memfd(&config, seed));
        let host = Box::new(flows.clone());
        let attached = EgressConfig { qdisc: attached.map(str::to_owned), ..Default::default() };
        let egress = [attached.clone(), attached];
        let config = LinkConfig { workers: Some(1), egress, ..LinkConfig::default() };
        // Swap the functions in some runs: no result may depend on their order.
        let link = match swap {
            false => Link::new(host, ntb, config),
            true => Link::new(ntb, host, config),
        };
        Self { link: link.expect("a link"), flows, log: Vec::new() }
    }

    pub fn turn(&mut self) {
        match self.link.turn(clock::monotonic()).expect("workers answer") {
            Some(Notice::Down(why)) => self.log.push(format!("down: {why}")),
            Some(notice) => self.log.push(format!("{notice:?}")),
            None => {}
        }
    }

    pub fn channels(&self) -> u16 {
        self.link.running().map_or(0, |r| r.plan.channels)
    }
}

/// Two ends and the threads that send frames.
pub struct World {
    pub ends: [End; 2],
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    _folder: Folder,
}

impl World {
    pub fn new(seed: u64, attached: Option<&str>) -> Self {
        let mut world = Self::quiet(seed, attached);
        let stop = world.stop.clone();
        let [a, b] = world.ends.each_ref().map(|end| end.flows.clone());
        let senders = [(a.clone(), b.clone()), (b, a)];
        let senders = senders.map(|(from, to)| sender(from, to, stop.clone()));
        world.senders = senders.into();
        world
    }

    /// Creates two ends without sender threads, and waits until they are up.
    pub fn quiet(seed: u64, attached: Option<&str>) -> Self {
        let folder = Folder::new();
        let a = End::new(&folder, seed, false, attached);
        let b = End::new(&folder, seed ^ 0xabcd, seed % 2 == 1, attached);
        let stop = Arc::new(AtomicBool::new(false));
        let mut world = Self { ends: [a, b], stop, senders: Vec::new(), _folder: folder };
        world.until("both ends are up", |w| w.ends.iter().all(|e| e.channels() > 0));
        world
    }

    pub fn turn(&mut self) {
        let timeout = self.ends.iter().map(|e| e.link.patience()).min().expect("two");
        // Limit the wait, because the caller's condition may become true without an event of a
        // link.
        let timeout = timeout.min(Duration::from_millis(2));
        let fds: Vec<_> = self.ends.iter().flat_map(|e| e.link.events()).collect();
        poll::wait_readable(&fds, timeout).expect("poll");
        self.ends.iter_mut().for_each(End::turn);
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.logs());
            self.turn();
        }
    }

    /// One text per end, function and drop reason with a number of dropped frames above zero.
    fn drops(&self) -> Vec<String> {
        let mut list = Vec::new();
        for (end, side, reason) in (0..2)
            .flat_map(|end| (0..2).map(move |side| (end, side)))
            .flat_map(|(end, side)| DropReason::ALL.map(|reason| (end, side, reason)))
        {
            let stats = self.ends[end].link.stats()[side];
            let n: u64 =
                stats.iter().map(|s| s.tx.drops.get(reason) + s.rx.drops.get(reason)).sum();
            if n > 0 {
                list.push(format!("end {end} function {side} {}: {n}", reason.name()));
            }
        }
        list
    }

    pub fn logs(&self) -> [&[String]; 2] {
        [&self.ends[0].log, &self.ends[1].log]
    }

    /// Requests a change at the end `side` and waits for the answer.
    pub fn ask(&mut self, side: usize, settings: LinkSettings) -> Result<Option<String>, String> {
        if let Err(e) = self.ends[side].link.request(settings, clock::monotonic()) {
            return Err(e.to_string());
        }
        let begin = Instant::now();
        loop {
            if let Some(answer) = self.ends[side].link.answer() {
                return answer.map_err(|e| e.to_string());
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "no answer: {:?}", self.logs());
            self.turn();
        }
    }

    pub fn resize(&mut self, side: usize, channels: u16) -> Result<Option<String>, String> {
        let settings =
            LinkSettings { channels: Some(channels), ..self.ends[side].link.settings().clone() };
        self.ask(side, settings)
    }

    /// Waits until both ends have the same number of channels and neither end has a change in
    /// progress.
    pub fn settle(&mut self) {
        self.until("both ends agree", |w| {
            let [a, b] = &w.ends;
            a.channels() == b.channels() && !a.link.is_changing() && !b.link.is_changing()
        });
    }

    /// Removes missing frames from the senders' windows, so that the senders continue after a loss.
    pub fn forgive(&mut self) {
        let [a, b] = self.ends.each_ref().map(|end| end.flows.clone());
        for (from, to) in [(&a, &b), (&b, &a)] {
            let arrived = to.state().received;
            from.state().sent = arrived;
        }
    }

    /// Stops the senders, waits until no frame is in flight, and asserts the conservation check of
    /// every direction.
    pub fn assert_conserved(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for sender in self.senders.drain(..) {
            sender.join().expect("a sender");
        }
        let broken = |w: &Self| {
            let mut broken = Vec::new();
            for (number, end) in w.ends.iter().enumerate() {
                let stats = end.link.stats();
                for (from, to) in [(0, 1), (1, 0)] {
                    let mut sums = LaneSums::default();
                    stats[from].iter().zip(stats[to]).for_each(|(from, to)| sums.add(from, to));
                    if sums.in_flight() != 0 {
                        let in_flight = sums.in_flight();
                        broken.push((number, from, equation(&sums, sums.drops(), in_flight)));
                    }
                }
            }
            broken
        };
        let begin = Instant::now();
        while !broken(&self).is_empty() {
            let late = begin.elapsed() > Duration::from_secs(20);
            assert!(!late, "end, from, check: {:?}: {:?}", broken(&self), self.logs());
            self.turn();
        }
    }

    /// Stops the senders and asserts that every frame has arrived, once and in order. Returns the
    /// number of frames.
    pub fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for sender in self.senders.drain(..) {
            sender.join().expect("a sender");
        }
        let begin = Instant::now();
        loop {
            let counts = self.ends.each_ref().map(|end| {
                let state = end.flows.state();
                (state.sent, state.received)
            });
            let [(a_sent, a_received), (b_sent, b_received)] = counts;
            if a_sent == b_received && b_sent == a_received {
                break;
            }
            let late = begin.elapsed() > Duration::from_secs(20);
            assert!(!late, "sent and received: {counts:?}: {:?} {:?}", self.drops(), self.logs());
            self.turn();
        }
        let states = [self.ends[0].flows.state(), self.ends[1].flows.state()];
        for state in &states {
            assert!(state.wrong.is_empty(), "{:?}: {:?}", state.wrong, self.logs());
        }
        for log in self.logs() {
            // The link may be down only before the first handshake.
            let up = log.iter().position(|line| line.starts_with("Up"));
            let after = &log[up.expect("it was up")..];
            assert!(!after.iter().any(|line| line.starts_with("down:")), "{log:?}");
        }
        states.iter().map(|s| s.received).sum()
    }
}

/// Starts a thread that sends frames of 40 flows in random order until `stop` is set.
pub fn sender(flows: Flows, to: Flows, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut x = 88172645463325252u64;
        while !stop.load(Ordering::Relaxed) {
            // Like flow control: send no frames while a full window is in flight.
            let arrived = to.state().received;
            let on_its_way = flows.state().sent.saturating_sub(arrived);
            for _ in 0..if on_its_way < WINDOW { 20 } else { 0 } {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                flows.send((x >> 40) as u32 % 40);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    })
}

pub fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 8
}
