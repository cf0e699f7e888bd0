//! Lanes that leave their worker when their condition holds.

use std::sync::mpsc::Sender;

use crate::lane::{Lane, PollEnd};

/// Condition under which a lane leaves its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Immediately, with all frames in the lane. The caller attaches the lane again, or drops it.
    Immediately,
    /// As soon as no frame of the lane waits or is partly sent.
    Settled,
    /// Like `Settled`, but only after the lane found its source empty or moved `most` frames of the
    /// source.
    Drained {
        /// Largest number of frames that can wait in the source.
        most: u32,
    },
}

/// Detach request: the condition under which the lane leaves, and the receiver of the lane.
pub(super) struct Leaving {
    pub(super) immediately: bool,
    /// Upper limit of the frames that waited in the source at the request and are not received yet;
    /// `None`: the source does not matter.
    pub(super) left: Option<u32>,
    pub(super) reply: Sender<Lane>,
}

impl Leaving {
    pub(super) fn begin(lane: &Lane, leave: Leave, reply: Sender<Lane>) -> Self {
        let left = match leave {
            Leave::Immediately | Leave::Settled => None,
            Leave::Drained { most } => Some(most),
        };
        // Reset the count: frames taken before the request do not count.
        lane.taken_of_source(0);
        Self { immediately: leave == Leave::Immediately, left, reply }
    }

    /// True if the lane may leave, after it has moved `moved` more frames. A drained lane that may
    /// not leave yet stops receiving.
    pub(super) fn may_go(&mut self, lane: &mut Lane, moved: usize) -> bool {
        let drained = match &mut self.left {
            None => true,
            Some(left) => {
                *left = left.saturating_sub(lane.taken_of_source(moved));
                *left == 0 || (lane.rest() == PollEnd::Empty && !lane.source_has_more())
            }
        };
        if self.immediately || (drained && lane.is_settled()) {
            return true;
        }
        if drained {
            lane.close_intake(true);
        }
        false
    }
}
