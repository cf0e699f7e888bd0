//! Traffic of every kind between two hosts during changes of their link.

use std::time::Duration;

use mqnet_testkit::{
    Figures, Flows, Host, Lane, LinkCounters, LinkProcess, Stream, Tally, Worst, run_command,
};

/// UDP flows in each direction.
const FLOWS: usize = 8;
/// Interval between two datagrams of a flow.
const PACE: Duration = Duration::from_millis(1);

/// Queue length of a device: half a second of all flows. A longer queue would prolong resizes,
/// because a lane that is never idle ends only after that many frames.
const RING: &str = "4000";

/// Guaranteed maximum of the pause around a change, in ms.
const SILENCE_MAX: f64 = 50.0;

/// Title of the reference measurement without any change.
pub(crate) const NO_CHANGE: &str = "no change";

/// Kernel counters of a host, which must not grow or are reported.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    device: LinkCounters,
    socket_full: u64,
    retransmits: u64,
}

impl Kernel {
    fn read((host, device): (&Host, &str)) -> Self {
        Self {
            device: host.counters(device),
            socket_full: host.protocol("UdpRcvbufErrors") + host.protocol("UdpInCsumErrors"),
            retransmits: host.protocol("TcpRetransSegs"),
        }
    }
}

/// Numbered datagrams in both directions, and optionally a TCP stream in each direction.
pub(crate) struct Load<'a> {
    hosts: [(&'a Host, &'a str); 2],
    before: [Kernel; 2],
    flows: [Flows; 2],
    streams: Vec<Stream>,
    worst: Vec<Worst>,
}

impl<'a> Load<'a> {
    /// Starts traffic between the devices `a` (10.0.0.1) and `b` (10.0.0.2); returns when frames
    /// arrive.
    pub(crate) fn start(a: &'a Host, b: &'a Host, tcp: bool) -> Self {
        let hosts = [(a, "a"), (b, "b")];
        for (host, device) in hosts {
            // Lengthen the ring: on a busy machine the default ring overflows during a change. The
            // command fails if the device belongs to another user.
            let words = ["ip", "link", "set", "dev", device, "txqueuelen", RING];
            let _ = run_command(&mut host.command(&words));
        }
        let before = hosts.map(Kernel::read);
        let mut streams = Vec::new();
        if tcp {
            streams.push(Stream::start(a, b, "10.0.0.2"));
            streams.push(Stream::start(b, a, "fd00::1"));
        }
        let flows = [
            Flows::start(a, b, "10.0.0.2", FLOWS, PACE),
            Flows::start(b, a, "10.0.0.1", FLOWS, PACE),
        ];
        let load = Self { hosts, before, flows, streams, worst: Vec::new() };
        load.wait_more(1000);
        load.take_worst();
        load
    }

    fn take_worst(&self) -> [Worst; 2] {
        self.flows.each_ref().map(Flows::take_worst)
    }

    /// Waits until `datagrams` more datagrams have arrived in both directions.
    #[track_caller]
    pub(crate) fn wait_more(&self, datagrams: u64) {
        self.flows.iter().for_each(|flows| flows.wait_more(datagrams));
    }

    /// Runs `what` under traffic, waits until `datagrams` more datagrams have arrived, and records
    /// the worst pause since the start of `what`. Returns the result of `what`.
    #[track_caller]
    pub(crate) fn during<T>(&mut self, datagrams: u64, what: impl FnOnce() -> T) -> T {
        self.take_worst();
        let result = what();
        self.wait_more(datagrams);
        let [a, b] = self.take_worst();
        let (silence, delay) = (a.silence.max(b.silence), a.delay.max(b.delay));
        self.worst.push(Worst { silence, delay });
        result
    }

    /// Ends the traffic and verifies every byte of the streams. Returns the datagram counts of both
    /// directions.
    #[track_caller]
    pub(crate) fn finish(self, title: &str) -> [Tally; 2] {
        let received: u64 = self.streams.iter().map(Stream::received).sum();
        let tallies = self.flows.map(Flows::finish);
        self.streams.into_iter().for_each(|stream| {
            stream.finish();
        });
        let after = self.hosts.map(Kernel::read);
        let of = |pick: fn(&Worst) -> Duration| spread(self.worst.iter().map(pick).collect());
        let (silence, delay) = (of(|w| w.silence), of(|w| w.delay));
        println!("{title}: {} times; datagrams {tallies:?}", self.worst.len());
        println!("{title}: longest silence {silence}; slowest datagram {delay} (min/median/max)");
        for ((host, before), after) in self.hosts.iter().zip(self.before).zip(after) {
            let again = after.retransmits - before.retransmits;
            println!("{title}: {}: {again} TCP segments sent again", host.1);
            assert_eq!(before.socket_full, after.socket_full, "a socket of the test was full");
        }
        println!("{title}: {} MiB of TCP", received >> 20);
        tallies
    }

    /// Ends the traffic like [`finish`](Self::finish), and asserts that nothing was lost,
    /// duplicated, reordered or dropped by a device.
    #[track_caller]
    pub(crate) fn finish_perfect(self, title: &str) {
        let (hosts, before) = (self.hosts, self.before);
        let silences: Vec<f64> =
            self.worst.iter().map(|worst| worst.silence.as_secs_f64() * 1e3).collect();
        let [there, back] = self.finish(title);
        let after = hosts.map(Kernel::read);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.device, after.device, "{title}: a device dropped frames");
        }
        there.assert_perfect(&format!("{title}, there"));
        back.assert_perfect(&format!("{title}, back"));
        keep(title, &silences);
    }
}

/// Stores the pauses of a test without loss, with the verdict whether all are below `SILENCE_MAX`.
/// A long pause does not fail the test.
fn keep(title: &str, silences: &[f64]) {
    let times = silences.len();
    if times == 0 {
        return;
    }
    let longest = silences.iter().copied().fold(0.0, f64::max);
    let mut figures = Figures::of("resize", title);
    if title != NO_CHANGE {
        let words = format!("silence around a change: {title}: {longest:.1} ms ({times} times)");
        figures = figures.verdict(longest <= SILENCE_MAX, &words);
    }
    figures.case(title, "ms", &[("silence around a change", silences)], &[]).keep();
}

/// Smallest, median and largest duration, in milliseconds; `-` without durations.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return "-".to_owned() };
    let ms = |at: usize| times[at].as_secs_f64() * 1e3;
    format!("{:.1}/{:.1}/{:.1} ms", ms(0), ms(last / 2), ms(last))
}

/// Asserts that no counter of an end or of one of its channels ever decreased.
#[track_caller]
pub(crate) fn assert_monotonic(end: &LinkProcess) {
    let lines = end.lines();
    let mut last: Vec<Lane> = Vec::new();
    let mut count = 0;
    for line in lines.iter().filter(|line| line.get("uptime-s").is_some()) {
        let ways = |lanes| ["a-to-b", "b-to-a"].map(|way| Lane::read(lanes, way));
        let channels = line["channels"].as_array().expect("a list of channels");
        let now: Vec<Lane> = [line].into_iter().chain(channels).flat_map(ways).collect();
        assert!(now.len() >= last.len(), "a channel's counters are gone: {line}");
        for (then, now) in last.iter().zip(&now) {
            let numbers = |lane: &Lane| {
                [lane.rx_packets, lane.rx_bytes, lane.tx_packets, lane.tx_bytes, lane.drops]
            };
            let pairs = numbers(then).into_iter().zip(numbers(now));
            assert!(pairs.into_iter().all(|(then, now)| then <= now), "{then:?} > {now:?}");
        }
        last = now;
        count += 1;
    }
    assert!(count > 10, "only {count} status lines");
}
