//! fq_codel (RFC 8290).

use std::sync::Arc;

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::codel::{Law, Mark, Source};
use super::flows::{At, Flow, Flows};
use super::store::Store;
use super::{ecn, run_filters, same_kind};
use crate::{
    Blueprint, Cx, Enqueued, Filters, FqCodel, Handle, NodeStats, Packet, Qdisc, Totals, Verdict,
};

/// Smallest quantum: less only makes turns more.
const QUANTUM_MIN: u32 = 256;

/// Bytes behind a packet up to which CoDel does not drop it: two full frames of Ethernet.
///
/// The rule is there to keep the link busy. The kernel takes the MTU, which makes CoDel blind to
/// 64 KiB of standing queue where that is the MTU (50 ms at 10 Mbit/s). Two frames keep any link
/// busy until the next ones come; and since what counts is what waits *behind* the packet, a
/// single large frame is never dropped either. Which backlog: that of the whole discipline, as in
/// the kernel: the link is busy whoever's packets wait.
const TOLERANCE_MAX: u32 = 2 * 1514;

/// Fair queueing among flows, each with controlled delay.
pub(crate) struct FqCodelQdisc {
    handle: Handle,
    set: FqCodel,
    quantum: i64,
    law: Law,
    seed: u64,
    filters: Filters,
    waiting: Waiting,
    stats: Arc<NodeStats>,
}

/// What a successor takes over.
#[derive(Default)]
struct Waiting {
    store: Store,
    flows: Flows,
    held: Sizes,
}

#[derive(Clone, Copy, Default)]
struct Sizes {
    len: u32,
    bytes: u64,
    memory: u64,
}

impl FqCodelQdisc {
    pub(crate) fn new(plan: Blueprint, set: FqCodel, mtu: u32, seed: u64) -> Self {
        let quantum = if set.quantum == 0 { mtu } else { set.quantum };
        let law = Law {
            target: set.target,
            interval: set.interval,
            ecn: set.ecn,
            ce_threshold: set.ce_threshold,
            tolerance: mtu.min(TOLERANCE_MAX).into(),
        };
        Self {
            handle: plan.handle,
            quantum: quantum.max(QUANTUM_MIN).into(),
            law,
            seed,
            filters: plan.filters,
            waiting: Waiting::default(),
            stats: plan.stats,
            set: FqCodel { flows: set.flows.max(1), ..set },
        }
    }

    /// The flow of a packet: a priority or a filter that names one by its number (from 1), or the
    /// hash. Unlike the kernel, which drops what no filter claims as soon as there is a filter.
    fn flow_of(
        &mut self,
        packet: &mut Packet,
        keys: &FlowKeys,
        now: u64,
    ) -> Result<u32, DropReason> {
        let priority = Handle(packet.meta.priority);
        let named = if self.handle.0 != 0 && priority.major() == self.handle.major() {
            Some(priority)
        } else {
            match run_filters(&mut self.filters, packet, keys, now) {
                Verdict::Pass => None,
                Verdict::Class(class) => Some(class),
                Verdict::Drop(reason) => return Err(reason),
            }
        };
        let number = named.map_or(0, |class| u32::from(class.minor()));
        if (1..=self.set.flows).contains(&number) {
            return Ok(number - 1);
        }
        Ok(bucket(packet.hash, self.seed, self.set.flows))
    }

    fn is_over(&self) -> bool {
        self.waiting.held.len > self.set.limit || self.is_over_memory()
    }

    fn is_over_memory(&self) -> bool {
        self.waiting.held.memory > self.set.memory_limit.into()
    }

    /// Drops up to half of what the fattest flow has, from its head: dropping one packet for each
    /// that arrives would mean a search each time. Returns the flow if nothing is left of it.
    fn drop_from_fattest(&mut self, cx: &mut Cx<'_>) -> Option<At> {
        let over_memory = self.is_over_memory();
        let at = self.waiting.flows.fattest()?;
        let (mut head, flow) = self.waiting.head(at, cx, &self.stats);
        let goal = flow.bytes / 2;
        let (mut freed, mut dropped) = (0, 0);
        while dropped < self.set.drop_batch.max(1) && (dropped == 0 || freed < goal) {
            let Some(packet) = head.take(flow) else { break };
            freed += u64::from(packet.wire_len());
            dropped += 1;
            head.cx.drop(packet, DropReason::QdiscOverlimit);
        }
        // The flow has had as many signals to slow down.
        flow.codel.count = flow.codel.count.saturating_add(dropped);
        let emptied = flow.queue.is_empty();
        if emptied {
            flow.codel.went_empty();
        }
        self.stats.drops.add(dropped.into());
        self.stats.fq_codel.drop_overlimit.add(dropped.into());
        if over_memory {
            self.stats.fq_codel.drop_overmemory.add(dropped.into());
        }
        emptied.then_some(at)
    }

    fn publish(&self) {
        let Waiting { held, flows, .. } = &self.waiting;
        self.stats.waiting(held.len, held.bytes);
        self.stats.fq_codel.memory_used.set(held.memory);
        self.stats.fq_codel.new_flows_len.set(flows.new_len.into());
        self.stats.fq_codel.old_flows_len.set(flows.old_len.into());
    }
}

/// The bucket of a hash.
fn bucket(hash: u32, seed: u64, flows: u32) -> u32 {
    let mixed = (u64::from(hash) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((mixed >> 32) * u64::from(flows)) >> 32) as u32
}

impl Waiting {
    /// A flow and all that changes when a packet leaves it.
    fn head<'a, 'c>(
        &'a mut self,
        at: At,
        cx: &'a mut Cx<'c>,
        stats: &'a NodeStats,
    ) -> (Head<'a, 'c>, &'a mut Flow) {
        // Only flows that are in lists are asked for: their lane is there.
        let lane = self.flows.lane_mut(at.channel, at.flow + 1);
        let flow = &mut lane.flows[at.flow as usize];
        let head =
            Head { store: &mut self.store, len: &mut lane.len, held: &mut self.held, cx, stats };
        (head, flow)
    }

    fn push(&mut self, at: At, packet: Packet, flows: u32, law: &Law, now: u64) {
        let wire = u64::from(packet.wire_len());
        self.held.len += 1;
        self.held.bytes += wire;
        self.held.memory += u64::from(packet.frag.len());
        let lane = self.flows.lane_mut(at.channel, flows);
        lane.len += 1;
        let flow = &mut lane.flows[at.flow as usize];
        // Its channel may have been closed since it went empty, so that nobody came to see it.
        if flow.queue.is_empty() && now.saturating_sub(flow.empty_since) >= law.target {
            flow.codel.went_empty();
        }
        flow.bytes += wire;
        self.store.push(&mut flow.queue, packet);
    }
}

/// Where packets of one flow are taken from.
struct Head<'a, 'c> {
    store: &'a mut Store,
    len: &'a mut u32,
    held: &'a mut Sizes,
    cx: &'a mut Cx<'c>,
    stats: &'a NodeStats,
}

impl Head<'_, '_> {
    fn take(&mut self, flow: &mut Flow) -> Option<Packet> {
        let packet = self.store.pop(&mut flow.queue)?;
        let wire = u64::from(packet.wire_len());
        flow.bytes -= wire;
        flow.empty_since = self.cx.now;
        *self.len -= 1;
        self.held.len -= 1;
        self.held.bytes -= wire;
        self.held.memory -= u64::from(packet.frag.len());
        Some(packet)
    }
}

/// A flow as CoDel sees it.
struct Controlled<'a, 'c> {
    head: Head<'a, 'c>,
    flow: &'a mut Flow,
}

impl Source for Controlled<'_, '_> {
    type Item = Packet;

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.head.take(self.flow)?;
        let largest = &self.head.stats.fq_codel.maxpacket;
        if u64::from(packet.wire_len()) > largest.get() {
            self.head.stats.fq_codel.maxpacket.set(packet.wire_len().into());
        }
        Some(packet)
    }

    fn since(packet: &Packet) -> u64 {
        packet.at
    }

    fn backlog(&self) -> u64 {
        self.head.held.bytes
    }

    fn drop(&mut self, packet: Packet) {
        self.head.stats.drops.add(1);
        self.head.cx.drop(packet, DropReason::Aqm);
    }

    fn mark(&mut self, packet: &mut Packet, why: Mark) -> bool {
        let marked = ecn::mark(packet, self.head.cx.pool);
        match why {
            Mark::InsteadOfDrop => self.head.stats.fq_codel.ecn_mark.add(marked.into()),
            Mark::Threshold => self.head.stats.fq_codel.ce_mark.add(marked.into()),
        }
        marked
    }
}

impl Qdisc for FqCodelQdisc {
    fn enqueue(&mut self, mut packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        let at = match self.flow_of(&mut packet, keys, cx.now) {
            Ok(flow) => At { channel: packet.meta.channel, flow },
            Err(reason) => {
                self.stats.drops.add(1);
                cx.drop(packet, reason);
                return Enqueued::Dropped;
            }
        };
        self.waiting.push(at, packet, self.set.flows, &self.law, cx.now);
        if self.waiting.flows.start(at, self.quantum) {
            self.stats.fq_codel.new_flow_count.add(1);
        }
        let emptied = if self.is_over() { self.drop_from_fattest(cx) } else { None };
        self.publish();
        if emptied == Some(at) { Enqueued::Dropped } else { Enqueued::Queued }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = loop {
            let Some((at, is_new)) = self.waiting.flows.first(cx.open) else { break None };
            let flow = self.waiting.flows.flow_mut(at);
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.waiting.flows.rotate(at, is_new);
                continue;
            }
            let mut codel = flow.codel;
            let (head, flow) = self.waiting.head(at, cx, &self.stats);
            let mut source = Controlled { head, flow };
            let now = source.head.cx.now;
            let packet = codel.dequeue(&self.law, now, &mut source);
            source.flow.codel = codel;
            match packet {
                Some(packet) => {
                    source.flow.deficit -= i64::from(packet.wire_len());
                    self.stats.sent(&packet);
                    break Some(packet);
                }
                None => self.waiting.flows.retire(at, is_new),
            }
        };
        self.publish();
        packet
    }

    fn next_time(&self) -> Option<u64> {
        None
    }

    fn len(&self) -> u32 {
        self.waiting.held.len
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.waiting.flows.lane(channel).map_or(0, |lane| lane.len)
    }

    fn backlog(&self) -> u64 {
        self.waiting.held.bytes
    }

    fn totals(&self) -> Totals {
        self.stats.with(self.stats.fq_codel.extra())
    }

    fn take_all(&mut self, out: &mut Vec<Packet>) {
        let Waiting { mut store, mut flows, .. } = std::mem::take(&mut self.waiting);
        for at in flows.listed() {
            let queue = &mut flows.flow_mut(at).queue;
            while let Some(packet) = store.pop(queue) {
                out.push(packet);
            }
        }
        self.publish();
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<Packet>, cx: &mut Cx<'_>) {
        let Some(mut old) = same_kind::<Self>(old, rest) else { return };
        if old.set.flows != self.set.flows {
            // Another number of flows is another assignment.
            return old.take_all(rest);
        }
        self.waiting = std::mem::take(&mut old.waiting);
        self.seed = old.seed;
        old.publish();
        while self.is_over() && !self.is_empty() {
            self.drop_from_fattest(cx);
        }
        self.publish();
    }
}
