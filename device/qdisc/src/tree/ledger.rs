//! Counters of what has been and what is.

use std::sync::Arc;

use crate::filters::{FilterStats, Plan};
use crate::{Extra, NodeStats, Params, Totals};

/// The counters of a discipline or class, of all the schedulers it is and was in.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    past: Totals,
    pub(super) live: Vec<Arc<NodeStats>>,
}

impl Ledger {
    /// Counters for one more scheduler. Those of schedulers that are no more are added up.
    pub(super) fn open(&mut self, params: &Params) -> Arc<NodeStats> {
        let past = &mut self.past;
        self.live.retain_mut(|stats| {
            let gone = Arc::get_mut(stats).is_some();
            if gone {
                let mut totals = stats.totals(params);
                forget_gauges(&mut totals);
                add(past, totals);
            }
            !gone
        });
        let stats = Arc::new(NodeStats::default());
        self.live.push(stats.clone());
        stats
    }

    pub(super) fn totals(&self, params: &Params) -> Totals {
        let mut sum = self.past;
        for stats in &self.live {
            let mut totals = stats.totals(params);
            if Arc::strong_count(stats) == 1 {
                forget_gauges(&mut totals);
            }
            add(&mut sum, totals);
        }
        if let (Params::FqCodel(_), Extra::None) = (params, &sum.extra) {
            sum.extra = NodeStats::default().totals(params).extra;
        }
        sum
    }
}

/// A scheduler that is no more has nothing in it, whatever it said last.
fn forget_gauges(totals: &mut Totals) {
    (totals.backlog, totals.qlen) = (0, 0);
    if let Extra::FqCodel { memory_used, new_flows_len, old_flows_len, .. } = &mut totals.extra {
        (*memory_used, *new_flows_len, *old_flows_len) = (0, 0, 0);
    }
}

/// Adds `b` to `a`; what belongs to one kind alone only where both have it.
pub(super) fn add(a: &mut Totals, b: Totals) {
    a.bytes = a.bytes.wrapping_add(b.bytes);
    a.packets = a.packets.wrapping_add(b.packets);
    a.drops = a.drops.wrapping_add(b.drops);
    a.overlimits = a.overlimits.wrapping_add(b.overlimits);
    a.requeues = a.requeues.wrapping_add(b.requeues);
    a.backlog = a.backlog.wrapping_add(b.backlog);
    a.qlen = a.qlen.wrapping_add(b.qlen);
    match (&mut a.extra, b.extra) {
        (none @ Extra::None, extra) => *none = extra,
        (Extra::FqCodel { .. }, Extra::FqCodel { .. }) => a.extra = add_fq_codel(a.extra, b.extra),
        (Extra::Drr { deficit }, Extra::Drr { deficit: more }) => *deficit += more,
        _ => {}
    }
}

fn add_fq_codel(a: Extra, b: Extra) -> Extra {
    let numbers = |extra| match extra {
        Extra::FqCodel {
            maxpacket,
            drop_overlimit,
            drop_overmemory,
            ecn_mark,
            ce_mark,
            new_flow_count,
            memory_used,
            new_flows_len,
            old_flows_len,
        } => [
            maxpacket,
            drop_overlimit,
            drop_overmemory,
            ecn_mark,
            ce_mark,
            new_flow_count,
            memory_used,
            new_flows_len,
            old_flows_len,
        ],
        _ => [0; 9],
    };
    let (a, b) = (numbers(a), numbers(b));
    let sum = |i: usize| a[i].wrapping_add(b[i]);
    Extra::FqCodel {
        maxpacket: a[0].max(b[0]),
        drop_overlimit: sum(1),
        drop_overmemory: sum(2),
        ecn_mark: sum(3),
        ce_mark: sum(4),
        new_flow_count: sum(5),
        memory_used: sum(6),
        new_flows_len: sum(7),
        old_flows_len: sum(8),
    }
}

/// What a filter counted: its hits, and of each action packets, bytes, drops and overlimits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterTotals {
    pub(super) hits: u64,
    pub(super) actions: Vec<[u64; 4]>,
}

impl FilterTotals {
    fn add(&mut self, stats: &FilterStats) {
        self.hits = self.hits.wrapping_add(stats.hits.get());
        self.actions.resize(stats.actions.len(), [0; 4]);
        for (sum, action) in self.actions.iter_mut().zip(&stats.actions) {
            let counters = [&action.packets, &action.bytes, &action.drops, &action.overlimits];
            sum.iter_mut().zip(counters).for_each(|(sum, c)| *sum = sum.wrapping_add(c.get()));
        }
    }
}

/// The counters of a filter, of all the schedulers it is and was in.
#[derive(Clone, Debug, Default)]
pub(super) struct FilterLedger {
    past: FilterTotals,
    pub(super) live: Vec<Arc<FilterStats>>,
}

impl FilterLedger {
    /// See [`Ledger::open`].
    pub(super) fn open(&mut self, plan: &Plan) -> Arc<FilterStats> {
        let past = &mut self.past;
        self.live.retain_mut(|stats| {
            let gone = Arc::get_mut(stats).is_some();
            if gone {
                past.add(stats);
            }
            !gone
        });
        let stats = Arc::new(FilterStats::of(plan));
        self.live.push(stats.clone());
        stats
    }

    pub(super) fn totals(&self, plan: &Plan) -> FilterTotals {
        let mut sum = self.past.clone();
        sum.actions.resize(plan.actions.len(), [0; 4]);
        self.live.iter().for_each(|stats| sum.add(stats));
        sum
    }
}
