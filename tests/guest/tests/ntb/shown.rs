//! Verbs, metrics and captures of a link to the kernel's `ntb_netdev`.

use std::process::Command;

use mqnet_testkit::{Control, Host, until};
use serde_json::Value;

/// Name of mqnet's netdev, number of its open queue pairs, and number of all queue pairs.
const DEV: &str = "n";
const OPEN: usize = 4;
const ALL: usize = 8;

/// Asserts that each view describes the link: protocol, queue pairs, windows, slots, credits and
/// vectors.
pub(super) fn check(control: &Control, host: &Host) {
    show(control);
    ethtool(control);
    let all = control.json(&["ynl", "--output-json", "--dump", "qstats-get"]);
    let counts = |one: &Value| one["rx-packets"].as_u64() > Some(0);
    assert!(all.as_array().expect("a list").iter().filter(|one| counts(one)).count() >= 4, "{all}");
    let why = control.ok(&["why", DEV]);
    assert!(why.contains("nothing is stopped"), "{why}");
    metrics(control);
    capture(control, host);
}

fn show(control: &Control) {
    let show = control.json(&["show", "--json", "eight"]);
    let devices = show[0]["netdevs"].as_array().expect("network devices");
    let dev = devices.iter().find(|dev| dev["name"] == DEV).expect("mqnet's end");
    assert_eq!(dev["protocol"], "ntb_transport v4", "{dev}");
    let rings = &dev["slot-rings"];
    assert_eq!((&rings["slot-bytes"], &rings["vectors"]), (&4096.into(), &32.into()), "{rings}");
    let window = &rings["windows"][0];
    assert_eq!(window["bytes"], 4 << 20, "{rings}");
    assert!(window["far-bytes"].as_u64() >= Some(4 << 20), "{rings}");
    let pairs = rings["queue-pairs"].as_array().expect("queue pairs");
    assert_eq!(pairs.len(), ALL, "{rings}");
    for (number, pair) in pairs.iter().enumerate() {
        assert_eq!(pair["open"], number < OPEN, "{pair}");
        assert_eq!(pair["id"], number, "{pair}");
    }
    for count in ["received", "credits"] {
        assert!(pairs.iter().any(|pair| pair[count].as_u64() > Some(0)), "{count}: {rings}");
    }
    let text = control.ok(&["show", "eight"]);
    for words in ["protocol: ntb_transport v4", "queue pair 3  open", "queue pair 4  closed"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
}

fn ethtool(control: &Control) {
    let read = |option: &str| control.ok(&["ethtool", option, DEV]);
    assert!(read("-i").contains("firmware-version: ntb_transport v4"));
    let channels = read("-l");
    let of = |words: &str| {
        let lines = channels.lines().filter(|line| line.starts_with("Combined"));
        lines.map(|line| line.contains(words)).collect::<Vec<_>>()
    };
    assert_eq!((of("8"), of("4")), (vec![true, false], vec![false, true]), "{channels}");
    let rings = read("-g");
    // A queue pair has 512 KiB, or 128 slots of 4 KiB; the indices take one slot.
    assert!(rings.contains("127"), "{rings}");
    let counters = read("-S");
    for name in ["qp0_open: 1", "qp4_open: 0", "qp0_credits", "tx_queue_0_credits"] {
        assert!(counters.contains(name), "no {name} in {counters}");
    }
    let refused = control.say(&["ethtool", "-L", DEV, "combined", "2"]);
    assert!(refused.err.contains("ethtool -L"), "the guest's command: {}", refused.err);
}

fn metrics(control: &Control) {
    let socket = control.runtime("ctl.sock").display().to_string();
    let words = ["-sSf", "--unix-socket", &socket, "http://x/metrics"];
    let output = Command::new("curl").args(words).output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["credits_total", "queue_pair_open", "queue_pair_slots", "queue_pair_slots_in_use"]
    {
        let name = format!("mqnet_{name}{{");
        assert!(text.lines().any(|line| line.starts_with(&name)), "no {name} in {text}");
    }
}

/// Captures pings in both directions at mqnet's end.
fn capture(control: &Control, host: &Host) {
    let path = control.file("ntb.pcapng");
    let file = path.display().to_string();
    let mut capture = control.start(&["capture", DEV, "-c", "6", "-w", &file]);
    until("the capture", || path.exists().then_some(()));
    host.run(&["ping", "-c", "4", "-i", "0.2", "-W", "5", "10.0.0.2"]);
    assert!(capture.wait().success(), "{}", capture.err());
    let fields = ["-r", &file, "-T", "fields", "-e", "icmp.type"];
    let output = Command::new("tshark").args(fields).output().expect("tshark");
    let types = String::from_utf8_lossy(&output.stdout).into_owned();
    for kind in ["8", "0"] {
        assert!(types.lines().any(|line| line == kind), "ICMP {kind} in {types}");
    }
}
