//! One end of an `ntb_transport` with slots, on the calling thread. A second end acts as the peer
//! and is excluded from instruction counts.

use std::sync::Arc;

use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::{Function, QueuePairStats};
use mqnet_ntb::fuzzing::joined;
use mqnet_sysio::clock;

use super::section::Section;
use super::traffic::{self, Role, Traffic};
use super::{Burst, Result};

/// Window of one queue pair: the default of `ntb:vfio-user=` with `queues=1`.
const WINDOW: u32 = 2 << 20;
const SLOT: u32 = 64 << 10;

/// Work of both ends in the order of its execution.
pub(super) struct Ends {
    pub(super) before: Burst,
    pub(super) counted: Burst,
    pub(super) after: Burst,
}

/// Opens both ends.
pub(super) fn ends(section: Section, bytes: usize) -> Result<Ends> {
    let caps = Traffic::new(Role::Sink, 1).caps();
    let (functions, plan, [near, far]) = joined(WINDOW, SLOT, &caps);
    let stats: [Arc<QueuePairStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let max = plan.frame_max;
    let count = functions[0].stats()[0].clone();
    let mut send = Lane::new(id, source.rx, near.tx, max, None, count)?;
    let mut receive = Lane::new(id, far.rx, sink.tx, max, None, stats[1].clone())?;
    let send: Burst = Box::new(move || {
        let _alive = &functions;
        send.poll(clock::monotonic).map_or(0, |poll| poll.frames)
    });
    let receive: Burst =
        Box::new(move || receive.poll(clock::monotonic).map_or(0, |poll| poll.frames));
    Ok(match section {
        Section::NtbSend => Ends { before: Box::new(|| 0), counted: send, after: receive },
        _ => Ends { before: send, counted: receive, after: Box::new(|| 0) },
    })
}
