//! Peers that are killed under traffic.

use mqnet_testkit::{
    Need, Stream, World, has, resident_kib, threads, until, waiting_descriptor_kinds,
};

/// Minimum number of bytes after which a flow counts as established.
const UNDER_WAY: u64 = 1 << 20;

// Goal: each time that a peer is killed under traffic (100 times), the link only reconnects. No TCP
// connection or byte is lost, and no descriptor, thread or memory is leaked.
#[test]
fn a_peer_killed_a_hundred_times() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    // Let the survivor listen from the start: a later change to the listening end would open two
    // more descriptors.
    let survivor = world.end_a().tap("persist").channels(2).spawn();
    until("it listens", || world.socket().exists().then_some(()));
    let mut victim = world.end_b().tap("persist").channels(2).spawn();
    survivor.wait_up(1);
    victim.wait_up(1);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    let back = Stream::start(&world.b, &world.a, "fd00::1");
    let mut before = None;
    let measure = || {
        let pid = survivor.pid();
        (waiting_descriptor_kinds(pid), threads(pid), resident_kib(pid))
    };
    for kill in 1..=100 {
        flow.wait_more(UNDER_WAY);
        back.wait_more(UNDER_WAY);
        if kill == 4 {
            before = Some(measure());
        }
        victim.kill();
        survivor.wait_lost(kill);
        victim.restart();
        victim.wait_up(1);
        survivor.wait_up(kill + 1);
    }
    flow.wait_more(UNDER_WAY);
    back.wait_more(UNDER_WAY);
    let (after, before) = (measure(), before.expect("a measurement"));
    println!("descriptors, threads, KiB: {before:?} after 3 kills, {after:?} after 100");
    assert_eq!((after.0, after.1), (before.0, before.1), "descriptors, threads: a leak");
    assert!(after.2 <= before.2 + 4096, "KiB resident: {} before, {} after", before.2, after.2);
    flow.finish();
    back.finish();
    victim.wait_quiet();
    let victim = victim.stop();
    victim.assert_conserved();
    let survivor = survivor.stop();
    survivor.assert_conserved();
    println!("frames of the survivor: out {:?}, back {:?}", survivor.out(), survivor.back());
    // The victim's table covers only its last run; the survivor's table covers all runs.
    assert!(survivor.back().rx_packets > victim.out().tx_packets);
}

// Goal: if either the listening or the connecting end is killed, the remaining end reconnects to
// the restarted one.
#[test]
fn either_end_may_die() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.tap("persist"));
    let mut ends = [pair.a, pair.b];
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    let mut ups = [1, 1];
    for round in 0..8 {
        flow.wait_more(UNDER_WAY);
        let dies = round % 2;
        ends[dies].kill();
        ends[dies].restart();
        ups = [ups[0] + 1, ups[1] + 1];
        ups[dies] = 1;
        ends[0].wait_up(ups[0]);
        ends[1].wait_up(ups[1]);
    }
    flow.wait_more(UNDER_WAY);
    flow.finish();
    for end in ends {
        end.stop().assert_conserved();
    }
}

// Goal: both ends may die at the same time, also without `persist`. The first one to restart
// listens again despite the stale socket.
#[test]
fn both_ends_die() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let mut pair = world.pair(|end| end);
    for _ in 0..5 {
        pair.a.kill();
        pair.b.kill();
        assert!(world.socket().exists(), "a killed process cannot remove its socket");
        pair.b.restart();
        pair.a.restart();
        pair.a.wait_up(1);
        pair.b.wait_up(1);
    }
    let flow = Stream::start(&world.a, &world.b, "fd00::2");
    flow.wait_more(UNDER_WAY);
    flow.finish();
    pair.a.wait_quiet();
    pair.stop();
    until("the socket is removed", || (!world.socket().exists()).then_some(()));
}
