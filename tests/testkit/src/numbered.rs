//! Many UDP flows of numbered datagrams at a moderate pace; each datagram is accounted for.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqnet_traffic::Tracker;

use crate::host::Host;
use crate::socket::roomy;
use crate::wait::until;

/// Bytes of the header of a datagram: number, send time and flow.
const HEAD: usize = 24;

/// Maximum delay of a round of datagrams. A sender with a longer delay skips the missed rounds,
/// because a burst of them would test rings instead of order.
const CATCH_UP: Duration = Duration::from_millis(20);

/// Maximum wait for the first datagram.
const MEETING: Duration = Duration::from_secs(1);

/// Number of late datagrams that are reported one by one.
const LATE_TOLD: u64 = 8;

/// Counts of the datagrams of all flows in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams accepted by the sender's stack.
    pub sent: u64,
    /// Datagrams received, each counted once.
    pub received: u64,
    /// Additional copies of datagrams received.
    pub doubled: u64,
    /// Datagrams received after a datagram of the same flow with a higher number.
    pub reordered: u64,
    /// Datagrams received with changed content.
    pub wrong: u64,
}

impl Tally {
    /// Number of datagrams that never arrived.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }

    /// Asserts that every datagram arrived once, unchanged, and in the order of its flow.
    #[track_caller]
    pub fn assert_perfect(&self, which: &str) {
        let perfect = Self { sent: self.sent, received: self.sent, ..Self::default() };
        assert_eq!(*self, perfect, "{which}: left all, right what should be");
        assert!(self.sent > 0, "{which}: nothing was sent");
    }
}

/// Longest silence and longest delay of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// Longest time without a datagram of any flow.
    pub silence: Duration,
    /// Longest time from the send of a datagram to its receipt.
    pub delay: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    sent: AtomicU64,
    received: AtomicU64,
    silence_ns: AtomicU64,
    delay_ns: AtomicU64,
    stop: AtomicBool,
    deaf: AtomicBool,
}

/// Flows in one direction.
#[derive(Debug)]
pub struct Flows {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<Tally>>,
}

impl Flows {
    /// Starts `flows` flows from host `from` to `address` of host `to`, each with one datagram
    /// every `pace`. Datagrams have 64 to 1400 bytes.
    #[track_caller]
    pub fn start(from: &Host, to: &Host, address: &str, flows: usize, pace: Duration) -> Self {
        let ip = address.parse().expect("an IP address");
        let inbound = roomy(to, ip);
        let meeting = inbound.local_addr().expect("the address of a socket");
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = |_| {
            let socket = from.within(|| UdpSocket::bind(any)).expect("a UDP socket");
            socket.connect(meeting).expect("a UDP destination");
            socket
        };
        let outbound: Vec<UdpSocket> = (0..flows).map(socket).collect();
        let shared = Arc::new(Shared::default());
        let begin = Instant::now();
        let (ours, theirs) = (shared.clone(), shared.clone());
        let sender = std::thread::spawn(move || send(&outbound, pace, begin, &ours));
        let receiver = std::thread::spawn(move || receive(&inbound, flows, begin, &theirs));
        Self { shared, sender: Some(sender), receiver: Some(receiver) }
    }

    /// Number of datagrams received so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Waits until `datagrams` more datagrams are received.
    #[track_caller]
    pub fn wait_more(&self, datagrams: u64) {
        let goal = self.received() + datagrams;
        until("datagrams come", || (self.received() >= goal).then_some(()));
    }

    /// Worst times since the last call, or since the start of the flows.
    pub fn take_worst(&self) -> Worst {
        let take = |ns: &AtomicU64| Duration::from_nanos(ns.swap(0, Ordering::Relaxed));
        Worst { silence: take(&self.shared.silence_ns), delay: take(&self.shared.delay_ns) }
    }

    /// Stops the sender. Datagrams in flight are still received.
    pub fn stop_sending(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            sender.join().expect("a sender that did not panic");
        }
    }

    /// Stops sending, waits until no more datagrams arrive, and returns the counts.
    #[track_caller]
    pub fn finish(mut self) -> Tally {
        self.stop_sending();
        let sent = self.shared.sent.load(Ordering::Relaxed);
        let (mut last, mut quiet) = (self.received(), 0);
        until("no datagrams come any more", || {
            let now = self.received();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            // Wait even if all datagrams have arrived, because a duplicate may follow.
            (quiet > if now == sent { 20 } else { 400 }).then_some(())
        });
        self.shared.deaf.store(true, Ordering::Relaxed);
        let tally = self.receiver.take().expect("a receiver").join();
        Tally { sent, ..tally.expect("a receiver that did not panic") }
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.deaf.store(true, Ordering::Relaxed);
        let _ = self.sender.take().map(JoinHandle::join);
        let _ = self.receiver.take().map(JoinHandle::join);
    }
}

/// Length of a datagram: depends on flow and number, and fits the MTU of every link.
fn length(flow: usize, number: u64) -> usize {
    64 + (flow * 167 + (number as usize) * 61) % 1337
}

/// Writes a datagram into `out`.
fn compose(out: &mut [u8], flow: usize, number: u64, time_ns: u64) {
    out.fill(number as u8 ^ flow as u8);
    for (at, word) in [number, time_ns, flow as u64].into_iter().enumerate() {
        out[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
}

fn send(sockets: &[UdpSocket], pace: Duration, begin: Instant, shared: &Shared) {
    let mut buffer = [0; 2048];
    let mut numbers = vec![0u64; sockets.len()];
    let mut due = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        for (flow, socket) in sockets.iter().enumerate() {
            let number = numbers[flow];
            let out = &mut buffer[..length(flow, number)];
            compose(out, flow, number, begin.elapsed().as_nanos() as u64);
            // A rejected datagram was not sent, so the next datagram of the flow has the same
            // number.
            if socket.send(out).is_ok() {
                numbers[flow] += 1;
                shared.sent.fetch_add(1, Ordering::Relaxed);
            }
            if (flow, number) == (0, 0) {
                meet(&shared.received);
                due = Instant::now();
            }
        }
        due += pace;
        let now = Instant::now();
        if due + CATCH_UP < now {
            due = now;
        }
        std::thread::sleep(due.saturating_duration_since(now));
    }
}

/// Waits for the first datagram, up to a limit. Without this wait, datagrams sent just after the
/// reply of ARP or NDP would overtake those that the kernel queued before the reply.
pub(crate) fn meet(received: &AtomicU64) {
    let end = Instant::now() + MEETING;
    while received.load(Ordering::Relaxed) == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn receive(socket: &UdpSocket, flows: usize, begin: Instant, shared: &Shared) -> Tally {
    let (mut buffer, mut good) = ([0; 2048], [0; 2048]);
    let mut trackers: Vec<Tracker> = (0..flows).map(|_| Tracker::default()).collect();
    let (mut late, mut wrong, mut received) = (0, 0, 0);
    let mut last: Option<u64> = None;
    while !shared.deaf.load(Ordering::Relaxed) {
        let Ok(n) = socket.recv(&mut buffer) else { continue };
        let now = begin.elapsed().as_nanos() as u64;
        let got = &buffer[..n];
        let word = |at: usize| {
            let bytes = got.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(u64::MAX, u64::from_le_bytes)
        };
        let (number, time, flow) = (word(0), word(1), word(2) as usize);
        if n < HEAD || flow >= flows || number >> 32 != 0 || n != length(flow, number) {
            wrong += 1;
            continue;
        }
        compose(&mut good[..n], flow, number, time);
        let (before, next) = (trackers[flow].tally(), trackers[flow].next());
        trackers[flow].note(number, n as u64, got == &good[..n]);
        let tally = trackers[flow].tally();
        if tally.reordered > before.reordered && late < LATE_TOLD {
            late += 1;
            let [now, took] = [now, now.saturating_sub(time)].map(Duration::from_nanos);
            println!("at {now:.3?}: flow {flow}: {number}, expected {next}, {took:.3?} under way");
        }
        received += tally.received - before.received;
        shared.received.store(received, Ordering::Relaxed);
        shared.delay_ns.fetch_max(now.saturating_sub(time), Ordering::Relaxed);
        shared.silence_ns.fetch_max(now - last.unwrap_or(now), Ordering::Relaxed);
        last = Some(now);
    }
    let mut sum = mqnet_traffic::Tally::default();
    trackers.iter().for_each(|tracker| sum.add(&tracker.tally()));
    Tally {
        sent: 0,
        received: sum.received,
        doubled: sum.duplicated,
        reordered: sum.reordered,
        wrong: wrong + sum.corrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: only a tally with every datagram received once and in order passes.
    #[test]
    fn only_perfect_tallies_pass() {
        let good = Tally { sent: 5, received: 5, ..Tally::default() };
        good.assert_perfect("good");
        for bad in [
            Tally { received: 4, ..good },
            Tally { doubled: 1, ..good },
            Tally { reordered: 1, ..good },
            Tally { wrong: 1, ..good },
            Tally::default(),
        ] {
            assert!(std::panic::catch_unwind(|| bad.assert_perfect("bad")).is_err(), "{bad:?}");
        }
    }

    // Goal: datagrams are at least as long as their header and have at most 1400 bytes.
    #[test]
    fn lengths_are_in_range() {
        for (flow, number) in (0..16).flat_map(|flow| (0..2000).map(move |n| (flow, n))) {
            assert!((HEAD..=1400).contains(&length(flow, number)));
        }
    }
}
