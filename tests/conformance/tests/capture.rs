//! Transparency of a capture: captured queues keep the contract, and a capture adds no payload copy
//! to a lane (one exception).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mqnet_conformance::{Rig, frame, number_of, rigs, suite};
use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::wrap::capture::{
    CaptureConfig, CaptureDirection, CaptureReader, tap, unwrap_rx, unwrap_tx, wrap_rx, wrap_tx,
};
use mqnet_netdev::{Burst, DropReason, Function, Rx, Tx};
use mqnet_shmem::{Span, copies};
use mqnet_wire::VnetHdr;

/// Lock that serializes the tests: the suite counts descriptors of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(drops_only: bool) -> CaptureConfig {
    let direction = CaptureDirection::Inbound;
    let (snaplen, ring_bytes) = (70_000, 4 << 20);
    CaptureConfig { channel: 0, direction, drops_only, snaplen, ring_bytes, clock: || 0 }
}

/// Adds a capture to both queues of a rig: all frames at the RX queue, drops at the TX queue.
/// Returns the reader of the RX capture.
fn tapped(rig: Rig) -> (Rig, CaptureReader) {
    let (rx_tap, reader) = tap(config(false));
    let (tx_tap, _) = tap(config(true));
    let rx = wrap_rx(rig.rx, rx_tap);
    let tx = wrap_tx(rig.tx, tx_tap, rig.tx_stats.clone());
    (Rig { rx, tx, ..rig }, reader)
}

fn whole_suite(make: &mut dyn FnMut() -> Rig) {
    let mut make = || tapped(make()).0;
    let _alone = alone();
    suite::frames_arrive_in_order(&mut make());
    suite::partial_bursts_lose_nothing(&mut make());
    suite::full_is_an_outcome(&mut make());
    suite::an_armed_queue_is_woken(&mut make());
    suite::a_stopped_queue_is_woken(&mut make());
    suite::counters_add_up(&mut make());
    suite::closing_returns_everything(&mut make);
}

// Goal: loopback device and bridge keep the contract during a capture, also if every burst is
// partial.
#[test]
fn loopback_and_bridge_under_capture() {
    whole_suite(&mut rigs::loopback);
    whole_suite(&mut || rigs::ntb(2 << 20));
    whole_suite(&mut || rigs::ntb(80 << 10));
}

// Goal: a TAP keeps the contract during a capture.
#[test]
fn tap_under_capture() {
    let own_network = {
        // Take the lock, because entering the namespace opens descriptors, which other tests count.
        let _alone = alone();
        rigs::own_network()
    };
    if own_network {
        whole_suite(&mut rigs::taps);
    }
}

/// Sends frames from one rig through a captured lane to another rig. Asserts the number of copies
/// per frame, that every frame is captured once and complete, and that the lane returns the queues
/// unchanged.
fn crosses(mut from: Rig, mut to: Rig, copies_per_frame: u64) {
    let stats = to.tx_stats.clone();
    let frame_max = from.frame_max.min(to.frame_max);
    let nothing = rigs::loopback();
    let rx = std::mem::replace(&mut from.rx, nothing.rx);
    let tx = std::mem::replace(&mut to.tx, nothing.tx);
    let (rx_tap, mut reader) = tap(config(false));
    let (tx_tap, mut dropped) = tap(config(true));
    let (rx_brings, tx_brings) = (matches!(rx, Rx::Owning(_)), matches!(tx, Tx::Owning(_)));
    let (rx, tx) = (wrap_rx(rx, rx_tap), wrap_tx(tx, tx_tap, stats.clone()));
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let mut lane = Lane::new(id, rx, tx, frame_max, None, stats).expect("lane");
    let (mut made, mut arrived) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0..300 {
        assert_eq!(from.send(&[frame(number, 60 + number as usize)]), 1);
        while arrived <= number {
            let before = copies::made();
            lane.poll(|| Duration::ZERO).expect("poll");
            made += copies::made() - before;
            arrived += to.drain().len() as u32;
            assert!(Instant::now() < deadline, "stuck at frame {number}");
        }
    }
    assert_eq!(made, 300 * copies_per_frame, "payload copies");
    let mut frames = Vec::new();
    assert_eq!(reader.take(&mut frames), 0);
    let numbers: Vec<u32> = frames.iter().filter_map(|frame| number_of(&frame.bytes)).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    assert_eq!(dropped.take(&mut frames), 0);
    assert_eq!(frames.len(), numbers.len());
    let (rx, tx) = lane.into_queues(Duration::ZERO);
    let ((rx, rx_tap), (tx, tx_tap)) = (unwrap_rx(rx), unwrap_tx(tx));
    assert_eq!((matches!(rx, Rx::Owning(_)), rx_tap.is_some()), (rx_brings, true));
    assert_eq!((matches!(tx, Tx::Owning(_)), tx_tap.is_some()), (tx_brings, true));
}

// Goal: in every pairing of real queues a capture contains each frame once and adds no payload
// copy. There is one exception: a frame received into the memory of a sink with captured drops is
// copied once, because the sink may drop the frame.
#[test]
fn lanes_under_capture() {
    let _alone = alone();
    crosses(rigs::ntb(2 << 20), rigs::ntb(2 << 20), 1);
    crosses(rigs::ntb(2 << 20), rigs::loopback(), 1);
    if rigs::own_network() {
        crosses(rigs::taps(), rigs::ntb(2 << 20), 1);
        crosses(rigs::ntb(2 << 20), rigs::taps(), 0);
    }
}

// Goal: a frame that the kernel rejects is captured with the reason; frames before and after it are
// not captured.
#[test]
fn a_refused_frame_is_captured() {
    let _alone = alone();
    if !rigs::own_network() {
        return;
    }
    let (tap_device, channel, _) = rigs::tap("te", 1500);
    let stats = tap_device.stats()[0].clone();
    let (tx_tap, mut dropped) = tap(config(true));
    let Tx::Syscall(mut tx) = wrap_tx(channel.tx, tx_tap, stats.clone()) else { panic!("shape") };
    let mut send = |number| {
        let bytes = frame(number, 100);
        let mut burst = Burst::new();
        burst.push(VnetHdr::default(), 100, Span::of(&bytes));
        assert_eq!(tx.submit(&burst, 0).expect("submit"), 1);
    };
    // The device is still down, so the kernel rejects the frame.
    send(1);
    let up = std::process::Command::new("ip").args(["link", "set", "te", "up"]).status();
    assert!(up.expect("ip").success());
    send(2);
    let mut frames = Vec::new();
    assert_eq!(dropped.take(&mut frames), 0);
    assert_eq!(frames.len() as u64, stats.tx.drops.total());
    assert_eq!(frames.len(), 1);
    assert_eq!(number_of(&frames[0].bytes), Some(1));
    assert_eq!(frames[0].drop_reason, Some(DropReason::DeviceDown));
}
