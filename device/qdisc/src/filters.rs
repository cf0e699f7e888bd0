//! A list of filters: the first that matches decides.

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use crate::{Handle, Meta};

/// What a list of filters says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No filter matched, or one let it pass without naming a class.
    Pass,
    /// It belongs to this class (`flowid`/`classid`).
    Class(Handle),
    /// It is to be dropped.
    Drop(DropReason),
}

/// Filters in the order of their priority, with their actions.
#[derive(Debug, Default)]
pub struct Filters {}

impl Filters {
    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Runs the list over one packet of `len` bytes at time `now` (nanoseconds).
    pub fn run(&mut self, _keys: &FlowKeys, _meta: &mut Meta, _len: u32, _now: u64) -> Verdict {
        Verdict::Pass
    }
}
