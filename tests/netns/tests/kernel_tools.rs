//! State of a link as shown by `ip` and `ethtool`.

use mqnet_testkit::{Host, Need, World, has, until};

/// Current number of combined channels in `ethtool -l`.
fn combined(host: &Host, device: &str) -> u32 {
    let text = host.run(&["ethtool", "-l", device]);
    let current = text.split_once("Current hardware settings:").expect("current settings").1;
    let line = current.lines().find_map(|line| line.strip_prefix("Combined:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("no number: {text}"))
}

const NEEDS: [Need; 2] = [Need::Root, Need::Program("ethtool")];

// Goal: stock `ethtool -l` reports the number of running channels.
#[test]
fn ethtool_shows_the_channels() {
    if !has(&NEEDS) {
        return;
    }
    for channels in [1, 3, 4] {
        let world = World::create();
        let pair = world.pair(|end| end.channels(channels));
        assert_eq!(combined(&world.a, "a"), u32::from(channels));
        assert_eq!(combined(&world.b, "b"), u32::from(channels));
        pair.stop();
    }
}

// Goal: two ends that request different numbers of channels use the smaller number, and both TAPs
// report this number.
#[test]
fn the_smaller_number_of_channels_wins() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let a = world.end_a().channels(4).spawn();
    let b = world.end_b().channels(2).spawn();
    for end in [&a, &b] {
        let text = end.wait_up(1);
        assert!(text.contains("2 channels"), "{text}");
    }
    assert_eq!((combined(&world.a, "a"), combined(&world.b, "b")), (2, 2));
    // The next peer requests more channels than the last one, so the TAP's parked queues are used
    // again.
    b.stop();
    a.wait_lost(1);
    let b = world.end_b().channels(3).spawn();
    a.wait_up(2);
    b.wait_up(1);
    assert_eq!((combined(&world.a, "a"), combined(&world.b, "b")), (3, 3));
    let (a, b) = (a.stop(), b.stop());
    a.assert_conserved();
    b.assert_conserved();
}

// Goal: large frames are offered to the kernel: segmentation offload is on while the link is up.
#[test]
fn segmentation_offload_is_on() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
        let text = host.run(&["ethtool", "-k", device]);
        for feature in ["tcp-segmentation-offload", "tx-checksumming", "scatter-gather"] {
            assert!(text.contains(&format!("{feature}: on")), "{feature}: {text}");
        }
    }
    pair.stop();
}

// Goal: the carrier is off without a peer, on with a peer, and off after the peer is killed.
#[test]
fn the_carrier_follows_the_link() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let a = world.end_a().spawn();
    until("the TAP is there", || world.a.device("a"));
    a.wait_down("peer");
    assert!(!world.a.has_carrier("a"), "a carrier without a peer");
    let mut b = world.end_b().spawn();
    a.wait_up(1);
    b.wait_up(1);
    for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
        until("the carrier is on", || host.has_carrier(device).then_some(()));
    }
    b.kill();
    a.wait_lost(1);
    until("the carrier is off", || (!world.a.has_carrier("a")).then_some(()));
    assert!(world.b.device("b").is_none(), "the TAP of a dead process is still there");
    a.stop().assert_conserved();
}

// Goal: `persist` keeps the TAP and its address after its process is killed. The next process uses
// the same TAP with another number of channels.
#[test]
fn a_persistent_tap_outlives_its_process() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let mut a = world.end_a().tap("persist").channels(4).spawn();
    let b = world.end_b().channels(4).spawn();
    a.wait_up(1);
    a.kill();
    assert!(!world.a.has_carrier("a"), "a carrier without a process");
    assert!(world.a.run(&["ip", "addr", "show", "dev", "a"]).contains("10.0.0.1/24"));
    let a = world.end_a().tap("persist").channels(2).spawn();
    a.wait_up(1);
    b.wait_up(2);
    assert_eq!((combined(&world.a, "a"), combined(&world.b, "b")), (2, 2));
    until("the carrier is on", || world.a.has_carrier("a").then_some(()));
    a.stop();
    b.stop().assert_conserved();
}
