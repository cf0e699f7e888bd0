//! Counters of links as text and JSON.

use std::fmt::Write;

use mqnet_command::{Failure, TextTable, json_text, si};
use mqnet_control_api::{ChannelStats, LaneStats, LinkStats, StopState};
use serde_json::{Value, json};

use super::conservation::{self, Verdict, judge};
use super::rates::{pairs, rates as lane_rates, seconds_between, stopped_ns};

fn lanes(channel: &ChannelStats) -> [&LaneStats; 2] {
    [&channel.a_to_b, &channel.b_to_a]
}

/// Verdicts for the directions `a_to_b` and `b_to_a`.
fn verdicts(before: &LinkStats, now: &LinkStats) -> [Verdict; 2] {
    let count = now.channels.len();
    let stopped = |direction: usize| {
        now.channels.iter().any(|c| lanes(c)[direction].state == StopState::Stopped)
    };
    [
        judge(&before.a_to_b, &now.a_to_b, count, stopped(0)),
        judge(&before.b_to_a, &now.b_to_a, count, stopped(1)),
    ]
}

/// Duration in a suitable unit.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        n if n < 1000 => format!("{n} ns"),
        n if n < 1_000_000 => format!("{:.1} us", n as f64 / 1e3),
        n if n < 1_000_000_000 => format!("{:.1} ms", n as f64 / 1e6),
        n if n < 100_000_000_000 => format!("{:.2} s", n as f64 / 1e9),
        n => format!("{} s", n / 1_000_000_000),
    }
}

fn worker(channel: &ChannelStats) -> String {
    channel.worker.map_or("-".to_owned(), |worker| worker.to_string())
}

fn pool(link: &LinkStats, lane: &LaneStats) -> String {
    let pool = link.pools.iter().find(|pool| pool.napi_id == lane.napi_id);
    pool.map_or("-".to_owned(), |pool| pool.inflight.to_string())
}

fn state(lane: &LaneStats) -> &'static str {
    match lane.state {
        StopState::Running => "",
        StopState::Stopped => "stopped",
        StopState::Unused => "unused",
    }
}

/// Counters of every lane and the conservation check of every link, as text.
pub(super) fn text(before: &[LinkStats], now: &[LinkStats]) -> String {
    if now.is_empty() {
        return "no links\n".to_owned();
    }
    let mut out = String::new();
    for (before, now) in pairs(before, now) {
        let mut table = TextTable::new(&[
            "ch",
            "<lane",
            "worker",
            "rx-packets",
            "rx-bytes",
            "tx-packets",
            "in-flight",
            "stops",
            "wakes",
            "stopped",
            "pool",
            "<drops",
            "<state",
        ]);
        for channel in &now.channels {
            for lane in lanes(channel) {
                table.row(vec![
                    channel.id.to_string(),
                    format!("{} -> {}", lane.from, lane.to),
                    worker(channel),
                    lane.rx_packets.to_string(),
                    lane.rx_bytes.to_string(),
                    lane.tx_packets.to_string(),
                    lane.in_flight.to_string(),
                    lane.tx_stop.to_string(),
                    lane.tx_wake.to_string(),
                    duration(stopped_ns(lane)),
                    pool(now, lane),
                    conservation::reasons(lane),
                    state(lane).to_owned(),
                ]);
            }
        }
        finish(&mut out, before, now, &table);
    }
    out
}

/// Rates of every lane since the previous reading, as text.
pub(super) fn rates(before: &[LinkStats], now: &[LinkStats]) -> String {
    let mut out = String::new();
    for (before, now) in pairs(before, now) {
        let seconds = seconds_between(before, now);
        let mut table = TextTable::new(&[
            "ch",
            "<lane",
            "worker",
            "frames/s",
            "Gb/s",
            "stops/s",
            "stopped",
            "drops/s",
            "in-flight",
            "pool",
            "<drops",
            "<state",
        ]);
        for channel in &now.channels {
            let old = before.channels.iter().find(|c| c.id == channel.id).unwrap_or(channel);
            for (lane, old) in lanes(channel).into_iter().zip(lanes(old)) {
                let rate = lane_rates(old, lane, seconds);
                table.row(vec![
                    channel.id.to_string(),
                    format!("{} -> {}", lane.from, lane.to),
                    worker(channel),
                    si(rate.frames).trim_end().to_owned(),
                    format!("{:.3}", rate.gbits),
                    si(rate.stops).trim_end().to_owned(),
                    format!("{:.0} %", rate.stopped * 100.0),
                    si(rate.drops).trim_end().to_owned(),
                    lane.in_flight.to_string(),
                    pool(now, lane),
                    conservation::reasons(lane),
                    state(lane).to_owned(),
                ]);
            }
        }
        finish(&mut out, before, now, &table);
    }
    out
}

/// Appends heading, table, conservation check, frames dropped by the kernel, and bytes per node.
fn finish(out: &mut String, before: &LinkStats, now: &LinkStats, table: &TextTable) {
    let gap = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{gap}link {}: {} <-> {}", now.link, now.a, now.b);
    if now.channels.is_empty() {
        out.push_str("no channel has been in use yet\n");
        return;
    }
    out.push_str(&table.text());
    for (lane, verdict) in [&now.a_to_b, &now.b_to_a].into_iter().zip(verdicts(before, now)) {
        let _ = writeln!(out, "{}", conservation::line(lane, verdict));
    }
    for (name, dropped) in [(&now.a, now.dropped_outside_a), (&now.b, now.dropped_outside_b)] {
        if let Some(n) = dropped.filter(|&n| n > 0) {
            let _ = writeln!(
                out,
                "{name}: its system dropped {n} frames before mqnet received them; a longer queue \
                 (ip link set {name} txqueuelen N) helps against bursts"
            );
        }
    }
    out.push_str(&locality(now));
}

/// Bytes that stayed on a node and bytes that crossed between nodes, one line per function.
fn locality(now: &LinkStats) -> String {
    let mut out = String::new();
    for one in &now.locality {
        let name = one.interface.as_ref().unwrap_or(&one.netdev);
        let all = (one.local_bytes + one.cross_bytes).max(1);
        let _ = writeln!(
            out,
            "{name} (function {}, node {}): {} bytes local, {} across nodes ({:.1} %)",
            one.function,
            one.node,
            one.local_bytes,
            one.cross_bytes,
            one.cross_bytes as f64 * 100.0 / all as f64
        );
    }
    out
}

/// Readings `now` as received, each with the verdicts as the member `conservation`.
pub(super) fn json(
    before: &[LinkStats],
    now: &[LinkStats],
    pretty: bool,
) -> Result<String, Failure> {
    let mut all = Vec::new();
    for (before, now) in pairs(before, now) {
        let mut value = serde_json::to_value(now)?;
        let [forth, back] = verdicts(before, now);
        if let Value::Object(map) = &mut value {
            let check = json!({ "a-to-b": forth.name(), "b-to-a": back.name(),
                              "holds": !(forth.is_broken() || back.is_broken()) });
            map.insert("conservation".to_owned(), check);
        }
        all.push(value);
    }
    json_text(&all, pretty)
}

#[cfg(test)]
mod tests {
    use mqnet_control_api::Locality;

    use super::*;
    use crate::stats::fixture::stats;

    // Goal: each function with locality counters has one line with its local bytes and its bytes
    // across nodes, even if both are 0. A link without locality counters has no line.
    #[test]
    fn bytes_across_nodes_are_shown() {
        let mut now = stats(2);
        assert!(!text(&[now.clone()], &[now.clone()]).contains("across"));
        let interface = Some("eth1".to_owned());
        let one = Locality {
            netdev: "g0".into(),
            function: 1,
            interface,
            node: 1,
            local_bytes: 900,
            cross_bytes: 100,
        };
        let idle = Locality { netdev: "g0".into(), ..Locality::default() };
        now.locality = vec![one, idle];
        let text = text(&[now.clone()], &[now]);
        let line = "eth1 (function 1, node 1): 900 bytes local, 100 across nodes (10.0 %)\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("g0 (function 0, node 0): 0 bytes local, 0 across nodes (0.0 %)\n"));
    }
}
