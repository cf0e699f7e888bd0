//! Rows computed from two readings, and their sort order.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use mqnet_control_api::{LaneStats, LinkInfo, LinkStats, StopState};

use crate::stats::rates::{Rates, pairs, rates, seconds_between};

/// Link name, number of earlier links with that name, and worker number.
type WorkerKey = (String, usize, u16);

/// One reading of all links and workers.
pub(super) struct Sample {
    stats: Vec<LinkStats>,
    /// CPU and run time (ns) of each worker, as far as they are known.
    workers: BTreeMap<WorkerKey, (Option<u32>, Option<u64>)>,
    /// Links that are not up, with the reason.
    pub(super) down: Vec<String>,
}

impl Sample {
    pub(super) fn new(
        stats: Vec<LinkStats>,
        links: &[LinkInfo],
        cpu_ns: fn(u32) -> Option<u64>,
    ) -> Self {
        let mut workers = BTreeMap::new();
        let mut down = Vec::new();
        for (at, link) in links.iter().enumerate() {
            let before = links[..at].iter().filter(|other| other.name == link.name).count();
            for worker in &link.workers {
                let key = (link.name.clone(), before, worker.id);
                workers.insert(key, (worker.cpu, worker.tid.and_then(cpu_ns)));
            }
            if let Some(reason) = &link.reason {
                down.push(format!("{}: {reason}", link.name));
            }
        }
        Self { stats, workers, down }
    }
}

/// Row of one lane.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) channel: u16,
    /// True for the direction `AToB`.
    pub(super) forth: bool,
    pub(super) lane: String,
    pub(super) rates: Rates,
    pub(super) in_flight: i64,
    pub(super) is_stopped: bool,
    pub(super) cpu: Option<u32>,
    /// Fraction of a CPU that the lane's worker uses; none if the run time is not known.
    pub(super) load: Option<f64>,
}

/// One row per lane of an active channel, with the rates between two readings.
pub(super) fn rows(before: &Sample, now: &Sample) -> Vec<Row> {
    let mut out = Vec::new();
    for (at, (old, stats)) in pairs(&before.stats, &now.stats).enumerate() {
        let namesakes = now.stats[..at].iter().filter(|other| other.link == stats.link).count();
        let seconds = seconds_between(old, stats);
        for channel in stats.channels.iter().filter(|channel| channel.active) {
            let was = old.channels.iter().find(|c| c.id == channel.id).unwrap_or(channel);
            let key = channel.worker.map(|worker| (stats.link.clone(), namesakes, worker));
            let found = |s: &Sample| key.as_ref().and_then(|key| s.workers.get(key).copied());
            let (cpu, ran) = found(now).unwrap_or_default();
            let ran_before = found(before).and_then(|(_, ran)| ran);
            let load = ran.zip(ran_before).filter(|_| seconds > 0.0);
            let load = load.map(|(now, old)| now.saturating_sub(old) as f64 / 1e9 / seconds);
            let row = |forth, old: &LaneStats, lane: &LaneStats| Row {
                channel: channel.id,
                forth,
                lane: format!("{} -> {}", lane.from, lane.to),
                rates: rates(old, lane, seconds),
                in_flight: lane.in_flight,
                is_stopped: lane.state == StopState::Stopped,
                cpu,
                load: load.map(|load| load.clamp(0.0, 1.0)),
            };
            out.push(row(true, &was.a_to_b, &channel.a_to_b));
            out.push(row(false, &was.b_to_a, &channel.b_to_a));
        }
    }
    out
}

/// Sort columns, in the order of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Channel,
    Lane,
    Frames,
    Bits,
    Stops,
    Drops,
    Stopped,
    InFlight,
    Cpu,
    Load,
}

impl Column {
    pub(super) const ALL: [Self; 10] = [
        Self::Channel,
        Self::Lane,
        Self::Frames,
        Self::Bits,
        Self::Stops,
        Self::Drops,
        Self::Stopped,
        Self::InFlight,
        Self::Cpu,
        Self::Load,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Channel => "ch",
            Self::Lane => "lane",
            Self::Frames => "frames/s",
            Self::Bits => "Gb/s",
            Self::Stops => "stops/s",
            Self::Drops => "drops/s",
            Self::Stopped => "stop%",
            Self::InFlight => "flight",
            Self::Cpu => "cpu",
            Self::Load => "load%",
        }
    }

    /// Returns the column `by` positions further, cyclically.
    pub(super) fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        // Channels, lanes and CPUs sort in ascending order; all other columns sort in descending
        // order.
        let down = |a: f64, b: f64| b.total_cmp(&a);
        match self {
            Self::Channel => a.channel.cmp(&b.channel),
            Self::Lane => a.lane.cmp(&b.lane),
            Self::Frames => down(a.rates.frames, b.rates.frames),
            Self::Bits => down(a.rates.gbits, b.rates.gbits),
            Self::Stops => down(a.rates.stops, b.rates.stops),
            Self::Drops => down(a.rates.drops, b.rates.drops),
            Self::Stopped => down(a.rates.stopped, b.rates.stopped),
            Self::InFlight => b.in_flight.cmp(&a.in_flight),
            Self::Cpu => a.cpu.cmp(&b.cpu),
            Self::Load => down(a.load.unwrap_or(-1.0), b.load.unwrap_or(-1.0)),
        }
    }
}

/// Sorts the rows; equal rows keep the order of their links and channels.
pub(super) fn sort(rows: &mut [Row], column: Column, reverse: bool) {
    rows.sort_by(|a, b| {
        let order = column.compare(a, b);
        if reverse { order.reverse() } else { order }
    });
}
