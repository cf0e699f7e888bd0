//! VDUSE device of the guest's kernel, because the host's kernel may lack VDUSE.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel, Outcome, five};
use mqnet_testkit::EndTable;
use serde_json::Value;

use crate::{there, there_with_tests};

/// Number of fetched files. One is fetched at the start, after iperf3, for each disabled feature,
/// after the rebinding and after the kills; two are fetched with split rings.
const FILES: usize = 8;

/// Maximum difference between counters: frames of the stacks (IPv6), and frames sent at the end of
/// a flood.
const OTHERS: u64 = 10;

/// Minimum number of frames that a few streams send through a device.
const MANY: u64 = 10;

fn guest(kernel: Kernel, script: &str) -> Option<Guest> {
    if !there(kernel) {
        return None;
    }
    mqnet_guest::build().unwrap();
    let script = format!("{script}{}", include_str!("../scripts/vduse_group.sh"));
    let guest = Guest::new(kernel, &format!("test-vduse-{kernel}"));
    Some(guest.limit(Duration::from_secs(400)).script("vduse", &script))
}

fn run(kernel: Kernel, guest: Guest) -> Outcome {
    let outcome = guest.run().unwrap();
    println!("{kernel}: {:.1} s", outcome.wall.as_secs_f64());
    outcome
}

/// Asserts that both devices of a group have carried streams in both directions.
fn a_group_has_worked(outcome: &Outcome, printed: &str) {
    let (_, group) = printed.split_once("== group\n").expect("a group");
    assert!(group.contains("g0 max 1\ng1 max 1\n"), "{printed}");
    assert!(group.contains("20 packets transmitted, 20 received"), "{printed}");
    assert!(group.contains("receiver"), "a stream is missing: {printed}");
    for count in ["g0 tx ", "g0 rx ", "g1 tx ", "g1 rx "] {
        let frames = group.lines().find_map(|line| line.strip_prefix(count)).expect(count);
        assert!(frames.parse::<u64>().unwrap() > MANY, "{count}: {printed}");
    }
    let end = EndTable(serde_json::from_str(&outcome.text("group.json").unwrap()).unwrap());
    end.assert_conserved();
    assert!(printed.ends_with("== done\n"), "{printed}");
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Asserts that a stalled reader stops the qdisc, so that only the qdisc drops frames.
fn nothing_is_dropped_outside(outcome: &Outcome) {
    let flood: Value = serde_json::from_str(&outcome.text("flood.json").unwrap()).unwrap();
    let (sent, received) = (number(&flood["send"]["sent"]), number(&flood["receive"]["received"]));
    let qdisc = number(&flood["qdisc"]);
    assert!(number(&flood["stalls"]) > 0, "the ring was never full: this proves nothing: {flood}");
    assert_eq!(number(&flood["tail"]), 0, "dropped outside the qdisc: {flood}");
    let missing = sent - received;
    assert!(missing <= qdisc && qdisc <= missing + OTHERS, "{flood}");
    assert_eq!(number(&flood["receive"]["wrong"]), 0, "{flood}");
    assert!(received > 0, "{flood}");
}

// Goal: on the newest kernel the VDUSE device is a netdev of its name with one queue pair and
// negotiated offloads. Files arrive unchanged, and a flood into a stalled reader is dropped only by
// the qdisc. The netdev works again after its driver is unbound and bound, and after mqnet is
// killed and restarted. At the end no resource remains, and all frames are accounted for. Two
// devices form a group.
#[test]
fn vduse_device_on_the_newest_kernel() {
    let kernel = Kernel::V7_3;
    let Some(guest) = guest(kernel, include_str!("../scripts/vduse.sh")) else { return };
    let outcome = run(kernel, guest);
    let printed = &outcome.passed("vduse").unwrap().output;
    println!("{printed}");
    assert!(printed.contains("one queue pair each"), "doctor does not report it: {printed}");
    assert!(printed.contains("driver: virtio_net\nmax 1\n"), "{printed}");
    for feature in ["tx-checksumming", "rx-checksumming", "tcp-segmentation-offload"] {
        assert!(printed.contains(&format!("{feature}: on")), "{feature}: {printed}");
    }
    assert!(printed.contains("tx-udp-segmentation: on"), "{printed}");
    assert!(printed.contains("50 packets transmitted, 50 received"), "{printed}");
    // One stream in each direction, and one through the group.
    assert_eq!(printed.matches("receiver").count(), 3, "a stream is missing: {printed}");
    let given = printed.lines().find_map(|line| line.strip_prefix("given ")).expect("a file");
    let whole = printed.matches(&format!("file {given}\n")).count();
    assert_eq!(whole, FILES, "files came damaged: {printed}");
    nothing_is_dropped_outside(&outcome);
    assert!(printed.contains("bound again\n") && printed.contains("came back\n"), "{printed}");
    assert!(printed.contains("mtu 1400\n02:00:00:00:00:07\npacked 0\n"), "{printed}");
    assert!(
        printed.contains("in use by another process"),
        "a second engine got the card: {printed}"
    );
    a_group_has_worked(&outcome, printed);
    let end = EndTable(serde_json::from_str(&outcome.text("end.json").unwrap()).unwrap());
    end.assert_conserved();
    assert_eq!((end.out().tx_lost, end.back().tx_lost), (0, 0), "{end:?}");
}

// Goal: on the oldest supported kernel the device is a netdev with one queue pair. Datagrams pass
// as IP fragments until the UDP offload is enabled. Two devices form a group. Queues and life cycle
// keep the contract.
#[test]
fn vduse_device_on_an_older_kernel() {
    let kernel = Kernel::V6_12;
    let Some(guest) = guest(kernel, include_str!("../scripts/vduse_short.sh")) else { return };
    let suite = mqnet_guest::build_one("mqnet-conformance", "conformance-vduse").unwrap();
    let guest = guest.file("bin/conformance-vduse", suite);
    let guest = guest.script("conformance", include_str!("../scripts/vduse_conformance.sh"));
    let outcome = run(kernel, guest);
    let printed = &outcome.passed("conformance").unwrap().output;
    println!("{printed}");
    assert!(printed.ends_with("== done\n"), "{printed}");
    let printed = &outcome.passed("vduse").unwrap().output;
    println!("{printed}");
    assert!(printed.contains("one queue pair each"), "doctor does not report it: {printed}");
    assert!(printed.contains("driver: virtio_net\nmax 1\n"), "{printed}");
    for feature in ["tx-checksumming", "tcp-segmentation-offload"] {
        assert!(printed.contains(&format!("{feature}: on")), "{feature}: {printed}");
    }
    assert!(printed.contains("\ntx-udp-segmentation: off\n"), "{printed}");
    assert!(printed.contains("then tx-udp-segmentation: on\n"), "{printed}");
    a_group_has_worked(&outcome, printed);
}

/// Number of changes of the mapped memory: the first mapping, three of all memory, two of the
/// buffers, one that adds memory, one that removes memory, and two of the rings.
const REMAPS: u32 = 10;

fn follows(kernel: Kernel) {
    if !there_with_tests(kernel) {
        return;
    }
    mqnet_guest::build().unwrap();
    let guest = Guest::new(kernel, &format!("test-vduse-iotlb-{kernel}"));
    let guest =
        guest.limit(Duration::from_secs(300)).file("vdpa.py", include_str!("../scripts/vdpa.py"));
    let guest = guest.script("iotlb", include_str!("../scripts/vduse_iotlb.sh"));
    let outcome = five::with_python(guest).unwrap().run().unwrap();
    let printed = &outcome.passed("iotlb").unwrap().output;
    println!("{kernel}: {:.1} s\n{printed}", outcome.wall.as_secs_f64());
    for turn in
        ["at first", "all moved 3", "buffers moved", "more memory", "less memory", "rings back"]
    {
        assert!(printed.contains(&format!("{turn}: answered\n")), "{turn}: {printed}");
    }
    let remaps = printed.lines().find_map(|line| line.strip_prefix("remapped ")).expect("a count");
    assert!(remaps.parse::<u32>().unwrap() >= REMAPS, "{printed}");
    assert!(printed.contains("link 0\n") && printed.ends_with("== done\n"), "{printed}");
    EndTable(serde_json::from_str(&outcome.text("end.json").unwrap()).unwrap()).assert_conserved();
    // The link comes up at the start, and again after each move of the rings if they were unmapped
    // for more than 0.3 s.
    let events = outcome.text("link.jsonl").unwrap();
    let ups = events.lines().filter(|line| line.contains("\"event\":\"up\"")).count();
    assert!((1..=3).contains(&ups), "up {ups} times: {events}");
}

// Goal: a user-space driver (vhost-vdpa) moves rings and buffers to other memory while the device
// runs, together or separately, and adds and removes memory. Every request is answered from the
// current addresses, and the link stays up, with the VDUSE messages of the newest kernel.
#[test]
fn device_follows_moved_memory() {
    follows(Kernel::V7_3);
}

// Goal: moved memory is followed with the VDUSE messages of the older interface too.
#[test]
fn device_follows_moved_memory_on_an_older_kernel() {
    follows(Kernel::V6_12);
}
