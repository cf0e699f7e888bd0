//! Two ends of ours with the protocol of `ntb_transport` between them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use mqnet_netdev::{Caps, Channel, Function, Plan};

use super::board::{Board, Port};
use crate::NtbFunction;
use crate::transport::handshake::{pad, writes};

/// Two functions with one queue pair each, and their channels, for the tests of all backends: what
/// one end sends arrives at the other. The handshake of the far end, which only a kernel begins, is
/// written here.
///
/// # Panics
/// When the ends do not come up.
pub fn joined(window: u32, slot: u32, partner: &Caps) -> ([NtbFunction; 2], Plan, [Channel; 2]) {
    let boards = [0, 1].map(|_| Board::new(1, window));
    let end = |board: &Arc<Board>| {
        let port = Box::new(Port(board.clone()));
        let mut function = NtbFunction::with_hw("ntb:".to_owned(), port, None, 1);
        function.set_partner(partner);
        function.with_transport_mtu(slot)
    };
    let mut ends = boards.each_ref().map(end);
    let mut now = Duration::from_secs(1);
    let mut poll = |ends: &mut [NtbFunction; 2]| {
        now += Duration::from_millis(10);
        ends.iter_mut().for_each(|end| drop(end.poll_link(now)));
    };
    for board in &boards {
        board.link_up();
        writes(1, &[window]).for_each(|(at, value)| board.spads[0][at].store(value, Release));
    }
    poll(&mut ends);
    boards[0].join(&boards[1]);
    boards[1].join(&boards[0]);
    boards.iter().for_each(|board| board.spads[0][pad::QP_LINKS].store(1, Release));
    poll(&mut ends);
    let plan = Plan::join(&ends[0].caps(), partner).unwrap_or_else(|e| panic!("{e}"));
    let channels =
        ends.each_mut().map(|end| end.open(&plan).unwrap_or_else(|e| panic!("{e}")).remove(0));
    poll(&mut ends);
    (ends, plan, channels)
}
