//! Counters of ended and running schedulers.

use std::sync::Arc;

use crate::filters::{FilterStats, Plan};
use crate::kind::ExtraCounter;
use crate::{NodeStats, Totals};

/// Declarations of the counters specific to a kind.
type Extra = &'static [ExtraCounter];

/// Counters of a qdisc or class in all its schedulers, running and ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    past: Totals,
    pub(super) live: Vec<Arc<NodeStats>>,
}

impl Ledger {
    /// Creates the counters of a new scheduler, and merges the counters of ended schedulers.
    pub(super) fn open(&mut self, extra: Extra) -> Arc<NodeStats> {
        let past = &mut self.past;
        self.live.retain_mut(|stats| {
            let ended = Arc::get_mut(stats).is_some();
            if ended {
                add(past, without_gauges(stats.totals(), extra), extra);
            }
            !ended
        });
        let stats = Arc::new(NodeStats::default());
        self.live.push(stats.clone());
        stats
    }

    pub(super) fn totals(&self, extra: Extra) -> Totals {
        let mut sum = self.past;
        for stats in &self.live {
            let totals = match Arc::strong_count(stats) {
                1 => without_gauges(stats.totals(), extra),
                _ => stats.totals(),
            };
            add(&mut sum, totals, extra);
        }
        sum
    }
}

/// Totals of an ended scheduler, with gauges at 0.
fn without_gauges(mut totals: Totals, extra: Extra) -> Totals {
    (totals.backlog, totals.qlen) = (0, 0);
    for (value, _) in totals.extra.iter_mut().zip(extra).filter(|(_, c)| c.is_gauge()) {
        *value = 0;
    }
    totals
}

/// Merges `b` into `a`.
pub(super) fn add(a: &mut Totals, b: Totals, extra: Extra) {
    a.bytes = a.bytes.wrapping_add(b.bytes);
    a.packets = a.packets.wrapping_add(b.packets);
    a.drops = a.drops.wrapping_add(b.drops);
    a.overlimits = a.overlimits.wrapping_add(b.overlimits);
    a.requeues = a.requeues.wrapping_add(b.requeues);
    a.backlog = a.backlog.wrapping_add(b.backlog);
    a.qlen = a.qlen.wrapping_add(b.qlen);
    for ((value, other), counter) in a.extra.iter_mut().zip(b.extra).zip(extra) {
        *value = counter.merged(*value, other);
    }
}

/// Counters of a filter: its hits, and packets, bytes, drops and overlimits of each action.
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

/// Counters of a filter in all its schedulers, running and ended.
#[derive(Clone, Debug, Default)]
pub(super) struct FilterLedger {
    past: FilterTotals,
    pub(super) live: Vec<Arc<FilterStats>>,
}

impl FilterLedger {
    /// Creates the counters of a new scheduler; see [`Ledger::open`].
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
