//! Floods into a TAP with a stalling reader, on a kernel with `IFF_BACKPRESSURE` and on a kernel
//! without this flag.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel, Outcome};
use serde_json::Value;

use crate::there;

const SCRIPT: &str =
    concat!("SENDERS='1 2 4' SECONDS_EACH=3\n", include_str!("../scripts/flood.sh"));

/// Bit of `IFF_BACKPRESSURE` in the flags of a device.
const BACKPRESSURE: u32 = 0x80;

/// Maximum number of dropped frames that do not belong to the flood.
const OTHERS: u64 = 10;

/// One run of the script.
#[derive(Debug)]
struct Flood {
    senders: u64,
    sent: u64,
    received: u64,
    /// Number of datagrams out of order or duplicated.
    wrong: u64,
    ring: u64,
    qdisc: u64,
    requeues: u64,
}

/// Runs the script in a guest and returns the results; `None` if the guest cannot be started.
fn outcome(kernel: Kernel) -> Option<Outcome> {
    if !there(kernel) {
        return None;
    }
    mqnet_guest::build().unwrap();
    let guest = Guest::new(kernel, &format!("test-flood-{kernel}")).script("flood", SCRIPT);
    Some(guest.limit(Duration::from_secs(300)).run().unwrap())
}

fn floods(outcome: &Outcome) -> Vec<Flood> {
    print!("{}", outcome.passed("flood").unwrap().output);
    let lines = outcome.text("flood.jsonl").unwrap();
    let read = |line: &str| {
        let run: Value = serde_json::from_str(line).unwrap();
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{run}"));
        Flood {
            senders: number(&run["senders"]),
            sent: number(&run["send"]["sent"]),
            received: number(&run["receive"]["received"]),
            wrong: number(&run["receive"]["wrong"]),
            ring: number(&run["ring"]),
            qdisc: number(&run["qdisc"]),
            requeues: number(&run["requeues"]),
        }
    };
    let floods: Vec<Flood> = lines.lines().map(read).collect();
    assert_eq!(floods.iter().map(|run| run.senders).collect::<Vec<_>>(), [1, 2, 4]);
    for run in &floods {
        // Every missing datagram is counted by the TAP's ring or the qdisc, so the link lost none.
        // The counters may include a few other dropped frames (ARP, IPv6).
        let (missing, counted) = (run.sent - run.received, run.ring + run.qdisc);
        assert!(missing <= counted && counted <= missing + OTHERS, "{run:?}");
        assert_eq!(run.wrong, 0, "{run:?}");
        assert!(run.received > 0, "{run:?}");
    }
    floods
}

fn flags(outcome: &Outcome) -> u32 {
    let text = outcome.text("tun-flags").unwrap();
    u32::from_str_radix(text.trim().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// Drops of the TAP's ring according to mqnet's statistics.
fn reported(outcome: &Outcome) -> u64 {
    let stats: Value = serde_json::from_str(&outcome.text("stats.json").unwrap()).unwrap();
    let value = &stats[0]["dropped-outside-a"];
    value.as_u64().unwrap_or_else(|| panic!("no dropped-outside-a: {stats}"))
}

// Goal: mqnet sets IFF_BACKPRESSURE if the kernel supports it. The TAP's ring then drops no frame
// while its reader stalls and 1, 2 or 4 senders flood it, because the qdisc is stopped.
#[test]
fn a_ring_that_stops_drops_nothing() {
    let Some(outcome) = outcome(Kernel::V7_3) else { return };
    assert_eq!(flags(&outcome) & BACKPRESSURE, BACKPRESSURE, "the flag is not set");
    for run in floods(&outcome) {
        assert_eq!(run.ring, 0, "{run:?}");
        assert!(run.requeues > 0, "the ring was never full, so this run proves nothing: {run:?}");
    }
}

// Goal: on a kernel without IFF_BACKPRESSURE the same flood overflows the TAP's ring. mqnet reads
// the loss from the device, and `mqnet stats` reports it with a remedy.
#[test]
fn a_ring_that_drops_is_reported() {
    let Some(outcome) = outcome(Kernel::V6_1) else { return };
    assert_eq!(flags(&outcome) & BACKPRESSURE, 0, "an old kernel with the flag");
    let floods = floods(&outcome);
    for run in &floods {
        assert!(run.ring > 0, "{run:?}");
    }
    let dropped: u64 = floods.iter().map(|run| run.ring).sum();
    assert!(reported(&outcome) >= dropped, "{} of {dropped}", reported(&outcome));
    let shown = &outcome.passed("flood").unwrap().output;
    assert!(shown.contains("txqueuelen"), "no advice in: {shown}");
}
