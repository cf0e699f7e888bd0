//! Verbs of ethtool and ynl on running links, and their effect as shown by the kernel's own tools.

use std::time::Duration;

use mqnet_testkit::{Control, Datagrams, Host, Need, Running, Stream, World, has, until};
use serde_json::Value;

use crate::control_daemon::tap_to_tap;

/// Starts a daemon with both ends of a bridge: `a` <-> `nl` and `nr` <-> `b`.
pub(crate) fn bridge(world: &World, control: &Control) -> Running {
    let (a, b, socket) = (world.a.name(), world.b.name(), world.socket().display().to_string());
    let text = format!(
        "[link.left]\na = 'tap:a,netns={a},address=10.0.0.1/24'\nb = 'ntb:{socket},name=nl'\n\
         [link.right]\na = 'tap:b,netns={b},address=10.0.0.2/24'\nb = 'ntb:{socket},name=nr'\n\
         channels = 2\n"
    );
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("left");
    control.wait_up("right");
    daemon
}

/// State of a feature in the kernel's `ethtool -k`.
pub(crate) fn kernel_feature(host: &Host, dev: &str, feature: &str) -> String {
    let text = host.run(&["ethtool", "-k", dev]);
    let line = text.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {feature} in {text}")).to_owned()
}

fn our_feature(control: &Control, dev: &str, feature: &str) -> Value {
    control.json(&["ethtool", "--json", "-k", dev])[0][feature]["active"].clone()
}

/// Length of the largest frame captured at `dev` during a stream from host a to host b.
fn largest(world: &World, control: &Control, dev: &str) -> u64 {
    let file = control.file("large.pcapng").display().to_string();
    let words = ["capture", dev, "-s", "100", "-c", "3000", "-w", &file];
    let mut capture = control.start(&words);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    capture.wait();
    flow.finish();
    let fields = ["-T", "fields", "-e", "frame.len"];
    let text = world.a.run(&[&["tshark", "-r", &file][..], &fields].concat());
    text.lines().filter_map(|line| line.parse().ok()).max().expect("frames")
}

// Goal: an offload that is disabled at one end of a bridge is disabled at the TAP of the other end.
// The kernel's ethtool shows this, and the TAP sends no more large frames. Enabling restores it.
#[test]
fn offload_is_disabled_and_enabled() {
    if !has(&[Need::Root, Need::Program("ethtool"), Need::Program("tshark")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let daemon = bridge(&world, &control);
    assert!(largest(&world, &control, "nl") > 4000, "no large frame before");
    control.ok(&["ethtool", "-K", "nl", "tso", "off"]);
    assert_eq!(our_feature(&control, "nl", "tx-tcp-segmentation"), false);
    assert_eq!(our_feature(&control, "b", "tx-tcp-segmentation"), false);
    assert_eq!(our_feature(&control, "nr", "tx-tcp-segmentation"), true);
    until("the kernel's side", || {
        (kernel_feature(&world.a, "a", "tx-tcp-segmentation") == "off").then_some(())
    });
    assert_eq!(kernel_feature(&world.b, "b", "tx-tcp-segmentation"), "on");
    let large = largest(&world, &control, "nl");
    assert!(large <= 1514, "a frame of {large} bytes");
    control.ok(&["ethtool", "-K", "nl", "tso", "on"]);
    assert_eq!(our_feature(&control, "nl", "tx-tcp-segmentation"), true);
    assert_eq!(kernel_feature(&world.a, "a", "tx-tcp-segmentation"), "on");
    daemon.stop();
}

/// Result of `queue-get` for a device: (type, id, napi-id) of each queue.
fn queues(control: &Control, ifindex: &Value) -> Vec<(String, u64, u64)> {
    let request = format!("{{\"ifindex\": {ifindex}}}");
    let list = control.json(&["ynl", "--output-json", "--dump", "queue-get", "--json", &request]);
    let queue = |queue: &Value| {
        let kind = queue["type"].as_str().expect("a type").to_owned();
        (kind, queue["id"].as_u64().expect("an id"), queue["napi-id"].as_u64().expect("a number"))
    };
    list.as_array().expect("a list").iter().map(queue).collect()
}

/// All counters of one device from `qstats-get` without a scope.
fn totals(control: &Control, ifindex: &Value) -> Vec<u64> {
    let list = control.json(&["ynl", "--output-json", "--dump", "qstats-get"]);
    let all = list.as_array().expect("a list");
    let one = all.iter().find(|one| one["ifindex"] == *ifindex).expect("the device");
    let one = one.as_object().expect("counters").iter();
    one.filter(|(name, _)| *name != "ifindex").map(|(_, n)| n.as_u64().expect("a number")).collect()
}

/// Asserts that the page-pool statistics, which are read without stopping the workers, equal the
/// workers' own data.
#[track_caller]
fn pools_are_shown_as_they_are(control: &Control) {
    let uses = |list: &Value| -> Vec<(u64, u64)> {
        let number = |pool: &Value, of: &str| pool[of].as_u64().expect("a number");
        let pools = list.as_array().expect("pools").iter();
        let mut uses: Vec<_> =
            pools.map(|pool| (number(pool, "napi-id"), number(pool, "inflight"))).collect();
        uses.sort_unstable();
        uses
    };
    until("the pools of the statistics", || {
        let asked = control.json(&["ynl", "--output-json", "--dump", "page-pool-get"]);
        let shown = control.json(&["stats", "-j", "one"]);
        let (asked, shown) = (uses(&asked), uses(&shown[0]["pools"]));
        (asked == shown && !asked.is_empty()).then_some(())
    });
}

// Goal: queue and NAPI ids of the netdev family are stable during resizes, and totals never
// decrease. A link of two TAPs, which needs page pools, reports them.
#[test]
fn the_netdev_family_is_steady() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    // An ifindex is unique only within its namespace; an additional device makes the ifindexes of
    // the two TAPs differ.
    world.b.run(&["ip", "tuntap", "add", "dev", "first", "mode", "tap"]);
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    let ifindex = control.wait_up("one")["netdevs"][0]["ifindex"].clone();
    world.a.lengthen("onea");
    control.ok(&["ethtool", "-L", "onea", "combined", "4"]);
    let four = queues(&control, &ifindex);
    assert_eq!(four.len(), 8, "{four:?}");
    let flow = Datagrams::start(&world.a, &world.b, "10.9.1.2", 500, Duration::from_micros(50));
    let mut last = totals(&control, &ifindex);
    for channels in ["1", "8", "2", "4"] {
        control.ok(&["ethtool", "-L", "onea", "combined", channels]);
        flow.wait_more(200);
        let now = totals(&control, &ifindex);
        let grows = last.iter().zip(&now).all(|(before, after)| before <= after);
        assert!(grows && last.iter().sum::<u64>() < now.iter().sum(), "{last:?} {now:?}");
        last = now;
        let queues = queues(&control, &ifindex);
        assert_eq!(queues.len(), 2 * channels.parse::<usize>().expect("a number"));
        let kept = queues.iter().filter(|queue| queue.1 < 4);
        assert!(kept.clone().all(|queue| four.contains(queue)), "{four:?} {queues:?}");
    }
    let pools = control.json(&["ynl", "--output-json", "--dump", "page-pool-get"]);
    let stats = control.json(&["ynl", "--output-json", "--dump", "page-pool-stats-get"]);
    assert_eq!(pools.as_array().map(Vec::len), Some(8), "{pools}");
    for (pool, stats) in pools.as_array().unwrap().iter().zip(stats.as_array().unwrap()) {
        assert_eq!(pool["id"], stats["info"]["id"]);
        let request = format!("{{\"id\": {}}}", pool["napi-id"]);
        let napi = control.json(&["ynl", "--output-json", "--do", "napi-get", "--json", &request]);
        assert_eq!(napi["ifindex"], pool["ifindex"]);
    }
    let (sent, received) = flow.finish();
    assert_eq!(sent, received);
    // Traffic to `oneb` has allocated pages of its page pools.
    for change in
        ["", "add dev oneb root fq_codel", "replace dev oneb root mq", "del dev oneb root"]
    {
        if !change.is_empty() {
            control.ok(&["tc", "qdisc"].into_iter().chain(change.split(' ')).collect::<Vec<_>>());
        }
        pools_are_shown_as_they_are(&control);
    }
    for (operation, request) in [
        ("queue-get", format!("{{\"ifindex\": {ifindex}, \"id\": 9, \"type\": \"rx\"}}")),
        ("napi-get", "{\"id\": 1}".to_owned()),
        ("page-pool-get", "{\"id\": 1}".to_owned()),
    ] {
        let printed = control.say(&["ynl", "--do", operation, "--json", &request]);
        // Errors are written to stdout, as by the kernel's ynl tool.
        assert_eq!((printed.code, printed.err.as_str()), (Some(1), ""), "{operation}: {printed:?}");
        assert!(printed.out.starts_with("Netlink error: "), "{operation}: {printed:?}");
    }
    daemon.stop();
}

// Goal: settings are reported as they were set, on a TAP and on the end of a bridge.
#[test]
fn settings_are_reported() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let daemon = bridge(&world, &control);
    control.ok(&["ethtool", "-C", "a", "rx-usecs", "77", "tx-frames", "5"]);
    for dev in ["a", "nl"] {
        let coalesce = &control.json(&["ethtool", "--json", "-c", dev])[0];
        assert_eq!((&coalesce["rx-usecs"], &coalesce["tx-frames"]), (&77.into(), &5.into()));
    }
    control.ok(&["ethtool", "-G", "nl", "rx", "64"]);
    assert_eq!(control.json(&["ethtool", "--json", "-g", "nl"])[0]["rx"], 64);
    control.ok(&["ethtool", "-X", "a", "weight", "3", "1"]);
    let table = control.json(&["ethtool", "--json", "-x", "a"]);
    let table = table[0]["rss-indirection-table"].as_array().cloned().unwrap_or_default();
    let first = table.iter().filter(|queue| **queue == 0).count();
    assert_eq!((first, table.len()), (96, 128));
    let printed = control.say(&["ethtool", "-L", "a", "combined", "1"]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.err.contains("too low for existing indirection table"), "{printed:?}");
    control.ok(&["ethtool", "-X", "a", "default"]);
    control.ok(&["ethtool", "--set-priv-flags", "a", "flow-steering", "off"]);
    assert!(control.ok(&["ethtool", "--show-priv-flags", "a"]).contains("flow-steering: off"));
    control.ok(&["ethtool", "--set-priv-flags", "a", "flow-steering", "on"]);
    let printed = control.say(&["set", "a", "channels", "5"]);
    assert_eq!(
        printed.out, "2 channels: the other end was set to 2 (mqnet ethtool -L there)\n",
        "{printed:?}"
    );
    let driver = control.ok(&["ethtool", "-i", "nl"]);
    assert!(driver.starts_with("driver: mqnet-ntb\n"), "{driver}");
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(1 << 20);
    flow.finish();
    let counters = control.ok(&["ethtool", "-S", "nl"]);
    assert!(counters.starts_with("NIC statistics:\n     rx_queue_0_packets: "), "{counters}");
    daemon.stop();
}
