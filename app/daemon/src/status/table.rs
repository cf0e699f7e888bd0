//! Final table of a link.

use std::fmt::Write;

use mqnet_engine::Link;
use mqnet_netdev::LaneSums;
use serde_json::{Value, json};

use super::sums::{DirectionSums, channel_stats, channels_json, link_sums};

/// Table as text.
pub(crate) fn text(link: &mut Link) -> String {
    let [a, b] = channel_stats(link);
    let names = link.functions().map(|f| f.name().to_owned());
    let mut out = String::new();
    let width = names[0].len().max(names[1].len()) * 2 + 4;
    let _ = writeln!(
        out,
        "{:<width$} {:>2} {:>12} {:>14} {:>12} {:>8} {:>8} {:>8} {:>8}",
        "lane", "ch", "rx-packets", "rx-bytes", "tx-packets", "drops", "lost", "stops", "kicks"
    );
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        for (from, to, lane) in [(0, 1, LaneSums::of(a, b)), (1, 0, LaneSums::of(b, a))] {
            let _ = writeln!(
                out,
                "{:<width$} {i:>2} {:>12} {:>14} {:>12} {:>8} {:>8} {:>8} {:>8}",
                format!("{} -> {}", names[from], names[to]),
                lane.rx_packets,
                lane.rx_bytes,
                lane.tx_packets,
                lane.dropped(),
                lane.tx_lost,
                lane.tx_stop,
                lane.kicks
            );
        }
    }
    for (sums, [from, to]) in link_sums(link).iter().zip([[0, 1], [1, 0]]) {
        let check = DirectionSums::of(sums).equation();
        let _ = writeln!(out, "{} -> {}: {check}", names[from], names[to]);
    }
    for (name, dropped) in names.iter().zip(link.functions().map(|f| f.dropped_outside())) {
        if let Some(n) = dropped.filter(|&n| n > 0) {
            let _ = writeln!(
                out,
                "{name}: the kernel's ring dropped {n} frames before mqnet received them: a longer \
                 queue (ip link set DEV txqueuelen N) helps against bursts"
            );
        }
    }
    out
}

/// Table as JSON.
pub(crate) fn json(link: &mut Link) -> Value {
    let names = link.functions().map(|f| f.name().to_owned());
    let outside = link.functions().map(|f| f.dropped_outside());
    let channels = channels_json(link);
    let sums = link_sums(link).each_ref().map(DirectionSums::of);
    json!({
        "event": "end", "a": names[0], "b": names[1], "channels": channels,
        "a-to-b": sums[0], "b-to-a": sums[1],
        "dropped-outside-a": outside[0], "dropped-outside-b": outside[1],
    })
}
