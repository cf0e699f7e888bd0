//! Frames written to a TAP with one system call per burst, or per frame.

use mqnet_testkit::{Need, World, has};

use crate::load::Load;
use crate::resize::{often, stop_perfect};

/// Datagrams in each direction between two changes.
const BETWEEN: u64 = 200;

/// Makes 60 changes of the channels under UDP and TCP in both directions, without loss, duplicates
/// or reordering.
fn resizes(io: &str) {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).tap(io));
    let mut load = Load::start(&world.a, &world.b, true);
    for channels in [8, 2, 1].into_iter().cycle().take(60) {
        let words = format!("ethtool -L a combined {channels}");
        let output = load.during(BETWEEN, || world.tell(&words));
        assert_eq!(output, "", "{io}: to {channels}");
    }
    load.finish_perfect(io);
    stop_perfect(pair);
}

// Goal: channels are added and removed while bursts are written through io_uring.
#[test]
fn resizes_with_bursts() {
    resizes("io=uring");
}

// Goal: channels are added and removed while frames are written one by one.
#[test]
fn resizes_one_by_one() {
    resizes("io=plain");
}
