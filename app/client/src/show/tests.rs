use mqnet_control_api::{FunctionPlace, QueuePairInfo, WindowInfo};
use serde_json::json;

use super::*;
use crate::stats::fixture::{FakeApi, link};

fn shown(name: Option<&str>, json: bool, state: &str) -> Result<String, Failure> {
    let instance = json!({ "version": "9.9", "pid": 42, "mode": "daemon", "uptime-ms": 61_500 });
    let api = FakeApi::default().on("/v1/instance", instance).on("/v1/links", vec![link(state)]);
    let mut out = Vec::new();
    run(&ShowArgs { name: name.map(str::to_owned), json }, false, &api, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

// Goal: queues with the same buffer layout share one line with the requested layout, the actual
// layout and its reason, and the sum of their pages.
#[test]
fn rx_buffers_are_shown() {
    let queue = |queue: u16, layout: &str, reason: &str| RxBufferInfo {
        netdev: "v".into(),
        queue,
        mode: "mergeable".into(),
        asked: "auto".into(),
        layout: layout.into(),
        reason: reason.into(),
        size: 1536,
        per_page: 2,
        pages: 5,
        pages_most: 10,
        ..RxBufferInfo::default()
    };
    let rx_buffers = vec![
        queue(0, "frag", "auto: cheap"),
        queue(1, "frag", "auto: cheap"),
        queue(2, "full", "auto: 60 %"),
    ];
    let line = "v rx queues 0-1: mergeable buffers of 1536 B, 2 in a page, 10 of 20 pages in \
                use; rx-buf-layout auto: frag (auto: cheap)";
    let lines = super::rx_buffers(&LinkInfo { rx_buffers, ..link("up") });
    assert_eq!((lines.len(), &lines[0][..]), (2, line));
    assert!(lines[1].starts_with("v rx queue 2: ") && lines[1].ends_with("full (auto: 60 %)"));
}

// Goal: a link is printed with state, netdevs and workers, whether all links or a link or a netdev
// by name are requested.
#[test]
fn a_link_is_shown_whole() {
    for name in [None, Some("vm0"), Some("ntb0")] {
        assert_eq!(
            shown(name, false, "up").unwrap(),
            "mqnet 9.9 (daemon), pid 42, started 1m 1s ago\n\n\
             link vm0: up, 2 channels, mtu 1500, frames up to 65558 B\n\
             \u{20} vm0   tap:vm0          index 7        carrier\n\
             \u{20} ntb0  ntb:/run/x.sock  index 1000000  carrier\n\
             \u{20} worker 0  cpu 2  node 0\n\
             \u{20} worker 1  cpu 3  node 0\n"
        );
    }
}

// Rule: windows, slots and credits of each queue pair of an `ntb_transport` are printed.
#[test]
fn slot_rings_are_shown() {
    let pair = |id: u16| QueuePairInfo {
        id,
        open: id == 0,
        rx_slots: 7,
        rx_waiting: 2,
        tx_slots: 7,
        tx_in_use: 6,
        received: 30,
        credits: 40,
    };
    let rings = SlotRingsInfo {
        slot_bytes: 65536,
        windows: vec![WindowInfo { bytes: 2 << 20, far_bytes: 1 << 20 }],
        vectors: 32,
        queue_pairs: vec![pair(0), pair(1)],
    };
    assert_eq!(
        slot_rings(&rings),
        "  windows: 2048 KiB (far end 1024 KiB), slots of 65536 bytes, 32 vectors\n\
         \u{20} queue pair 0  open    rx 2/7 slots  tx 6/7 slots  received 30, credits 40\n\
         \u{20} queue pair 1  closed  rx 2/7 slots  tx 6/7 slots  received 30, credits 40\n"
    );
}

// Goal: each channel is printed with its worker, and the queue, node and interrupts of each device.
#[test]
fn channels_show_placement() {
    let function = FunctionPlace {
        netdev: "g0".into(),
        function: 1,
        interface: Some("eth1".into()),
        netns: None,
        node: Some(1),
        queue: 2,
        irqs: vec![40, 41],
    };
    let (cpu, node) = (Some(7), Some(1));
    let mut one = ChannelPlace { channel: 5, worker: 3, cpu, node, functions: vec![function] };
    assert_eq!(
        place(&one).join(" "),
        "  channel 5 worker 3 cpu 7 node 1 eth1 (function 1) queue 2 node 1 irq 40,41"
    );
    (one.cpu, one.node, one.functions) = (None, None, Vec::new());
    assert_eq!(place(&one), ["  channel 5", "worker 3", "any cpu", ""]);
}

// Goal: emulated offloads and segmentation are printed, coalescing only with `verbose`; without
// emulation and coalescing, nothing is printed.
#[test]
fn emulation_is_shown() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let mut way = WayOffloads {
        from: "vm0".into(),
        to: "tap0".into(),
        arriving: names(&["csum", "tso4"]),
        leaving: names(&["csum", "tso4"]),
        ..WayOffloads::default()
    };
    assert_eq!(emulation(&way, true), None);
    (way.leaving, way.emulated) = (Vec::new(), names(&["csum", "tso4"]));
    way.cuts = true;
    assert_eq!(
        emulation(&way, false).unwrap(),
        "  vm0 -> tap0: csum,tso4 comes, none goes: csum,tso4 emulated, frames beyond the largest \
         segmented\n"
    );
    let merged = names(&["tso4", "uso4"]);
    let way = WayOffloads { from: "a".into(), to: "b".into(), merged, ..WayOffloads::default() };
    assert_eq!(emulation(&way, false), None);
    let line = "  a -> b: small TCP and UDP frames are coalesced\n";
    assert_eq!(emulation(&way, true).unwrap(), line);
}

// Goal: a link that is down is printed with the reason; the JSON contains the link's state and its
// process.
#[test]
fn a_link_that_is_down() {
    let text = shown(None, false, "down").unwrap();
    assert!(text.contains("link vm0: down (the peer has ended)\n"), "{text}");
    let value: Value = serde_json::from_str(&shown(None, true, "down").unwrap()).unwrap();
    assert_eq!(value[0]["state"], "down");
    assert_eq!(value[0]["instance"]["pid"], 42);
}

// Goal: a link that is down shows the reason and the time until the next attempt, 0.0 s if the
// attempt is due.
#[test]
fn next_attempt_is_shown() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut waiting = link("down");
    waiting.next_attempt_ms = Some(now + 3_600_000);
    let text = standing(&waiting);
    let start = "down (the peer has ended; next attempt in ";
    assert!(text.starts_with(start) && text.ends_with(" s)"), "{text}");
    waiting.next_attempt_ms = Some(now - 1);
    assert_eq!(standing(&waiting), format!("{start}0.0 s)"));
}

// Goal: an unknown name fails with one line that lists the known names.
#[test]
fn an_unknown_name() {
    let Err(Failure::Broken(what)) = shown(Some("vmx"), false, "up") else { panic!() };
    assert_eq!(what, "vmx: no link or netdev of this name; allowed: vm0, ntb0");
}
