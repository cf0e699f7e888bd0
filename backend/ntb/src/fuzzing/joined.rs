//! Two mqnet ends that use the protocol of `ntb_transport` with each other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use mqnet_netdev::{Caps, Channel, Function, Plan};

use super::board::{Board, Port};
use crate::NtbFunction;
use crate::transport::handshake::{pad, writes};

/// Bridge in memory, for the tests of all backends. Only a kernel begins the handshake of
/// `ntb_transport`, so the test writes a kernel's handshake to both ends.
pub struct Cable {
    boards: [Arc<Board>; 2],
    window: u32,
}

impl Cable {
    /// Bridge with windows of `window` bytes and the hardware link up.
    pub fn new(window: u32) -> Self {
        let boards = [0, 1].map(|_| Board::new(1, window));
        boards.iter().for_each(|board| board.link_up());
        Self { boards, window }
    }

    /// Function of end `end`, with slots of `slot` bytes.
    pub fn end(&self, end: usize, slot: u32) -> NtbFunction {
        let port = Box::new(Port(self.boards[end].clone()));
        let function = NtbFunction::with_hw("ntb:".to_owned(), port, None, 1);
        function.with_transport_mtu(slot)
    }

    /// Writes the handshake of a peer with `pairs` queue pairs to both ends.
    pub fn greet(&self, pairs: u16) {
        let sizes = [self.window];
        for board in &self.boards {
            let values = writes(pairs, &sizes).filter(|(at, _)| *at != pad::QP_LINKS);
            values.for_each(|(at, value)| board.spads[0][at].store(value, Release));
        }
    }

    /// Sets up the windows of both ends. Both ends must have read the handshake before.
    pub fn join(&self) {
        self.boards[0].join(&self.boards[1]);
        self.boards[1].join(&self.boards[0]);
    }

    /// Writes QP_LINKS to end `end`, like a peer that opens the queue pairs in `bits`.
    pub fn request(&self, end: usize, bits: u32) {
        self.boards[end].spads[0][pad::QP_LINKS].store(bits, Release);
    }
}

/// Two functions with one queue pair each, the plan, and one channel of each function. Frames sent
/// on either channel arrive at the other channel.
///
/// # Panics
/// Panics if the ends do not come up.
pub fn joined(window: u32, slot: u32, partner: &Caps) -> ([NtbFunction; 2], Plan, [Channel; 2]) {
    let cable = Cable::new(window);
    let mut ends = [0, 1].map(|end| cable.end(end, slot));
    let mut now = Duration::from_secs(1);
    let mut poll = |ends: &mut [NtbFunction; 2]| {
        now += Duration::from_millis(10);
        ends.iter_mut().for_each(|end| drop(end.poll_link(now)));
    };
    ends.iter_mut().for_each(|end| end.set_partner(partner));
    cable.greet(1);
    poll(&mut ends);
    cable.join();
    (0..2).for_each(|end| cable.request(end, 1));
    poll(&mut ends);
    let plan = Plan::join(&ends[0].caps(), partner).unwrap_or_else(|e| panic!("{e}"));
    let channels =
        ends.each_mut().map(|end| end.open(&plan).unwrap_or_else(|e| panic!("{e}")).remove(0));
    poll(&mut ends);
    // The caller must keep both ends: they own the boards, and a doorbell has only a weak reference
    // to the far board.
    (ends, plan, channels)
}
