//! `rx-locality=learn`: flows move to the queue on which their receiver sends.

use std::time::Duration;

use mqnet_testkit::{Flows, LinkProcess, Need, World, has, until};

use crate::load::Load;
use crate::resize::{often, stop_perfect};

/// Number of flows per direction: enough that many buckets have flows of both directions.
const FLOWS: usize = 64;
const PACE: Duration = Duration::from_millis(32);

/// Indirection table of a device: the queue of each bucket.
pub(crate) fn table(world: &World, device: &str) -> Vec<u16> {
    let output = world.ask(&format!("ethtool -x {device}")).out;
    let rows = output.lines().filter_map(|line| line.split_once(':'));
    let rows = rows.filter(|(first, _)| first.trim().parse::<u16>().is_ok());
    let queues = |row: &str| row.split_whitespace().map(|q| q.parse().expect("a queue")).collect();
    let table: Vec<u16> = rows.flat_map(|(_, row)| -> Vec<u16> { queues(row) }).collect();
    assert_eq!(table.len(), 128, "{output}");
    table
}

/// Number of buckets with the same queue at `a` and `b`.
fn alike(world: &World) -> usize {
    let (a, b) = (table(world, "a"), table(world, "b"));
    a.iter().zip(&b).filter(|(a, b)| a == b).count()
}

// Goal: when `b` moves its flows to other queues, the learning end `a` moves their opposite
// direction to the same queues. Repeated moves under TCP and UDP cause no loss, duplicates or
// reordering. A table set by a user at `a` is kept.
#[test]
fn flows_follow_the_other_direction() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let b = often(world.end_b()).channels(4).spawn();
    let a = often(world.end_a()).ntb("rx-locality=learn").channels(4).spawn();
    let pair = mqnet_testkit::Pair { a, b };
    pair.a.wait_up(1);
    pair.b.wait_up(1);
    let load = Load::start(&world.a, &world.b, true);
    let flows = [
        Flows::start(&world.a, &world.b, "10.0.0.2", FLOWS, PACE),
        Flows::start(&world.b, &world.a, "10.0.0.1", FLOWS, PACE),
    ];
    let idle = table(&world, "a");
    for spread in ["weight 0 0 0 1", "equal 1", "weight 1 1 1 1"] {
        world.tell(&format!("ethtool -X b {spread}"));
        // Of 128 buckets, a quarter match by chance; the other matches are buckets with a flow of
        // `b`.
        let count = until("flows move", || Some(alike(&world)).filter(|count| *count >= 64));
        load.wait_more(1000);
        println!("{spread}: {count} buckets are alike, {} then", alike(&world));
    }
    assert_ne!(table(&world, "a"), idle);
    world.tell("ethtool -X a equal 2");
    world.tell("ethtool -X b weight 0 0 1 1");
    let set = table(&world, "a");
    load.wait_more(10_000);
    assert_eq!(table(&world, "a"), set, "a table that a user set has changed");
    for (flows, which) in flows.into_iter().zip(["forth", "back"]) {
        flows.finish().assert_perfect(which);
    }
    load.finish_perfect("flows that follow");
    stop_perfect(pair);
}

// Goal: `rx-locality=learn` is refused with the reason for an endpoint without an indirection
// table.
#[test]
fn only_tables_can_follow() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let output = world.ask("link null: null:,rx-locality=learn");
    let why = "rx-locality=learn: null: has no indirection table";
    assert!(output.code != Some(0) && output.err.contains(why), "{output:?}");
    let output = world.ask("link tap:x null:,rx-locality=on");
    assert!(output.err.contains("rx-locality=on: must be off or learn"), "{output:?}");
}

/// Frames received by each queue of the device of the end.
fn arrived(link: &LinkProcess) -> Vec<u64> {
    let before = link.lines().len();
    let line = link.wait_for("the next status", |lines| {
        lines[before..].iter().rev().find(|line| line["channels"].is_array()).cloned()
    });
    let channels = line["channels"].as_array().expect("channels").iter();
    channels.map(|one| one["a-to-b"]["rx-packets"].as_u64().expect("a number")).collect()
}

// Goal: flow rules override the table when added and release the flows when removed, repeatedly
// under traffic, without loss, duplicates or reordering. Rules are printed in the format of
// ethtool, and queues that they name cannot be removed.
#[test]
fn rules_move_flows_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).channels(4));
    let mut load = Load::start(&world.a, &world.b, false);
    for (round, queue) in [3, 0, 2, 1, 3].into_iter().enumerate() {
        let words = format!("ethtool -N a flow-type udp4 action {queue} loc 7");
        assert_eq!(load.during(200, || world.tell(&words)), "", "{words}");
        let before = arrived(&pair.a);
        load.wait_more(2000);
        let after = arrived(&pair.a);
        let news: Vec<u64> =
            after.iter().zip(&before).map(|(after, before)| after - before).collect();
        println!("queue {queue}: {news:?}");
        assert!(news[queue] >= 1000, "round {round}, queue {queue}: {news:?}");
        let others = news.iter().sum::<u64>() - news[queue];
        assert!(others < 100, "round {round}, queue {queue}: {news:?}");
    }
    let added = world.ask("ethtool -N a flow-type tcp6 dst-port 80 action 1").out;
    assert_eq!(added.trim_end(), "Added rule with ID 63");
    let shown = world.ask("ethtool -n a").out;
    assert!(shown.starts_with("4 RX rings available\nTotal 2 rules\n\nFilter: 7\n"), "{shown}");
    assert!(shown.ends_with("mask: 0x0\n\tAction: Direct to queue 1\n\n"), "{shown}");
    let refused = world.ask("ethtool -L a combined 3");
    let text = "requested channel counts are too low for existing ntuple filter settings";
    assert!(refused.code == Some(1) && refused.err.contains(text), "{refused:?}");
    load.during(200, || world.tell("ethtool -N a delete 7"));
    let before = arrived(&pair.a);
    load.wait_more(2000);
    let after = arrived(&pair.a);
    let used = after.iter().zip(&before).filter(|(after, before)| after > before).count();
    assert!(used > 1, "the table has its flows again: {before:?} {after:?}");
    world.tell("ethtool -N a delete 63");
    assert_eq!(world.tell("ethtool -L a combined 2"), "");
    load.finish_perfect("rules");
    stop_perfect(pair);
}
