//! Schedulers built from the attached qdiscs.

use super::node::{Class, Node};
use super::{Chain, Tree};
use crate::{Blueprint, ClassPlan, Filters, Handle, Scheduler};

impl Tree {
    /// Builds the scheduler of a channel; for the shape `SharedRoot` pass channel 0. `mtu` is the
    /// MTU with its link-layer header; `seed` perturbs flow hashes. The counters continue those of
    /// earlier schedulers of the same qdiscs. Returns `None` for the shape `None`.
    pub fn build(&mut self, channel: u16, mtu: u32, seed: u64) -> Option<Scheduler> {
        let state = &mut self.state;
        state.frame = mtu;
        state.most = state.most.max(channel.saturating_add(1));
        if state.is_idle() {
            return None;
        }
        let filters = Filters::default();
        let root = if state.root.is_multi_queue() {
            let leaf = || Class::of(Node::of(state.later_leaf.clone()));
            let minor = channel.saturating_add(1);
            let class = state.root.classes.entry(minor).or_insert_with(leaf);
            class.child.build(mtu, &Filters::of_one_channel)
        } else {
            state.root.build(mtu, &Filters::default)
        };
        let filters = match &mut state.egress {
            Some(chain) => Chain::build(chain, filters),
            None => filters,
        };
        Some(Scheduler::new(root, filters, mtu, seed, self.layer))
    }
}

impl Node {
    pub(super) fn build(&mut self, mtu: u32, filters: &impl Fn() -> Filters) -> Blueprint {
        let Self { handle, params, classes, chain, ledger, .. } = self;
        let plan = |(minor, class): (&u16, &mut Class)| ClassPlan {
            id: Handle::new(handle.major(), *minor),
            drr: class.drr.map(|drr| drr.resolved(mtu)),
            stats: class.ledger.open(params.class_counters()),
            child: class.child.build(mtu, filters),
        };
        Blueprint {
            handle: *handle,
            stats: ledger.open(params.counters()),
            classes: classes.iter_mut().map(plan).collect(),
            filters: chain.build(filters()),
            params: params.clone(),
        }
    }
}
