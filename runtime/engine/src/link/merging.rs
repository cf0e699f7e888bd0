//! Small frames that arrive at one function and are merged for the other. Lanes learn of it between
//! two bursts: nothing else changes.

use mqnet_netdev::wrap::merge::Merging;
use mqnet_netdev::{Offloads, Plan};

use super::{Link, as_source_sees};
use crate::lane::{Lane, Merges, Way};

/// Whether and how the engine merges.
pub(super) struct Merger {
    /// What the user wants of frames that arrive at each function.
    wanted: [bool; 2],
    /// What the lanes of a set were told.
    told: Option<(u32, [Option<Merges>; 2])>,
}

impl Default for Merger {
    fn default() -> Self {
        Self { wanted: [true; 2], told: None }
    }
}

impl Link {
    /// True when frames that arrive at a function may be merged.
    pub fn may_merge(&self, side: usize) -> bool {
        self.merger.wanted[side]
    }

    /// Lets small frames that arrive at a function be merged for the other one, if that takes large
    /// ones, or not.
    pub fn set_may_merge(&mut self, side: usize, on: bool) {
        self.merger.wanted[side] = on;
        self.fit_merging();
    }

    /// Which large frames are made of small ones that arrive at a function.
    pub fn merges(&self, side: usize) -> Offloads {
        let told = self.running.as_ref().and(self.merger.told.as_ref());
        let merges = told.and_then(|(_, merges)| merges[side]);
        merges.map_or(Offloads::NONE, |merges| merges.how.takes.and(Offloads::LARGE))
    }

    /// How frames that arrive at a function are merged.
    fn merging_from(&self, side: usize, plan: &Plan) -> Option<Merges> {
        let sink = &self.ends[1 - side];
        if !self.merger.wanted[side] || !sink.feeds_a_stack() {
            return None;
        }
        let way = if side == 0 { Way::Forth } else { Way::Back };
        let plan = as_source_sees(plan, way);
        let caps = self.wished_of(1 - side);
        let (mut takes, mut frame_max) = (caps.tx_offloads, caps.frame_max);
        if !plan.rx_emulation.is_none() {
            // What is merged must pass by what cuts.
            takes = takes.and(plan.rx_offloads.minus(plan.rx_emulation.offloads));
            frame_max = frame_max.min(plan.frame_max);
        }
        let how = Merging { layer: caps.layer, takes, frame_max }.useful(plan.mtu)?;
        // A source that sends large streams itself is not worth a copy.
        let tcp = Offloads::TSO4.or(Offloads::TSO6);
        let gathers = !plan.rx_offloads.and(tcp).any_large();
        Some(Merges { how, gathers })
    }

    /// Tells the lanes how they merge, if that has changed or they are new.
    pub(super) fn fit_merging(&mut self) {
        let Some(running) = &self.running else { return };
        if self.is_changing() {
            return;
        }
        let set = running.set;
        let merges = [0, 1].map(|side| self.merging_from(side, &running.plan));
        let told = Some((set, merges));
        if self.merger.told == told {
            return;
        }
        self.merger.told = told;
        self.on_every_lane(|| {
            move |lane: &mut Lane| {
                lane.set_merging(merges[usize::from(lane.id().way == Way::Back)]);
            }
        });
    }
}
