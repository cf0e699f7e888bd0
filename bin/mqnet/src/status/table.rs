//! The table at the end of a link's life.

use std::fmt::Write;

use mqnet_engine::Link;
use mqnet_netdev::DropReason;
use serde_json::{Value, json};

use super::sums::{LaneSums, channel_stats, channels_json, link_sums};

/// As text.
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
                lane.drops,
                lane.lost,
                lane.stops,
                lane.kicks
            );
        }
    }
    for (sums, [from, to]) in link_sums(link).iter().zip([[0, 1], [1, 0]]) {
        let _ = writeln!(out, "{} -> {}: {}", names[from], names[to], law(sums));
    }
    for (name, dropped) in names.iter().zip(link.functions().map(|f| f.dropped_outside())) {
        if let Some(n) = dropped.filter(|&n| n > 0) {
            let _ = writeln!(
                out,
                "{name}: the kernel's own ring dropped {n} frames before we saw them: a longer \
                 queue (ip link set DEV txqueuelen N) helps against bursts"
            );
        }
    }
    out
}

/// The conservation law of one direction in words.
fn law(sums: &LaneSums) -> String {
    let mut reasons = String::new();
    for (reason, n) in DropReason::ALL.iter().zip(sums.by_reason) {
        if n > 0 {
            let _ = write!(reasons, " + {n} {}", reason.name());
        }
    }
    let flight = sums.in_flight();
    let (rx, tx) = (sums.rx_packets, sums.tx_packets);
    let made = match sums.segments {
        0 => String::new(),
        n => format!(" + {n} segments"),
    };
    let merged = match sums.merged {
        0 => String::new(),
        n => format!(" + {n} merged"),
    };
    format!("rx {rx}{made} = tx {tx}{merged}{reasons} + {flight} in flight")
}

/// As JSON.
pub(crate) fn json(link: &mut Link) -> Value {
    let names = link.functions().map(|f| f.name().to_owned());
    let outside = link.functions().map(|f| f.dropped_outside());
    let channels = channels_json(link);
    let sums = link_sums(link).map(|s| s.json());
    json!({
        "event": "end", "a": names[0], "b": names[1], "channels": channels,
        "a-to-b": sums[0], "b-to-a": sums[1],
        "dropped-outside-a": outside[0], "dropped-outside-b": outside[1],
    })
}
