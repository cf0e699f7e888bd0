//! Changes of the number of channels under traffic.

use std::time::{Duration, Instant};

use mqnet_testkit::{Host, Need, Pair, World, has, until};

use crate::load::{Load, NO_CHANGE, assert_monotonic};

/// Datagrams in each direction between two changes.
const BETWEEN: u64 = 200;

/// Number of channels of a kernel device.
pub(crate) fn kernel_channels(host: &Host, device: &str) -> u16 {
    let info = host.device(device).expect("the device");
    info["linkinfo"]["info_data"]["numqueues"].as_u64().unwrap_or(1) as u16
}

/// Waits until both ends, and the devices of both kernels, have this number of channels.
#[track_caller]
pub(crate) fn wait_channels(world: &World, channels: u16) {
    for dev in ["a", "b"] {
        until("both ends agree", || (world.channels(dev) == channels).then_some(()));
    }
    for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
        let there = || (kernel_channels(host, device) == channels).then_some(());
        until("the kernel's device has as many queues", there);
    }
}

/// Maximum number of frames (neighbour solicitations) that a kernel sends on its own between the
/// ends of the two processes.
const FEW: u64 = 16;

/// Ends the link and asserts that nothing was dropped or lost, and that it was always up. A few
/// frames of the second kernel (neighbour solicitations) may be lost after the first end has ended.
#[track_caller]
pub(crate) fn stop_perfect(pair: Pair) {
    pair.a.wait_quiet();
    assert_eq!((pair.a.ups(), pair.b.ups()), (1, 1), "the link went down during the changes");
    [&pair.a, &pair.b].into_iter().for_each(assert_monotonic);
    for end in [&pair.a, &pair.b] {
        let (out, back) = end.next_status();
        let lost = [&out, &back].map(|lane| (lane.drops, lane.tx_lost));
        assert_eq!(lost, [(0, 0); 2], "drops, lost: {out:?} {back:?}");
    }
    let (a, b) = pair.stop();
    for end in [&a, &b] {
        assert_eq!([end.out().drops, end.back().drops], [0, 0], "{}", end.0);
    }
    assert_eq!([a.out().tx_lost, a.back().tx_lost], [0, 0], "{}", a.0);
    assert_eq!(b.back().tx_lost, 0, "{}", b.0);
    assert!(b.out().tx_lost <= FEW, "{} frames had no peer any more: {}", b.out().tx_lost, b.0);
}

pub(crate) fn often(end: mqnet_testkit::EndSpec) -> mqnet_testkit::EndSpec {
    end.argument("--interval-ms").argument("20")
}

// Goal: without any change of channels, the traffic of these tests has no loss. Its pauses are the
// reference for the tests with changes.
#[test]
fn nothing_changes() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).channels(8));
    let mut load = Load::start(&world.a, &world.b, true);
    for _ in 0..100 {
        load.during(BETWEEN, || ());
    }
    load.finish_perfect(NO_CHANGE);
    stop_perfect(pair);
}

// Goal: 200 changes 1 -> 8 -> 2 -> 1, requested at one end, under UDP and TCP in both directions,
// cause no loss, duplicates or reordering. Counters of closed channels are kept.
#[test]
fn two_hundred_resizes_from_one_end() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(often);
    let mut load = Load::start(&world.a, &world.b, true);
    let begin = Instant::now();
    for (resize, channels) in [8, 2, 1].into_iter().cycle().take(200).enumerate() {
        let words = format!("ethtool -L a combined {channels}");
        let output = load.during(BETWEEN, || world.tell(&words));
        assert_eq!(output, "", "resize {resize} to {channels}");
        if resize % 20 < 3 {
            wait_channels(&world, channels);
        }
    }
    let each = begin.elapsed() / 200;
    println!("a resize, {BETWEEN} datagrams and the command took {each:?}");
    load.finish_perfect("200 resizes from one end");
    assert_eq!(pair.a.events("changed").len(), 200);
    assert_eq!(pair.b.events("changed").len(), 200);
    stop_perfect(pair);
}

// Goal: 200 changes, requested at each end alternately, cause no loss. The smaller number of both
// requests applies, both ends report this number, and the end that requested more gets a warning.
#[test]
fn two_hundred_resizes_from_either_end() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).channels(1));
    let mut load = Load::start(&world.a, &world.b, true);
    let mut wanted = [1u16, 1];
    for (resize, channels) in [8, 8, 2, 3, 8, 1, 5, 4, 1].into_iter().cycle().take(200).enumerate()
    {
        let end = resize % 2;
        wanted[end] = channels;
        let settled = wanted[0].min(wanted[1]);
        let words = format!("ethtool -L {} combined {channels}", ["a", "b"][end]);
        // The request succeeds even if the other end is still completing the previous change.
        let output = load.during(BETWEEN, || world.tell(&words));
        let note = format!("netlink warning: {settled} channels: ");
        match channels == settled {
            true => assert_eq!(output, "", "resize {resize} to {channels}"),
            false => assert!(output.starts_with(&note), "resize {resize} to {channels}: {output}"),
        }
        if resize % 20 < 3 {
            wait_channels(&world, settled);
        }
    }
    load.finish_perfect("200 resizes from either end");
    stop_perfect(pair);
}

// Goal: both ends repeatedly change their requests at the same time. In the end both have the same
// number of channels, and nothing is lost.
#[test]
fn both_ends_at_once() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(often);
    let mut load = Load::start(&world.a, &world.b, false);
    for round in 0..25u16 {
        let wanted = [1 + round % 8, 8 - (round * 3) % 8];
        load.during(BETWEEN, || {
            std::thread::scope(|scope| {
                for (dev, channels) in ["a", "b"].into_iter().zip(wanted) {
                    let world = &world;
                    let words = format!("ethtool -L {dev} combined {channels}");
                    scope.spawn(move || world.tell(&words));
                }
            });
        });
        wait_channels(&world, wanted[0].min(wanted[1]));
    }
    load.finish_perfect("both ends at once");
    stop_perfect(pair);
}

// Goal: changes from 1 to 64 channels and back, in one step each, lose nothing.
#[test]
fn sixty_four_and_back() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(often);
    let mut load = Load::start(&world.a, &world.b, true);
    for channels in [64, 1, 64, 17, 64, 2, 1] {
        let words = format!("ethtool -L b combined {channels}");
        assert_eq!(load.during(BETWEEN, || world.tell(&words)), "");
        wait_channels(&world, channels);
    }
    let refused = world.ask("ethtool -L b combined 65");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("requested channel count exceeds maximum"), "{refused:?}");
    load.finish_perfect("64 channels");
    stop_perfect(pair);
}

// Goal: the memory and the descriptors of a link do not grow with the number of changes.
#[test]
fn resizes_leave_nothing_behind() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    let load = Load::start(&world.a, &world.b, false);
    let round = |times: usize| {
        for channels in [8, 2, 1].into_iter().cycle().take(times * 3) {
            world.tell(&format!("ethtool -L a combined {channels}"));
        }
        wait_channels(&world, 1);
        std::thread::sleep(Duration::from_millis(100));
        [&pair.a, &pair.b].map(|end| {
            let pid = end.pid();
            (mqnet_testkit::waiting_descriptor_kinds(pid), mqnet_testkit::threads(pid))
        })
    };
    // Anonymous memory only: windows are excluded, because each number of channels uses other pages
    // of a window.
    let resident = || [&pair.a, &pair.b].map(|end| mqnet_testkit::anonymous_kib(end.pid()));
    let before = (round(3), resident());
    let after = (round(30), resident());
    println!("(descriptors, threads), KiB: {before:?}, after 90 more {after:?}");
    assert_eq!(before.0, after.0, "descriptors, threads: a leak");
    for (before, after) in before.1.into_iter().zip(after.1) {
        assert!(after <= before + 4096, "KiB resident: {before} before, {after} after");
    }
    load.finish_perfect("90 resizes");
    drop(pair);
}
