//! TCP through a tunnel over a path with a limited rate. The benchmark compares a TUN device that
//! drops packets at a full ring with one that stops its qdisc. Module [`bridge`] compares paths
//! between two guests; module [`ntb`] compares the kinds of ports of one guest.

pub mod bridge;
pub mod ntb;
mod plot;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mqnet_testkit::Figures;
use serde_json::{Value, json};

use crate::guest::{Guest, Outcome};
use crate::kernel::Kernel;
use crate::{Result, programs};

const SCRIPT: &str = include_str!("../scripts/tunnel.sh");

/// Parameters of the path, the tunnel and the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rate of the path in Mbit/s.
    pub rate: u32,
    /// One-way delay in ms.
    pub delay: u32,
    /// Packets in the ring of the TUN device (`txqueuelen`).
    pub ring: u32,
    /// Send buffer of the tunnel's socket in bytes, as counted by the kernel.
    pub room: u32,
    /// Number of rounds. Each round has one run of each mode.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: u32,
}

impl Default for Settings {
    /// A path within the capacity of an emulated guest. The ring has OpenVPN's former default of
    /// 100 packets: a fifth of the packets that one stream has in flight on this path. Slow start
    /// therefore overflows the ring long before the path is full.
    fn default() -> Self {
        Self { rate: 100, delay: 30, ring: 100, room: 65_536, rounds: 3, seconds: 20 }
    }
}

/// Behaviour of a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Packets are dropped.
    Drop,
    /// The qdisc is stopped (`IFF_BACKPRESSURE`).
    Stop,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Drop, Self::Stop];

    /// Name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Stop => "stop",
        }
    }
}

/// Measurements of one interval of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the start of the stream, at the end of the interval.
    pub at: f64,
    /// Mbit/s received by the program.
    pub goodput: f64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Round-trip time in ms, estimated by the sender.
    pub rtt: f64,
    /// Congestion window in KiB.
    pub window: f64,
}

/// Result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of the round, from 1.
    pub round: u32,
    /// Behaviour of a full ring.
    pub mode: Mode,
    /// Mbit/s received by the program over the whole run.
    pub goodput: f64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Flags of the device in the kernel.
    pub flags: u32,
    /// Packets accepted by the device's ring.
    pub sent: u64,
    /// Packets dropped by the ring.
    pub ring_drops: u64,
    /// Packets dropped by the qdisc.
    pub qdisc_drops: u64,
    /// Packets lost by the path; a valid run has none.
    pub path_drops: u64,
    /// Time series.
    pub samples: Vec<Sample>,
}

/// Results of all runs.
#[derive(Clone, Debug)]
pub struct Report {
    /// Settings of the benchmark.
    pub settings: Settings,
    /// Release of the guest's kernel.
    pub release: String,
    /// Runs in their order.
    pub runs: Vec<Run>,
}

/// Adds the benchmark to a guest as its script `tunnel`.
pub fn with_tunnel(guest: Guest, settings: &Settings) -> Guest {
    let Settings { rate, delay, ring, room, rounds, seconds } = settings;
    let head = format!(
        "RATE={rate} DELAY={delay} RING={ring} ROOM={room} ROUNDS={rounds} SECONDS_EACH={seconds}\n"
    );
    guest.script("tunnel", &(head + SCRIPT))
}

/// Runs the benchmark in a new guest. Any packet lost by the path is an error, because the drops
/// must come from the ring or the qdisc.
pub fn tunnel(settings: &Settings) -> Result<Report> {
    let seconds = u64::from(2 * settings.rounds * (settings.seconds + 15) + 120);
    let guest = Guest::new(Kernel::V7_3, "bench").limit(Duration::from_secs(seconds));
    let outcome = with_tunnel(guest, settings).run()?;
    let report = Report::read(*settings, &outcome)?;
    match report.runs.iter().find(|run| run.path_drops > 0) {
        Some(run) => Err(format!("the path itself has lost packets: {}", run.json()).into()),
        None => Ok(report),
    }
}

impl Report {
    /// Parses the results of the script.
    pub fn read(settings: Settings, outcome: &Outcome) -> Result<Self> {
        outcome.passed("tunnel")?;
        let mut runs = Vec::new();
        for round in 1..=settings.rounds {
            for mode in Mode::ALL {
                let name = format!("{round}-{}", mode.name());
                let run = read_run(round, mode, |kind| -> Result<Value> {
                    Ok(serde_json::from_str(&outcome.text(&format!("{name}.{kind}.json"))?)?)
                });
                runs.push(run.map_err(|e| format!("run {name}: {e}"))?);
            }
        }
        Ok(Self { settings, release: outcome.release.clone(), runs })
    }

    /// Median of the goodputs of one mode, in Mbit/s.
    pub fn goodput(&self, mode: Mode) -> f64 {
        let runs = self.runs.iter().filter(|run| run.mode == mode);
        let mut all: Vec<f64> = runs.map(|run| run.goodput).collect();
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        match all.len() {
            0 => 0.0,
            n if n % 2 == 1 => all[middle],
            _ => (all[middle - 1] + all[middle]) / 2.0,
        }
    }

    /// Ratio of the median goodput of [`Mode::Stop`] to that of [`Mode::Drop`].
    pub fn ratio(&self) -> f64 {
        self.goodput(Mode::Stop) / self.goodput(Mode::Drop)
    }

    /// Writes `tunnel.json`, `tunnel.svg` and `tunnel.html` to the build folder; returns the
    /// folder.
    pub fn write(&self) -> Result<PathBuf> {
        let folder = programs::target();
        fs::write(folder.join("tunnel.json"), serde_json::to_vec_pretty(&self.json())?)?;
        let picture = plot::draw(self)?;
        fs::write(folder.join("tunnel.svg"), &picture)?;
        fs::write(folder.join("tunnel.html"), self.page(&picture))?;
        Ok(folder)
    }

    /// Figures for the report of `cargo xtask bench`.
    pub fn figures(&self) -> Figures {
        let of = |mode, value: fn(&Run) -> f64| -> Vec<f64> {
            self.runs.iter().filter(|run| run.mode == mode).map(value).collect()
        };
        let (stops, drops) = ("a ring that stops", "one that drops");
        let [stop, drop] = [Mode::Stop, Mode::Drop].map(|mode| of(mode, |run| run.goodput * 1e6));
        let ratios: Vec<f64> = stop.iter().zip(&drop).map(|(stop, drop)| stop / drop).collect();
        let [again, more] =
            [Mode::Stop, Mode::Drop].map(|mode| of(mode, |run| run.retransmits as f64));
        let (name, ratio) = ("TCP through a TUN over a slow path", "stops / drops");
        Figures::of("tunnel", "tunnel")
            .case(name, "bits", &[(stops, &stop), (drops, &drop)], &[(ratio, &ratios)])
            .case(
                "segments that were sent again",
                "segments",
                &[(stops, &again), (drops, &more)],
                &[],
            )
    }

    fn json(&self) -> Value {
        let Settings { rate, delay, ring, room, rounds, seconds } = self.settings;
        json!({
            "kernel": self.release,
            "path": { "mbit": rate, "delay-ms": delay },
            "tunnel": { "ring": ring, "socket-bytes": room, "qdisc": "fq_codel" },
            "rounds": rounds,
            "seconds": seconds,
            "goodput-mbit": { "drop": self.goodput(Mode::Drop), "stop": self.goodput(Mode::Stop) },
            "ratio": self.ratio(),
            "runs": self.runs.iter().map(Run::json).collect::<Vec<_>>(),
        })
    }

    /// Readable table.
    pub fn table(&self) -> String {
        let row = |run: &Run| {
            format!(
                "{:>5} {:>5} {:>10.1} {:>11} {:>9} {:>10} {:>11} {:>8.0}\n",
                run.round,
                run.mode.name(),
                run.goodput,
                run.retransmits,
                run.sent,
                run.ring_drops,
                run.qdisc_drops,
                run.median_rtt(),
            )
        };
        let rows: String = self.runs.iter().map(row).collect();
        format!(
            "round  full     Mbit/s retransmits      sent ring-drops qdisc-drops   rtt-ms\n{rows}\
             median goodput: drop {:.1} Mbit/s, stop {:.1} Mbit/s, ratio {:.2}\n",
            self.goodput(Mode::Drop),
            self.goodput(Mode::Stop),
            self.ratio()
        )
    }

    fn page(&self, picture: &str) -> String {
        let Settings { rate, delay, ring, .. } = self.settings;
        format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<title>mqnet: tunnel</title>\n\
             <p>One TCP stream (CUBIC) through a tunnel over a path of {rate} Mbit/s with {delay} \
             ms of delay each way and no loss of its own, on Linux {}; ring of {ring} packets.\
             </p>\n\
             {picture}\n<pre>\n{}</pre>\n",
            self.release,
            self.table()
        )
    }
}

impl Run {
    fn json(&self) -> Value {
        let sample = |s: &Sample| {
            json!({
                "at": s.at, "goodput-mbit": s.goodput, "retransmits": s.retransmits,
                "rtt-ms": s.rtt, "window-kib": s.window,
            })
        };
        json!({
            "round": self.round, "full": self.mode.name(), "goodput-mbit": self.goodput,
            "retransmits": self.retransmits, "tun-flags": format!("{:#x}", self.flags),
            "sent": self.sent, "ring-drops": self.ring_drops, "qdisc-drops": self.qdisc_drops,
            "path-drops": self.path_drops,
            "series": self.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    }

    fn median_rtt(&self) -> f64 {
        let mut all: Vec<f64> = self.samples.iter().map(|sample| sample.rtt).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Combines the reports of both iperf3 programs and the counters of the device into one run.
fn read_run(round: u32, mode: Mode, file: impl Fn(&str) -> Result<Value>) -> Result<Run> {
    let (client, server, end) = (file("client")?, file("server")?, file("end")?);
    for (who, report) in [("client", &client), ("server", &server)] {
        if let Some(error) = report["error"].as_str() {
            return Err(format!("iperf3 {who}: {error}").into());
        }
    }
    let received = &client["end"]["sum_received"]["bits_per_second"];
    let flags = end["flags"].as_str().and_then(|text| text.trim().strip_prefix("0x"));
    let flags = u32::from_str_radix(flags.ok_or("no flags of the device")?, 16)?;
    Ok(Run {
        round,
        mode,
        goodput: number(received) / 1e6,
        retransmits: count(&client["end"]["sum_sent"]["retransmits"]),
        flags,
        sent: count(&end["sent"]),
        ring_drops: count(&end["ring_drops"]),
        qdisc_drops: count(&end["qdisc_drops"]),
        path_drops: count(&end["path_drops"]),
        samples: samples(&client, &server),
    })
}

/// Combines the intervals of both reports, which have the same length: retransmissions from the
/// sender, goodput from the receiver.
fn samples(client: &Value, server: &Value) -> Vec<Sample> {
    let intervals = |report: &Value| report["intervals"].as_array().cloned().unwrap_or_default();
    let pairs = intervals(client).into_iter().zip(intervals(server));
    let sample = |(sent, received): (Value, Value)| {
        let stream = &sent["streams"][0];
        Sample {
            at: number(&received["sum"]["end"]),
            goodput: number(&received["sum"]["bits_per_second"]) / 1e6,
            retransmits: count(&stream["retransmits"]),
            rtt: number(&stream["rtt"]) / 1e3,
            window: number(&stream["snd_cwnd"]) / 1024.0,
        }
    };
    pairs.map(sample).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
