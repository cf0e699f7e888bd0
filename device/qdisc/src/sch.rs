//! The disciplines.

mod bucket;
mod channels;
mod class;
mod codel;
mod drr;
mod ecn;
mod fifo;
mod flows;
mod fq_codel;
mod held;
mod pfifo_fast;
mod prio;
mod store;
mod tbf;

use std::any::Any;

use mqnet_wire::FlowKeys;

use crate::{Blueprint, Fifo, Filters, Packet, Params, Qdisc, Verdict};
use channels::Unit;

/// Packets of what stands in for a discipline that cannot be here.
const STAND_IN: u32 = 1000;

/// Builds a discipline and what is below it. `mtu` is the MTU with its link-layer header; `seed`
/// perturbs flow hashes.
pub(crate) fn build(plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
    let packets =
        |limit, plan: Blueprint| Box::new(fifo::Fifo::new(Unit::Packets, limit, plan.stats));
    match plan.params {
        Params::Pfifo(Fifo { limit }) => packets(limit, plan),
        Params::Bfifo(Fifo { limit }) => Box::new(fifo::Fifo::new(Unit::Bytes, limit, plan.stats)),
        Params::PfifoFast(Fifo { limit }) => {
            Box::new(pfifo_fast::PfifoFast::new(limit, plan.stats))
        }
        Params::Prio(prio) => Box::new(prio::PrioQdisc::new(plan, prio, mtu, seed)),
        Params::Tbf(tbf) => Box::new(tbf::TbfQdisc::new(plan, tbf, mtu, seed)),
        Params::Drr => Box::new(drr::DrrQdisc::new(plan, mtu, seed)),
        Params::FqCodel(fq) => Box::new(fq_codel::FqCodelQdisc::new(plan, fq, mtu, seed)),
        // No plan has these; a packet waits all the same.
        Params::Noqueue | Params::Mq | Params::Mqprio(_) | Params::Clsact => {
            packets(STAND_IN, plan)
        }
    }
}

/// True when a packet may pass a discipline that is empty: nothing would be decided about it.
pub(crate) fn can_bypass(plan: &Blueprint) -> bool {
    let passive = match plan.params {
        Params::Tbf(_) | Params::Drr => false,
        Params::FqCodel(_) | Params::Prio(_) => plan.filters.is_empty(),
        _ => true,
    };
    passive && plan.classes.iter().all(|class| can_bypass(&class.child))
}

/// The predecessor itself when it is a `T`; otherwise its packets, in `rest`.
fn same_kind<T: Qdisc>(mut old: Box<dyn Qdisc>, rest: &mut Vec<Packet>) -> Option<Box<T>> {
    let any: &dyn Any = &*old;
    if !any.is::<T>() {
        old.take_all(rest);
        return None;
    }
    let any: Box<dyn Any> = old;
    any.downcast().ok()
}

/// Runs the filters of a discipline. They cannot move the packet to another channel: by now its
/// lane has been chosen and told, and another one would not know that something waits for it.
fn run_filters(filters: &mut Filters, packet: &mut Packet, keys: &FlowKeys, now: u64) -> Verdict {
    if filters.is_empty() {
        return Verdict::Pass;
    }
    let (channel, bytes) = (packet.meta.channel, packet.wire_len());
    let verdict = filters.run(keys, &mut packet.meta, bytes, now);
    packet.meta.channel = channel;
    verdict
}
