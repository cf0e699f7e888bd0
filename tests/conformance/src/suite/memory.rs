//! Checks of reservations, hold, drain and parking.

use std::time::Instant;

use mqnet_netdev::{Burst, FrameMeta, Rx, Tx};
use mqnet_shmem::{Segments, Span};
use mqnet_wire::VnetHdr;

use super::{PATIENCE, expect_next};
use crate::{Rig, frame};

/// Copies a frame into its reservation; panics if the reservation is too small.
fn place(room: &mut Segments<'_>, bytes: &[u8]) {
    let mut rest = bytes;
    rest = &rest[room.head.copy_from(Span::of(rest))..];
    rest = &rest[room.tail.copy_from(Span::of(rest))..];
    for mut piece in room.more() {
        rest = &rest[piece.copy_from(Span::of(rest))..];
    }
    assert!(rest.is_empty(), "{} bytes have no room", rest.len());
}

/// Checks that frames of any length arrive through a reservation, and that a reservation without a
/// commit sends nothing.
pub fn reservations_carry_frames(rig: &mut Rig) {
    if !matches!(rig.tx, Tx::Owning(_)) {
        return;
    }
    let (max, mut expected) = (rig.frame_max, 0u32);
    let deadline = Instant::now() + PATIENCE;
    for number in 0..300u32 {
        let len = [60, max, 1514, 64, max / 2][number as usize % 5].min(max);
        let bytes = frame(number, len as usize);
        loop {
            assert!(Instant::now() < deadline, "{}: no room for frame {number}", rig.name);
            let Tx::Owning(tx) = &mut rig.tx else { return };
            if number % 3 == 0
                && let Some(mut room) = tx.reserve(max).expect("reserve")
            {
                place(&mut room, &frame(7777, 60));
            }
            if let Some(mut room) = tx.reserve(len).expect("reserve") {
                assert!(room.len() >= len as usize, "{}: {} bytes", rig.name, room.len());
                place(&mut room, &bytes);
                tx.commit(&FrameMeta { len, hdr: VnetHdr::default() });
                tx.flush().expect("flush");
                break;
            }
            expect_next(rig, &mut expected);
        }
        if number % 4 == 0 {
            expect_next(rig, &mut expected);
        }
    }
    while expected < 300 {
        assert!(Instant::now() < deadline, "{}: {expected} of 300 frames arrived", rig.name);
        expect_next(rig, &mut expected);
    }
}

/// Checks that a held owning queue delivers no frame until its release, and then delivers all in
/// order. After all frames were received, the queue reports that it is drained.
pub fn held_frames_wait(rig: &mut Rig) {
    let (mut sent, mut expected) = (0u32, 0u32);
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..10 {
        rig.tx.hold(true).expect("hold");
        let is_held = matches!(rig.tx, Tx::Owning(_));
        let frames: Vec<_> = (sent..sent + 20).map(|number| frame(number, 200)).collect();
        sent += rig.send(&frames) as u32;
        if is_held {
            assert!(rig.drain().is_empty(), "{}: a held frame was seen", rig.name);
        }
        rig.tx.hold(false).expect("let go");
        while expected < sent {
            assert!(Instant::now() < deadline, "{}: {expected} of {sent} frames came", rig.name);
            expect_next(rig, &mut expected);
        }
        while !rig.tx.is_drained().expect("drained") {
            assert!(Instant::now() < deadline, "{}: it is never drained", rig.name);
            rig.drain();
        }
        let Some(fill) = rig.tx.fill(0).expect("fill") else { continue };
        assert!(fill.used <= fill.size, "{}: {fill:?}", rig.name);
    }
    // After the release, the queue accepts frames.
    while rig.send(&[frame(sent, 100)]) == 0 {
        assert!(Instant::now() < deadline, "{}: full after it was held", rig.name);
    }
    while expected == sent {
        assert!(Instant::now() < deadline, "{}: frame {sent} did not come", rig.name);
        expect_next(rig, &mut expected);
    }
}

/// Checks that parked queues lose no frame: after a park, the next peek returns all frames again
/// that were not released.
pub fn parked_queues_go_on(rig: &mut Rig) {
    let (mut sent, mut expected) = (0u32, 0u32);
    let deadline = Instant::now() + PATIENCE;
    for round in 0..20u32 {
        let frames: Vec<_> = (sent..sent + 10).map(|number| frame(number, 300)).collect();
        sent += rig.send(&frames) as u32;
        if let Rx::Owning(rx) = &mut rig.rx {
            rx.peek(&mut Burst::new(), 4).expect("peek");
        }
        rig.rx.queue().park();
        if round % 2 == 0 {
            rig.tx.queue().park();
        }
        while expected < sent {
            assert!(Instant::now() < deadline, "{}: {expected} of {sent} frames came", rig.name);
            expect_next(rig, &mut expected);
        }
    }
    assert!(sent > 0, "{}: nothing was sent", rig.name);
}
