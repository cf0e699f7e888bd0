//! Qdiscs of a running link, under numbered traffic.

use std::time::{Duration, Instant};

use mqnet_testkit::{Flows, Need, Pair, World, has, until};
use serde_json::Value;

use crate::resize::{often, stop_perfect};

const PACE: Duration = Duration::from_millis(2);

/// Qdiscs of a netdev in `mqnet tc -s -j`.
fn qdiscs(world: &World, dev: &str) -> Vec<Value> {
    let list = world.folder().ask_json(&format!("tc -s -j qdisc show dev {dev}"));
    list.as_array().expect("a list").clone()
}

fn root(world: &World, dev: &str) -> Value {
    let all = qdiscs(world, dev);
    all.into_iter().find(|qdisc| qdisc["root"] == true).expect("a root")
}

fn world(channels: u16) -> (World, Pair) {
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(channels)));
    (world, pair)
}

/// Runs each step under flows in both directions; fails on loss, duplicates or reordering.
fn without_loss(channels: u16, steps: &[&str]) {
    let (world, pair) = world(channels);
    let out = Flows::start(&world.a, &world.b, "10.0.0.2", 32, PACE);
    let back = Flows::start(&world.b, &world.a, "10.0.0.1", 32, PACE);
    for step in steps {
        out.wait_more(400);
        back.wait_more(400);
        // Device `b` at host b: frames that leave through this TAP come from host a.
        world.tell(step);
    }
    out.wait_more(400);
    back.wait_more(400);
    out.finish().assert_perfect("a to b");
    back.finish().assert_perfect("b to a");
    stop_perfect(pair);
}

// Goal: channels change while a qdisc sends all frames through one of them, without loss,
// duplicates or reordering.
#[test]
fn channels_change_behind_mqprio_without_loss() {
    if !has(&[Need::Root]) {
        return;
    }
    const MQPRIO: &str = "tc qdisc add dev b root mqprio num_tc 1 \
                          map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 hw 0";
    let changes = ["ethtool -L b combined 2", "ethtool -L b combined 4"].repeat(10);
    without_loss(4, &[&[MQPRIO], &changes[..]].concat());
}

// Goal: qdiscs are added, changed, replaced and deleted under traffic without loss, duplicates or
// reordering.
#[test]
fn disciplines_change_under_traffic_without_loss() {
    if !has(&[Need::Root]) {
        return;
    }
    for channels in [1, 4] {
        without_loss(
            channels,
            &[
                "tc qdisc add dev b root handle 1: pfifo limit 5000",
                "tc qdisc change dev b root handle 1: pfifo limit 10000",
                "tc qdisc replace dev b root handle 2: fq_codel limit 20000 target 1s",
                "tc qdisc change dev b root handle 2: fq_codel limit 30000",
                "tc qdisc replace dev b root handle 3: tbf rate 2gbit burst 1mb limit 10mb",
                "tc qdisc change dev b root handle 3: tbf rate 4gbit burst 1mb limit 10mb",
                "tc qdisc replace dev b root handle 4: mq",
                "tc qdisc del dev b root",
                "tc qdisc add dev b root fq_codel",
                "tc qdisc del dev b root",
            ],
        );
    }
}

// Goal: the backlog of a deleted qdisc arrives, even if the channels change before the backlog has
// been sent.
#[test]
fn backlog_outlives_its_qdisc_and_its_channels() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, pair) = world(4);
    for channels in [2, 4] {
        let mut flows = Flows::start(&world.a, &world.b, "10.0.0.2", 8, PACE);
        // Datagrams of 700 bytes on average, 4000 per second, are about four times the rate of the
        // qdisc.
        world.tell("tc qdisc add dev b root handle 1: tbf rate 6mbit burst 20kb limit 20mb");
        let waiting = || root(&world, "b")["qlen"].as_u64().expect("a number");
        until("a backlog", || (waiting() > 500).then_some(()));
        // No new frames arrive, so that all waiting frames are in the qdisc.
        flows.stop_sending();
        world.tell("tc qdisc del dev b root");
        world.tell(&format!("ethtool -L b combined {channels}"));
        flows.finish().assert_perfect("a to b");
    }
    stop_perfect(pair);
}

// Goal: qdiscs at the bridge's end of a link are added, replaced and deleted without loss,
// duplicates or reordering.
#[test]
fn qdiscs_in_front_of_a_bridge_lose_nothing() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, pair) = world(2);
    let name = world.socket().file_stem().expect("a name").to_string_lossy().into_owned();
    let out = Flows::start(&world.a, &world.b, "10.0.0.2", 32, PACE);
    // The bridges of both processes have this name.
    let refused = world.ask(&format!("tc qdisc add dev {name} root pfifo"));
    assert!(refused.err.contains("ambiguous"), "{}", refused.err);
    for (n, kind) in ["pfifo", "fq_codel", "prio", "pfifo_fast", "mq"].into_iter().enumerate() {
        let verb = if n == 0 { "add" } else { "replace" };
        world.tell(&format!("tc qdisc {verb} dev a/{name} root {kind}"));
        out.wait_more(500);
    }
    out.finish().assert_perfect("a to b");
    stop_perfect(pair);
}

fn sent(world: &World) -> u64 {
    root(world, "b")["bytes"].as_u64().expect("bytes")
}

// Goal: tbf passes at most its configured rate, and nearly that rate. `tc -s qdisc show` counts the
// passed bytes.
#[test]
fn tbf_limits_the_rate() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, pair) = world(1);
    world.tell("tc qdisc add dev b root handle 1: tbf rate 8mbit burst 20kb limit 1mb");
    // 64 flows with a datagram of 700 bytes on average every 2 ms: 179 Mbit/s.
    let flow = Flows::start(&world.a, &world.b, "10.0.0.2", 64, PACE);
    flow.wait_more(500);
    // The rate may be lower for a while: tokens are lost if the engine waits for a CPU for longer
    // than the burst (20 ms).
    until("a second at the whole rate", || {
        let (begin, bytes) = (Instant::now(), sent(&world));
        std::thread::sleep(Duration::from_secs(1));
        let bits = (sent(&world) - bytes) as f64 * 8.0;
        let rate = bits / begin.elapsed().as_secs_f64();
        assert!(rate < 8.4e6, "{rate} bit/s");
        (rate > 7.2e6).then_some(())
    });
    let shown = root(&world, "b");
    assert!(shown["backlog"].as_u64() > Some(0), "{shown}");
    assert!(shown["overlimits"].as_u64() > Some(0), "{shown}");
    let tally = flow.finish();
    assert_eq!((tally.doubled, tally.reordered, tally.wrong), (0, 0, 0), "{tally:?}");
    // No loss is checked: the qdisc, or the full ring of the TAP in front of the link, drops the
    // excess.
    until("the discipline is empty", || (root(&world, "b")["qlen"] == 0).then_some(()));
    pair.stop();
}

// Goal: `tc -s qdisc show` counts the received frames in the format of tc.
#[test]
fn show_counts_what_passes() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, pair) = world(2);
    world.tell("tc qdisc add dev b root handle 1: fq_codel");
    let flow = Flows::start(&world.a, &world.b, "10.0.0.2", 8, PACE);
    flow.wait_more(1000);
    let tally = flow.finish();
    tally.assert_perfect("a to b");
    let packets = root(&world, "b")["packets"].as_u64().expect("packets");
    assert!(packets >= tally.received, "{packets} counted, {} received", tally.received);
    let output = world.ask("tc -s qdisc show dev b");
    let first = output.out.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("qdisc fq_codel 1: root refcnt 3 limit 10240p flows 1024 quantum 1514 "),
        "{}",
        output.out
    );
    assert!(output.out.contains(" pkt (dropped 0, overlimits 0 requeues "), "{}", output.out);
    pair.stop();
}

// Goal: adding an existing qdisc and changing a missing one fail with the errors of tc.
#[test]
fn errors_are_those_of_tc() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, pair) = world(1);
    for (words, err, code) in [
        ("qdisc change dev b root pfifo limit 5", "Error: Qdisc not found.", 2),
        ("qdisc del dev b root", "Error: Cannot delete qdisc with handle of zero.", 2),
        ("qdisc add dev b root pfifo limit abc", "pfifo: Illegal value for \"limit\"", 1),
        ("qdisc add dev b root foo", "Error: Specified qdisc kind is unknown.", 2),
        ("qdisc add dev nope root pfifo", "Cannot find device \"nope\"", 1),
    ] {
        let output = world.ask(&format!("tc {words}"));
        assert_eq!(output.code, Some(code), "{words}: {}", output.err);
        assert!(output.err.starts_with(err), "{words}: {}", output.err);
    }
    world.tell("tc qdisc add dev b root handle 1: pfifo limit 5");
    let output = world.ask("tc qdisc add dev b root handle 1: pfifo limit 6");
    assert_eq!((output.code, output.out.as_str()), (Some(2), ""));
    assert_eq!(output.err, "Error: Exclusivity flag on, cannot modify.\n");
    pair.stop();
}
