//! Filter list: the first match decides.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use mqnet_counters::Counter;
use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use crate::act::{Act, Action, Control};
use crate::cls::Matcher;
use crate::{Handle, Meta};

/// `protocol all`
pub(crate) const ETH_P_ALL: u16 = 3;

/// Result of a filter list for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// No filter matched, or the matching filter accepted the packet and names no class.
    Pass,
    /// Class of the packet (`flowid`/`classid`).
    Class(Handle),
    /// The packet must be dropped.
    Drop(DropReason),
}

/// Match conditions and actions of a filter.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Outer EtherType of the frame: the TPID of a tagged frame; [`ETH_P_ALL`] matches all.
    pub(crate) protocol: u16,
    pub(crate) matcher: Matcher,
    pub(crate) class: Option<Handle>,
    pub(crate) actions: Vec<Action>,
}

/// Counters of a filter in one scheduler.
#[derive(Debug, Default)]
pub(crate) struct FilterStats {
    pub(crate) hits: Counter,
    /// Counters of each action.
    pub(crate) actions: Vec<ActionStats>,
}

#[derive(Debug, Default)]
pub(crate) struct ActionStats {
    pub(crate) packets: Counter,
    pub(crate) bytes: Counter,
    pub(crate) drops: Counter,
    pub(crate) overlimits: Counter,
}

impl FilterStats {
    pub(crate) fn of(plan: &Plan) -> Self {
        let actions = plan.actions.iter().map(|_| ActionStats::default()).collect();
        Self { hits: Counter::new(), actions }
    }
}

/// One filter of a scheduler.
#[derive(Debug)]
struct Filter {
    plan: Plan,
    stats: Arc<FilterStats>,
}

/// Filters in the order of their priority, with their actions.
#[derive(Debug, Default)]
pub struct Filters {
    list: Vec<Filter>,
    keeps_channel: bool,
}

impl Filters {
    /// Creates an empty list for a qdisc of one channel. The list never moves a packet to another
    /// channel.
    pub(crate) fn of_one_channel() -> Self {
        Self { list: Vec::new(), keeps_channel: true }
    }

    pub(crate) fn push(&mut self, plan: Plan, stats: Arc<FilterStats>) {
        self.list.push(Filter { plan, stats });
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Runs the list over one packet of `len` bytes at time `now` in nanoseconds. All schedulers of
    /// a netdev must use one clock, because they share the buckets of police actions.
    pub fn run(&mut self, keys: &FlowKeys, meta: &mut Meta, len: u32, now: u64) -> FilterVerdict {
        let channel = meta.channel;
        let verdict = self.decide(keys, meta, len, now);
        if self.keeps_channel {
            meta.channel = channel;
        }
        verdict
    }

    fn decide(&self, keys: &FlowKeys, meta: &mut Meta, len: u32, now: u64) -> FilterVerdict {
        let protocol = keys.protocol();
        for Filter { plan, stats } in &self.list {
            let concerned = plan.protocol == ETH_P_ALL || plan.protocol == protocol;
            if !concerned || !plan.matcher.matches(keys, meta) {
                continue;
            }
            stats.hits.add(1);
            if let Some(verdict) = plan.act(stats, meta, len, now) {
                return verdict;
            }
        }
        FilterVerdict::Pass
    }
}

impl Plan {
    /// Runs the actions. Returns `None` if the next filter must run.
    fn act(
        &self,
        stats: &FilterStats,
        meta: &mut Meta,
        len: u32,
        now: u64,
    ) -> Option<FilterVerdict> {
        for (action, stats) in self.actions.iter().zip(&stats.actions) {
            stats.packets.add(1);
            stats.bytes.add(len.into());
            let mut reason = DropReason::Filtered;
            let control = match &action.act {
                Act::Gact => action.control,
                Act::Skbedit(edit) => {
                    edit.apply(meta);
                    action.control
                }
                Act::Police(police, bucket) if police.conforms(bucket, len, now) => action.control,
                Act::Police(police, _) => {
                    stats.overlimits.add(1);
                    reason = DropReason::Policed;
                    police.exceed
                }
            };
            match control {
                Control::Pipe => {}
                Control::Ok => break,
                Control::Continue => return None,
                Control::Drop => {
                    stats.drops.add(1);
                    return Some(FilterVerdict::Drop(reason));
                }
            }
        }
        Some(self.class.map_or(FilterVerdict::Pass, FilterVerdict::Class))
    }

    /// True if both filters have the same protocol, match conditions, class and actions.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.matcher == other.matcher
            && self.class == other.class
            && self.actions.len() == other.actions.len()
            && self.actions.iter().zip(&other.actions).all(|(a, b)| a.same(b))
    }

    /// True if an action selects a channel.
    pub(crate) fn moves(&self) -> bool {
        self.actions.iter().any(Action::moves)
    }
}
