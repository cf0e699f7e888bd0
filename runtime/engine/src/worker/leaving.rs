//! Lanes that leave their worker, each when it may.

use std::sync::mpsc::Sender;

use crate::lane::{Lane, Rest};

/// When a lane leaves its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// At once, with whatever it holds: it comes back.
    AsItIs,
    /// As soon as it holds no frame of its own.
    Settled,
    /// When it has found its source empty, or has moved so many frames that none is left of those
    /// that waited when it was told to leave.
    Drained {
        /// Most frames that can wait in its source.
        most: u32,
    },
}

/// A lane that was told to leave.
pub(super) struct Leaving {
    pub(super) as_it_is: bool,
    /// Frames that may still have waited when it was told; `None`: it does not matter.
    pub(super) left: Option<u32>,
    pub(super) home: Sender<Lane>,
}

impl Leaving {
    pub(super) fn begin(lane: &Lane, leave: Leave, home: Sender<Lane>) -> Self {
        let left = match leave {
            Leave::AsItIs | Leave::Settled => None,
            Leave::Drained { most } => Some(most),
        };
        // What has been taken until now was not among what waits.
        lane.taken_of_source(0);
        Self { as_it_is: leave == Leave::AsItIs, left, home }
    }

    /// True when the lane may go, `moved` frames further on.
    pub(super) fn may_go(&mut self, lane: &mut Lane, moved: usize) -> bool {
        let drained = match &mut self.left {
            None => true,
            Some(left) => {
                *left = left.saturating_sub(lane.taken_of_source(moved));
                *left == 0 || (lane.rest() == Rest::Empty && !lane.source_has_more())
            }
        };
        if self.as_it_is || (drained && lane.is_settled()) {
            return true;
        }
        if drained {
            lane.close_intake(true);
        }
        false
    }
}
