//! Memory rule: the number of payload copies for every pairing of RX and TX queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqnet_af_xdp::RequestedMode;
use mqnet_conformance::rigs::{self, Folder};
use mqnet_conformance::{Rig, frame};
use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::QueuePairStats;
use mqnet_shmem::copies;

/// Sends frames through the rig `from`, a lane and the rig `to`; returns `to` and the payload
/// copies per frame.
fn copies_per_frame(mut from: Rig, mut to: Rig) -> (Rig, f64) {
    let stats: Arc<QueuePairStats> = to.tx_stats.clone();
    let frame_max = from.frame_max.min(to.frame_max);
    let nothing = rigs::loopback();
    let (lane_rx, lane_tx) =
        (std::mem::replace(&mut from.rx, nothing.rx), std::mem::replace(&mut to.tx, nothing.tx));
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let mut lane = Lane::new(id, lane_rx, lane_tx, frame_max, None, stats).expect("lane");
    let (mut expected, mut made) = (0u32, 0u64);
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0..500u32 {
        assert_eq!(from.send(&[frame(number, 60 + number as usize)]), 1);
        loop {
            let before = copies::made();
            let moved = lane.poll(|| Duration::ZERO).expect("poll").frames;
            made += copies::made() - before;
            for got in to.drain() {
                assert_eq!(got, expected);
                expected += 1;
            }
            if expected > number && moved == 0 {
                break;
            }
            assert!(Instant::now() < deadline, "stuck at frame {number}");
        }
    }
    drop((from, lane));
    (to, made as f64 / 500.0)
}

// Goal: in every pairing of RX and TX queues, the lane copies a payload as often as the memory rule
// states.
#[test]
fn every_pairing_obeys_the_memory_rule() {
    if !rigs::own_network() {
        return;
    }
    // Messages name the lane's RX queue and then its TX queue: "brings" is an owning queue,
    // "borrows" a system-call queue.
    let (_, n) = copies_per_frame(rigs::ntb(2 << 20), rigs::ntb(2 << 20));
    assert_eq!(n, 1.0, "brings -> brings");
    let (_, n) = copies_per_frame(rigs::ntb(2 << 20), rigs::loopback());
    assert_eq!(n, 1.0, "brings -> brings (page pool)");
    let (_, n) = copies_per_frame(rigs::taps(), rigs::ntb(2 << 20));
    assert_eq!(n, 0.0, "borrows -> brings");
    let (_, n) = copies_per_frame(rigs::taps(), rigs::ntb(24 << 10));
    assert_eq!(n, 0.0, "borrows -> brings, of which there is little but enough");
    let (_, n) = copies_per_frame(rigs::ntb(2 << 20), rigs::taps());
    assert_eq!(n, 0.0, "brings -> borrows");
    let (_, n) = copies_per_frame(rigs::taps(), second_taps());
    assert_eq!(n, 0.0, "borrows -> borrows");
    let slots = || rigs::ntb_transport(2 << 20, 65_536);
    let (_, n) = copies_per_frame(slots(), slots());
    assert_eq!(n, 1.0, "brings -> brings (slots)");
    let (_, n) = copies_per_frame(rigs::taps(), slots());
    assert_eq!(n, 0.0, "borrows -> brings (slots)");
    let (_, n) = copies_per_frame(slots(), rigs::taps());
    assert_eq!(n, 0.0, "brings -> borrows (slots)");
}

// Goal: AF_XDP queues are owning queues in both directions, and mqnet copies no frame between them
// and a TAP.
#[test]
fn an_interface_obeys_the_memory_rule() {
    if !rigs::own_network() {
        return;
    }
    let nics = || rigs::nics(RequestedMode::Auto);
    let (_, n) = copies_per_frame(nics(), rigs::ntb(2 << 20));
    assert_eq!(n, 1.0, "interface -> bridge");
    let (_, n) = copies_per_frame(rigs::ntb(2 << 20), nics());
    assert_eq!(n, 1.0, "bridge -> interface");
    let (_, n) = copies_per_frame(nics(), rigs::taps());
    assert_eq!(n, 0.0, "interface -> TAP");
    let (_, n) = copies_per_frame(rigs::taps(), nics());
    assert_eq!(n, 0.0, "TAP -> interface");
}

/// Second pair of TAPs, on another kernel bridge in the same namespace.
fn second_taps() -> Rig {
    let (a, near, _) = rigs::tap("tc", 9000);
    let (b, far, _) = rigs::tap("td", 9000);
    for line in [
        "link add br1 type bridge mcast_snooping 0",
        "link set tc master br1 up",
        "link set td master br1 up",
        "link set br1 up",
    ] {
        let done = std::process::Command::new("ip").args(line.split(' ')).status();
        assert!(done.expect("ip").success(), "{line}");
    }
    let (tx_stats, rx_stats) = {
        use mqnet_netdev::Function;
        (a.stats()[0].clone(), b.stats()[0].clone())
    };
    Rig {
        name: "tap",
        tx: near.tx,
        rx: far.rx,
        tx_stats,
        rx_stats,
        frame_max: 9014,
        lossless: false,
        keep: Box::new((near.rx, far.tx, a, b, Folder::new())),
    }
}
