//! Coalescing of small frames that arrive at one function for the other function. The setting of a
//! lane changes between two bursts.

use mqnet_netdev::wrap::merge::Merging;
use mqnet_netdev::{Offloads, Plan};

use super::{Link, from_source_side};
use crate::lane::{Direction, Lane, Merges};

/// Coalescing settings of a link.
pub(super) struct Merger {
    /// User's setting for frames that arrive at each function.
    wanted: [bool; 2],
    /// Number of the lane set that was configured last, and its settings.
    applied: Option<(u32, [Option<Merges>; 2])>,
}

impl Default for Merger {
    fn default() -> Self {
        Self { wanted: [true; 2], applied: None }
    }
}

impl Link {
    /// True if the user allows coalescing of frames that arrive at a function.
    pub fn may_merge(&self, side: usize) -> bool {
        self.merger.wanted[side]
    }

    /// Allows or forbids coalescing of frames that arrive at a function.
    pub fn set_may_merge(&mut self, side: usize, on: bool) {
        self.merger.wanted[side] = on;
        self.fit_merging();
    }

    /// Kinds of large frames that the engine coalesces from frames that arrive at a function.
    pub fn merges(&self, side: usize) -> Offloads {
        let applied = self.running.as_ref().and(self.merger.applied.as_ref());
        let merges = applied.and_then(|(_, merges)| merges[side]);
        merges.map_or(Offloads::NONE, |merges| merges.how.takes.and(Offloads::LARGE))
    }

    /// Coalescing parameters for frames that arrive at a function; `None`: no coalescing.
    fn merging_from(&self, side: usize, plan: &Plan) -> Option<Merges> {
        let sink = &self.ends[1 - side];
        if !self.merger.wanted[side] || !sink.feeds_a_stack() {
            return None;
        }
        let way = if side == 0 { Direction::AToB } else { Direction::BToA };
        let plan = from_source_side(plan, way);
        let caps = self.requested_caps_of(1 - side);
        let (mut takes, mut frame_max) = (caps.tx_offloads, caps.frame_max);
        if !plan.rx_emulation.is_none() {
            // Coalesced frames must pass the segmentation emulation unchanged.
            takes = takes.and(plan.rx_offloads.minus(plan.rx_emulation.offloads));
            frame_max = frame_max.min(plan.frame_max);
        }
        let how = Merging { layer: caps.layer, takes, frame_max }.useful(plan.mtu)?;
        // For a source that delivers large TCP frames, coalescing does not justify a copy.
        let tcp = Offloads::TSO4.or(Offloads::TSO6);
        let gathers = !plan.rx_offloads.and(tcp).any_large();
        Some(Merges { how, gathers })
    }

    /// Configures coalescing on the running lanes if the settings changed or the lanes are new.
    pub(super) fn fit_merging(&mut self) {
        let Some(running) = &self.running else { return };
        if self.is_changing() {
            return;
        }
        let set = running.set;
        let merges = [0, 1].map(|side| self.merging_from(side, &running.plan));
        let applied = Some((set, merges));
        if self.merger.applied == applied {
            return;
        }
        self.merger.applied = applied;
        self.on_every_lane(|| {
            move |lane: &mut Lane| {
                lane.set_merging(merges[usize::from(lane.id().way == Direction::BToA)]);
            }
        });
    }
}
