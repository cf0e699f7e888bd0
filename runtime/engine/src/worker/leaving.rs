//! Lanes that leave their worker, each when its condition holds.

use std::sync::mpsc::Sender;

use crate::lane::{Lane, PollEnd};

/// Condition under which a lane leaves its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Immediately, with all frames that it holds: the lane will be attached again.
    Immediately,
    /// As soon as the lane holds no frame of its own.
    Settled,
    /// After the lane found its source empty, or moved so many frames that none of those that
    /// waited at the request is left.
    Drained {
        /// Most frames that can wait in the source.
        most: u32,
    },
}

/// A lane that is being detached.
pub(super) struct Leaving {
    pub(super) immediately: bool,
    /// Frames that may remain of those that waited at the request; `None`: not relevant.
    pub(super) left: Option<u32>,
    pub(super) reply: Sender<Lane>,
}

impl Leaving {
    pub(super) fn begin(lane: &Lane, leave: Leave, reply: Sender<Lane>) -> Self {
        let left = match leave {
            Leave::Immediately | Leave::Settled => None,
            Leave::Drained { most } => Some(most),
        };
        // Frames taken until now were not among the waiting ones.
        lane.taken_of_source(0);
        Self { immediately: leave == Leave::Immediately, left, reply }
    }

    /// True if the lane may leave, after `moved` more frames.
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
