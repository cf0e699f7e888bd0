//! State of the two hosts, computed from their events.

use std::collections::BTreeMap;

use mqnet_daemon::status::DirectionSums;
use mqnet_traffic::Tally;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::protocol::{Event, KernelCounters, StreamReport};

/// Sums of both directions: from the TAP into the bridge, and from the bridge to the TAP.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Lanes {
    pub(super) a_to_b: DirectionSums,
    pub(super) b_to_a: DirectionSums,
}

/// Counters of a link's process, by channel and in total.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counters {
    pub(super) channels: Vec<Lanes>,
    #[serde(flatten)]
    pub(super) sums: Lanes,
}

impl Counters {
    /// Frames dropped by the link, and frames that a lost peer had not taken.
    pub(super) fn given_up(&self) -> u64 {
        let of = |lane: &DirectionSums| lane.tx_lost + lane.dropped();
        of(&self.sums.a_to_b) + of(&self.sums.b_to_a)
    }
}

/// One `mqnet link` process, from start to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) started: u64,
    /// Times at which the link came up.
    pub(super) ups: Vec<u64>,
    /// Times at which the link went down, with reasons.
    pub(super) downs: Vec<(u64, String)>,
    /// Counters of the link over time.
    pub(super) samples: Vec<(u64, Counters)>,
    /// Final counters, if the process ended normally.
    pub(super) end: Option<Counters>,
    pub(super) killed: Option<u64>,
    /// Exit status, if the process ended normally.
    pub(super) status: Option<String>,
}

impl Life {
    /// Last known counters; none before the first sample.
    pub(super) fn last(&self) -> Option<&Counters> {
        self.end.as_ref().or(self.samples.last().map(|s| &s.1))
    }

    fn line(&mut self, at: u64, line: &Value) {
        let counters = || serde_json::from_value(line.clone()).ok();
        let text = || line["text"].as_str().unwrap_or_default().to_owned();
        match line["event"].as_str() {
            Some("up") => self.ups.push(at),
            Some("down") => self.downs.push((at, text())),
            Some("end") => self.end = counters(),
            _ => self.samples.extend(counters().map(|c| (at, c))),
        }
    }
}

/// One run of datagrams: those sent by a host, and those received from the other host.
#[derive(Clone, Debug, Default)]
pub(super) struct UdpRun {
    pub(super) sent: Option<Vec<u64>>,
    pub(super) refused: u64,
    pub(super) nanos: u64,
    /// Statistics of the other side's datagrams, and the kernel's counters at that time.
    pub(super) report: Option<(Vec<Tally>, KernelCounters)>,
}

impl UdpRun {
    pub(super) fn sent(&self) -> u64 {
        self.sent.iter().flatten().sum()
    }

    pub(super) fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.report.iter().flat_map(|r| &r.0).for_each(|t| sum.add(t));
        sum
    }

    pub(super) fn kernel(&self) -> KernelCounters {
        self.report.as_ref().map(|r| r.1).unwrap_or_default()
    }
}

/// Amounts received until one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) at: u64,
    pub(super) tcp: Vec<u64>,
    pub(super) udp: u64,
}

impl Received {
    pub(super) fn tcp_sum(&self) -> u64 {
        self.tcp.iter().sum()
    }
}

/// State of one host.
#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) ready: bool,
    pub(super) sockets: bool,
    pub(super) lives: Vec<Life>,
    pub(super) streams: u32,
    pub(super) received: Vec<Received>,
    pub(super) tcp_done: Option<Vec<StreamReport>>,
    pub(super) udp: BTreeMap<u32, UdpRun>,
}

impl HostState {
    /// Processes an event of the host. An error means that the demo cannot continue.
    pub(super) fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Ready => self.ready = true,
            Event::Sockets => self.sockets = true,
            Event::LinkStarted { at } => self.lives.push(Life { started: at, ..Life::default() }),
            Event::LinkLine { life, at, line } => {
                if let Some(life) = self.lives.get_mut(life) {
                    life.line(at, &line);
                }
            }
            Event::LinkKilled { at } => {
                if let Some(life) = self.lives.last_mut() {
                    life.killed = Some(at);
                }
            }
            Event::LinkSilent { life, words } => {
                let ended = self.lives.get(life).is_none_or(|l| l.end.is_none());
                let alive = self.lives.get(life).is_none_or(|l| l.killed.is_none());
                if ended && alive {
                    return Err(format!("mqnet link ended unexpectedly: {words}"));
                }
            }
            Event::LinkEnded { life, status } => {
                if let Some(life) = self.lives.get_mut(life) {
                    life.status = Some(status);
                }
            }
            Event::Connected { streams } => self.streams = streams,
            Event::Progress { at, tcp, udp } => self.received.push(Received { at, tcp, udp }),
            Event::TcpDone { streams } => self.tcp_done = Some(streams),
            Event::UdpSent { run, sent, refused, nanos } => {
                let entry = self.udp.entry(run).or_default();
                entry.sent = Some(sent);
                entry.refused = refused;
                entry.nanos = nanos;
            }
            Event::UdpReport { run, flows, kernel } => {
                self.udp.entry(run).or_default().report = Some((flows, kernel));
            }
            Event::Broken { what } => return Err(what),
        }
        Ok(())
    }

    /// Latest reported amounts; zero before the first report.
    pub(super) fn now(&self) -> Received {
        self.received.last().cloned().unwrap_or_default()
    }

    /// TCP bytes received per second between two times; 0 with fewer than two reports in this
    /// range.
    pub(super) fn tcp_rate(&self, from: u64, to: u64) -> f64 {
        let mut inside = self.received.iter().filter(|r| (from..=to).contains(&r.at));
        let (Some(first), Some(last)) = (inside.next(), inside.next_back()) else { return 0.0 };
        let bytes = last.tcp_sum().saturating_sub(first.tcp_sum());
        bytes as f64 * 1e9 / (last.at - first.at).max(1) as f64
    }

    pub(super) fn udp_run(&self, run: u32) -> UdpRun {
        self.udp.get(&run).cloned().unwrap_or_default()
    }

    /// Last counters of the latest link process.
    pub(super) fn link(&self) -> Option<&Counters> {
        self.lives.last().and_then(Life::last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(packets: u64) -> Value {
        let lane = json!({ "rx-packets": packets, "rx-bytes": 1, "tx-packets": 1, "tx-bytes": 1,
            "drops": { "too-long": 2 }, "tx-lost": 3, "in-flight": -1, "tx-stop": 0,
            "tx-wake": 0, "stopped-ns": 0, "kicks": 0, "copies": 0,
            "segments": 0, "merged": 0 });
        json!({ "uptime-s": 1.0, "link": "up", "a-to-b": lane, "b-to-a": lane,
            "channels": [{ "a-to-b": lane, "b-to-a": lane }] })
    }

    // Goal: the lines of a link become times, samples and final counters; unknown lines are no
    // error.
    #[test]
    fn a_life_is_read() {
        let mut host = HostState::default();
        let say = |host: &mut HostState, at, line| {
            host.take(Event::LinkLine { life: 0, at, line }).unwrap();
        };
        host.take(Event::LinkStarted { at: 5 }).unwrap();
        say(&mut host, 6, json!({ "event": "up", "text": "x" }));
        say(&mut host, 7, line(4));
        say(&mut host, 8, json!({ "event": "down", "text": "gone" }));
        let mut end = line(9);
        end["event"] = "end".into();
        say(&mut host, 9, end);
        let life = &host.lives[0];
        assert_eq!((life.started, &life.ups[..], life.samples.len()), (5, &[6][..], 1));
        assert_eq!(life.downs, [(8, "gone".to_owned())]);
        assert_eq!(life.last().map(|c| c.sums.a_to_b.rx_packets), Some(9));
        assert_eq!(life.last().map(Counters::given_up), Some(10));
    }

    // Goal: a link that ends without an order ends the demo, and the error contains the last lines
    // of its output.
    #[test]
    fn an_unexpected_end_is_noticed() {
        let silent = |life| Event::LinkSilent { life, words: "no room".into() };
        let mut host = HostState::default();
        host.take(Event::LinkStarted { at: 5 }).unwrap();
        assert!(host.take(silent(0)).unwrap_err().contains("no room"));
        host.take(Event::LinkKilled { at: 6 }).unwrap();
        assert_eq!(host.take(silent(0)), Ok(()));
    }

    // Goal: a rate covers the bytes between two times only.
    #[test]
    fn rates_are_of_the_window() {
        let mut host = HostState::default();
        for (at, bytes) in [(0, 0), (1, 100), (2, 200), (3, 400), (4, 9000)] {
            let at = at * 1_000_000_000;
            host.take(Event::Progress { at, tcp: vec![bytes], udp: 0 }).unwrap();
        }
        assert!((host.tcp_rate(1_000_000_000, 3_000_000_000) - 150.0).abs() < 1e-9);
        assert!(host.tcp_rate(5_000_000_000, 6_000_000_000).abs() < 1e-9);
    }
}
