//! Tests of the order of frames, and of the move of unsent frames to the next lane.

use std::sync::Arc;

use mqnet_netdev::probe::{Probe, hidden_by_rx};
use mqnet_netdev::{Offloads, QueuePairStats, Rx, null};
use mqnet_shmem::SpanMut;
use mqnet_wire::VnetHdr;

use super::super::reinject::{ReinjectConfig, ReinjectTx, ReinjectWaker, way};
use super::super::{Hooked, give_returned, join, take_returned};
use super::*;

struct Silent;

impl ReinjectWaker for Silent {
    fn ring(&self) {}
}

/// A queue that returns a frame of one byte for each of its bytes.
struct Bytes(Vec<u8>);

impl Queue for Bytes {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Bytes {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let frames = self.0.chunks(1).take(budget);
        frames.for_each(|frame| {
            burst.push(VnetHdr::default(), 1, Span::of(frame));
        });
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.drain(..frames);
        Ok(())
    }
}

fn around(rx: Rx, frame_max: u32) -> (Rx, ReinjectTx, Hooked, Arc<QueuePairStats>) {
    let (joined, stats) = (Hooked::default(), Arc::<QueuePairStats>::default());
    let config = ReinjectConfig {
        stats: stats.clone(),
        frame_max,
        tx_offloads: Offloads::NONE,
        joined: joined.clone(),
    };
    let (outlet, inlet) = way(config, Box::new(Silent));
    (join(rx, inlet, 0), outlet, joined, stats)
}

fn send(outlet: &mut ReinjectTx, bytes: &[u8]) {
    let page = bytes.to_vec().into_boxed_slice();
    let owned = OwnedFrame { page, start: 0, len: bytes.len() as u32, hdr: VnetHdr::default() };
    outlet.send(owned).expect("room");
}

/// Peeks frames and releases the first `take`. Returns the first byte of each peeked frame.
fn see(rx: &mut Rx, budget: usize, take: usize) -> Vec<u8> {
    let Rx::Owning(rx) = rx else { panic!("it owns its memory") };
    let mut seen = Vec::new();
    {
        let mut burst = Burst::new();
        rx.peek(&mut burst, budget).unwrap();
        for frame in burst.frames() {
            let mut first = [0];
            frame.head.read_header(&mut first);
            seen.push(first[0]);
        }
    }
    rx.release(take).unwrap();
    seen
}

// Goal: reinjected frames precede those of the queue, but not a frame that was peeked and not
// released, because some of its segments may be sent.
#[test]
fn waiting_frames_are_not_overtaken() {
    let (mut rx, mut outlet, joined, _) = around(Rx::Owning(Box::new(Bytes(vec![1, 2, 3]))), 9);
    send(&mut outlet, &[100]);
    assert_eq!(see(&mut rx, 8, 1), [100, 1, 2, 3]);
    send(&mut outlet, &[101]);
    send(&mut outlet, &[102]);
    assert_eq!(see(&mut rx, 8, 0), [1, 2, 3, 101, 102]);
    assert_eq!(joined.waiting(), 2);
    assert_eq!(see(&mut rx, 1, 0), [1]);
    assert_eq!(see(&mut rx, 8, 2), [1, 101, 102]);
    assert_eq!(see(&mut rx, 8, 2), [102, 2, 3]);
    assert_eq!(see(&mut rx, 8, 1), [3]);
    assert_eq!((see(&mut rx, 8, 0), joined.waiting()), (vec![], 0));
    // Check that the first reinjected frame stays first when frames of another lane arrive.
    [103, 104].iter().for_each(|&n| send(&mut outlet, &[n]));
    assert_eq!(see(&mut rx, 8, 0), [103, 104]);
    let (other, mut outlet, ..) = around(null::silent_rx(), 9);
    [200, 201].iter().for_each(|&n| send(&mut outlet, &[n]));
    let mut rx = give_returned(rx, take_returned(other).1.unwrap());
    assert_eq!(see(&mut rx, 8, 0), [103, 200, 201, 104]);
}

// Goal: a closing lane sends the waiting frames and a bounded number of later ones.
#[test]
fn closing_lane_sends_a_bounded_number_of_frames() {
    let (mut rx, mut outlet, joined, _) = around(Rx::Owning(Box::new(Bytes(vec![]))), 9);
    (0..200).for_each(|n| send(&mut outlet, &[n]));
    joined.close(true);
    let mut taken = 0;
    while taken == 0 || joined.waiting() > 0 {
        taken += see(&mut rx, 8, 8).len();
        (0..8).for_each(|_| send(&mut outlet, &[0]));
    }
    assert_eq!(taken, 256);
    joined.close(false);
    assert_eq!(see(&mut rx, 8, 8).len(), 8);
}

// Goal: a lane reports waiting frames, and the replacing lane sends them, except those that are too
// long for it. Each frame is counted once as reinjected, and as lost if no lane sends it.
#[test]
fn unsent_frames_move_to_the_next_lane() {
    let (mut old, mut outlet, joined, stats) = around(null::silent_rx(), 9);
    [vec![1], vec![7], vec![2; 9], vec![3]].iter().for_each(|bytes| send(&mut outlet, bytes));
    let Rx::Syscall(queue) = &mut old else { panic!("it has no memory") };
    let mut room = [0; 9];
    let mut room = Segments::new(SpanMut::of(&mut room), SpanMut::empty());
    assert!(matches!(queue.recv(&mut room), Ok(Recv::Frame(_))));
    assert_eq!(joined.waiting(), 3);
    // Check that the closing lane does not count a later frame as waiting.
    joined.close(true);
    send(&mut outlet, &[4]);
    let Rx::Syscall(queue) = &mut old else { panic!("it has no memory") };
    assert!(matches!(queue.recv(&mut room), Ok(Recv::Frame(_))));
    assert_eq!(joined.waiting(), 2);
    let (old, returned) = take_returned(old);
    assert_eq!((joined.waiting(), stats.tx.xdp_tx.get()), (0, 4));
    let (new, mut outlet, _, own) = around(Rx::Owning(Box::new(Bytes(vec![9]))), 5);
    send(&mut outlet, &[5]);
    let mut new = give_returned(new, returned.unwrap());
    assert_eq!(see(&mut new, 8, 4), [3, 4, 5, 9]);
    assert_eq!((own.tx.drops.get(DropReason::TooLong), own.tx.xdp_tx.get()), (1, 2));
    drop(old);
    assert_eq!(stats.tx.drops.total(), 0);
    send(&mut outlet, &[6]);
    let (new, returned) = take_returned(new);
    drop(give_returned(null::silent_rx(), returned.unwrap()));
    drop(new);
    let lost = own.tx.drops.get(DropReason::LinkClosed);
    assert_eq!((lost, own.tx.xdp_tx.get(), own.tx.xdp_tx_drops.get()), (1, 3, 2));
}

// Goal: if an owning queue becomes a system-call queue, reinjected frames are returned in order,
// and earlier peeks do not delay frames of another lane.
#[test]
fn peeks_are_void_after_loss_of_memory() {
    let (mut rx, mut outlet, _, _) = around(Rx::Owning(Box::new(Bytes(Vec::new()))), 100);
    send(&mut outlet, &[1]);
    assert_eq!(see(&mut rx, 8, 0), [1]);
    let (_, inlet) = super::super::lift(rx);
    let mut rx = super::super::put_back(null::silent_rx(), inlet.unwrap());
    let take = |rx: &mut Rx| {
        let Rx::Syscall(q) = rx else { panic!("it has no memory") };
        let mut room = [0; 8];
        let got = q.recv(&mut Segments::new(SpanMut::of(&mut room), SpanMut::empty())).unwrap();
        matches!(got, Recv::Frame(_)).then_some(room[0])
    };
    assert_eq!(take(&mut rx), Some(1));
    let (other, mut outlet, _, _) = around(Rx::Owning(Box::new(Bytes(Vec::new()))), 100);
    send(&mut outlet, &[2]);
    let (_, returned) = take_returned(other);
    let mut rx = give_returned(rx, returned.unwrap());
    assert_eq!((take(&mut rx), take(&mut rx)), (Some(2), None));
    let mut inlet = super::super::lift(rx).1.unwrap();
    inlet.queue_waits(1);
    assert_eq!(inlet.insert.lead(), 1, "nor does it hide what waits when it has memory again");
}

// Goal: a receiving end hides no method of the queue.
#[test]
fn receiving_ends_forward_every_default_method() {
    for brings in [true, false] {
        assert_eq!(hidden_by_rx(brings, |rx| around(rx, 9).0).unwrap(), [""; 0], "{brings}");
    }
}

// Goal: a frame of the queue can be detached, in its order relative to reinjected frames, which
// cannot be detached.
#[test]
fn frames_of_the_queue_are_detached_in_order() {
    let mut probe = Probe::new().unwrap();
    probe.frames = 3;
    let (mut rx, mut outlet, ..) = around(Rx::Owning(Box::new(probe)), 9);
    send(&mut outlet, &[100]);
    assert_eq!(see(&mut rx, 8, 0), [100, 7, 7, 7]);
    let keep = |rx: &mut Rx| {
        let Rx::Owning(rx) = rx else { panic!("it owns its memory") };
        let kept = rx.detach().unwrap()?;
        kept.free(&mut rx.returner().unwrap());
        Some(())
    };
    assert_eq!(keep(&mut rx), None);
    assert_eq!(see(&mut rx, 8, 1), [100, 7, 7, 7]);
    assert_eq!(keep(&mut rx), Some(()));
    send(&mut outlet, &[101]);
    // Expect that the two frames of the queue that were peeked stay first.
    assert_eq!(see(&mut rx, 8, 0), [7, 7, 101]);
    assert_eq!((keep(&mut rx), keep(&mut rx), keep(&mut rx)), (Some(()), Some(()), None));
    assert_eq!(see(&mut rx, 8, 1), [101]);
}
