//! fq_codel (RFC 8290).

use std::sync::Arc;

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::codel::{CodelParameters, Mark, Source};
use super::flows::{At, Flow, Flows};
use super::store::Store;
use super::{ecn, run_filters, same_kind};
use crate::kind::{Bypass, Classes, Env, ExtraCounter, Kind, KindOptions};
use crate::parse::{Words, invalid, number, unknown};
use crate::{
    Blueprint, Cx, Enqueued, FilterVerdict, Filters, Handle, NodeStats, Qdisc, QueuedPacket,
    TcError, Totals,
};

/// Parameters of fq_codel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Limit of queued packets.
    pub limit: u32,
    /// Number of flows (hash buckets); cannot be changed later.
    pub flows: u32,
    /// Bytes of a flow per round; 0 means the MTU with its link-layer header. Values below 256
    /// count as 256.
    pub quantum: u32,
    /// Target delay in nanoseconds.
    pub target: u64,
    /// Time in nanoseconds for which the delay may exceed the target before drops begin.
    pub interval: u64,
    /// True if ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
    /// Delay in nanoseconds above which ECN-capable packets are marked; `None`: off.
    pub ce_threshold: Option<u64>,
    /// Limit of the memory of queued packets, in bytes.
    pub memory_limit: u32,
    /// Largest number of packets that one arrival above a limit drops.
    pub drop_batch: u32,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            quantum: 0,
            target: 5_000_000,
            interval: 100_000_000,
            ecn: true,
            ce_threshold: None,
            memory_limit: 32 << 20,
            drop_batch: 64,
        }
    }
}

const FLOWS_MAX: u32 = 65_536;
const QUANTUM_MAX: u32 = 1 << 20;
const MEMORY_MAX: u32 = 1 << 31;

/// The kind fq_codel.
pub(crate) struct FqCodelKind;

/// Indices of the counters of fq_codel.
pub(crate) mod counter {
    pub(crate) const MAXPACKET: usize = 0;
    pub(crate) const DROP_OVERLIMIT: usize = 1;
    pub(crate) const DROP_OVERMEMORY: usize = 2;
    pub(crate) const ECN_MARK: usize = 3;
    pub(crate) const CE_MARK: usize = 4;
    pub(crate) const NEW_FLOW_COUNT: usize = 5;
    pub(crate) const MEMORY_USED: usize = 6;
    pub(crate) const NEW_FLOWS_LEN: usize = 7;
    pub(crate) const OLD_FLOWS_LEN: usize = 8;
}

impl Kind for FqCodelKind {
    type Params = FqCodel;
    const NAME: &'static str = "fq_codel";
    const COUNTERS: &'static [ExtraCounter] = &[
        ExtraCounter::max("maxpacket"),
        ExtraCounter::sum("drop_overlimit"),
        ExtraCounter::sum("drop_overmemory"),
        ExtraCounter::sum("ecn_mark"),
        ExtraCounter::sum("ce_mark"),
        ExtraCounter::sum("new_flow_count"),
        ExtraCounter::gauge("memory_used"),
        ExtraCounter::gauge("new_flows_len"),
        ExtraCounter::gauge("old_flows_len"),
    ];
    const BYPASS: Bypass = Bypass::WithoutFilters;

    fn parse(words: Words<'_>, old: Option<&FqCodel>, _: Env) -> Result<FqCodel, TcError> {
        parse(words, old.copied().unwrap_or_default(), old.is_some())
    }

    fn options(fq: &FqCodel) -> KindOptions {
        let mut all = vec![
            ("limit", fq.limit.into()),
            ("flows", fq.flows.into()),
            ("quantum", fq.quantum.into()),
            ("target", (fq.target / 1000).into()),
            ("interval", (fq.interval / 1000).into()),
            ("memory_limit", fq.memory_limit.into()),
            ("drop_batch", fq.drop_batch.into()),
        ];
        if fq.ecn {
            all.push(("ecn", true.into()));
        }
        if let Some(delay) = fq.ce_threshold {
            all.push(("ce_threshold", (delay / 1000).into()));
        }
        all
    }

    fn build(fq: &FqCodel, plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
        Box::new(FqCodelQdisc::new(plan, *fq, mtu, seed))
    }

    fn resolve(fq: &mut FqCodel, frame: u32) {
        if fq.quantum == 0 {
            fq.quantum = frame.max(QUANTUM_MIN);
        }
    }

    fn classes(_: &FqCodel) -> Classes {
        Classes::Flows
    }
}

fn parse(mut words: Words<'_>, old: FqCodel, change: bool) -> Result<FqCodel, TcError> {
    let mut q = old;
    while let Some(word) = words.next() {
        match word {
            "limit" => q.limit = words.read(word, number::number)?,
            "flows" => {
                let flows = words.read(word, number::number)?;
                if change && flows != old.flows {
                    return Err(invalid("fq_codel: flows cannot be changed, only set anew"));
                }
                if !(1..=FLOWS_MAX).contains(&flows) {
                    return Err(invalid("fq_codel: flows must be 1 to 65536"));
                }
                q.flows = flows;
            }
            "quantum" => {
                let quantum = words.read(word, number::number)?;
                if quantum > QUANTUM_MAX {
                    return Err(invalid("Invalid quantum"));
                }
                q.quantum = quantum.max(QUANTUM_MIN);
            }
            "target" => q.target = words.read(word, number::time)?,
            "interval" => q.interval = words.read(word, number::time)?,
            "ce_threshold" => q.ce_threshold = Some(words.read(word, number::time)?),
            "memory_limit" => {
                q.memory_limit = words.read(word, number::size)?.min(MEMORY_MAX);
            }
            "drop_batch" => q.drop_batch = words.read(word, number::number)?.max(1),
            "ecn" => q.ecn = true,
            "noecn" => q.ecn = false,
            _ => return Err(unknown(word)),
        }
    }
    Ok(q)
}

/// Smallest quantum in bytes: smaller quanta only add rounds.
const QUANTUM_MIN: u32 = 256;

/// Largest backlog in bytes after a packet up to which CoDel does not drop: two full Ethernet
/// frames.
///
/// The tolerance keeps the link busy until more packets arrive. The kernel uses the MTU instead:
/// with a 64 KiB MTU, CoDel would ignore a standing queue of 64 KiB (50 ms at 10 Mbit/s). A single
/// large frame is never dropped, because only bytes *after* the packet count. The backlog is that
/// of the whole qdisc, as in the kernel: packets of any flow keep the link busy.
const TOLERANCE_MAX: u32 = 2 * 1514;

/// Fair queueing among flows, with CoDel in each flow.
struct FqCodelQdisc {
    handle: Handle,
    set: FqCodel,
    quantum: i64,
    law: CodelParameters,
    seed: u64,
    filters: Filters,
    waiting: Waiting,
    stats: Arc<NodeStats>,
}

/// Queued packets, which a successor takes over.
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
    fn new(plan: Blueprint, set: FqCodel, mtu: u32, seed: u64) -> Self {
        let quantum = if set.quantum == 0 { mtu } else { set.quantum };
        let law = CodelParameters {
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

    /// Flow of a packet: the flow number (from 1) in its priority or filter class, otherwise the
    /// hash. A packet that matches no filter is hashed too; the kernel drops it.
    fn flow_of(
        &mut self,
        packet: &mut QueuedPacket,
        keys: &FlowKeys,
        now: u64,
    ) -> Result<u32, DropReason> {
        let priority = Handle(packet.meta.priority);
        let named = if self.handle.0 != 0 && priority.major() == self.handle.major() {
            Some(priority)
        } else {
            match run_filters(&mut self.filters, packet, keys, now) {
                FilterVerdict::Pass => None,
                FilterVerdict::Class(class) => Some(class),
                FilterVerdict::Drop(reason) => return Err(reason),
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

    /// Drops up to half of the bytes of the fattest flow from its head, at most `drop_batch`
    /// packets. Dropping one packet per arrival would repeat the search each time. Returns the flow
    /// if it becomes empty.
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
        // Each drop counts as a congestion signal to the flow.
        flow.codel.count = flow.codel.count.saturating_add(dropped);
        let emptied = flow.queue.is_empty();
        if emptied {
            flow.codel.went_empty();
        }
        self.stats.drops.add(dropped.into());
        self.stats.extra[counter::DROP_OVERLIMIT].add(dropped.into());
        if over_memory {
            self.stats.extra[counter::DROP_OVERMEMORY].add(dropped.into());
        }
        emptied.then_some(at)
    }

    fn publish(&self) {
        let Waiting { held, flows, .. } = &self.waiting;
        self.stats.waiting(held.len, held.bytes);
        self.stats.extra[counter::MEMORY_USED].set(held.memory);
        self.stats.extra[counter::NEW_FLOWS_LEN].set(flows.new_len.into());
        self.stats.extra[counter::OLD_FLOWS_LEN].set(flows.old_len.into());
    }
}

/// Maps a flow hash to a bucket.
fn bucket(hash: u32, seed: u64, flows: u32) -> u32 {
    let mixed = (u64::from(hash) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((mixed >> 32) * u64::from(flows)) >> 32) as u32
}

impl Waiting {
    /// Returns a flow and the state that changes when a packet leaves the flow.
    fn head<'a, 'c>(
        &'a mut self,
        at: At,
        cx: &'a mut Cx<'c>,
        stats: &'a NodeStats,
    ) -> (Head<'a, 'c>, &'a mut Flow) {
        // The lane exists: callers request only flows that are in lists.
        let lane = self.flows.lane_mut(at.channel, at.flow + 1);
        let flow = &mut lane.flows[at.flow as usize];
        let head =
            Head { store: &mut self.store, len: &mut lane.len, held: &mut self.held, cx, stats };
        (head, flow)
    }

    fn push(&mut self, at: At, packet: QueuedPacket, flows: u32, law: &CodelParameters, now: u64) {
        let wire = u64::from(packet.wire_len());
        self.held.len += 1;
        self.held.bytes += wire;
        self.held.memory += u64::from(packet.frag.len());
        let lane = self.flows.lane_mut(at.channel, flows);
        lane.len += 1;
        let flow = &mut lane.flows[at.flow as usize];
        // Reset CoDel here: while its channel is closed, no dequeue notices that the flow is empty.
        if flow.queue.is_empty() && now.saturating_sub(flow.empty_since) >= law.target {
            flow.codel.went_empty();
        }
        flow.bytes += wire;
        self.store.push(&mut flow.queue, packet);
    }
}

/// State outside a flow that changes when a packet leaves the flow.
struct Head<'a, 'c> {
    store: &'a mut Store,
    len: &'a mut u32,
    held: &'a mut Sizes,
    cx: &'a mut Cx<'c>,
    stats: &'a NodeStats,
}

impl Head<'_, '_> {
    fn take(&mut self, flow: &mut Flow) -> Option<QueuedPacket> {
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

/// A flow as the packet source of CoDel.
struct Controlled<'a, 'c> {
    head: Head<'a, 'c>,
    flow: &'a mut Flow,
}

impl Source for Controlled<'_, '_> {
    type Item = QueuedPacket;

    fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.head.take(self.flow)?;
        let largest = &self.head.stats.extra[counter::MAXPACKET];
        if u64::from(packet.wire_len()) > largest.get() {
            self.head.stats.extra[counter::MAXPACKET].set(packet.wire_len().into());
        }
        Some(packet)
    }

    fn since(packet: &QueuedPacket) -> u64 {
        packet.at
    }

    fn backlog(&self) -> u64 {
        self.head.held.bytes
    }

    fn drop(&mut self, packet: QueuedPacket) {
        self.head.stats.drops.add(1);
        self.head.cx.drop(packet, DropReason::Aqm);
    }

    fn mark(&mut self, packet: &mut QueuedPacket, why: Mark) -> bool {
        let marked = ecn::mark(packet, self.head.cx.pool);
        match why {
            Mark::InsteadOfDrop => self.head.stats.extra[counter::ECN_MARK].add(marked.into()),
            Mark::Threshold => self.head.stats.extra[counter::CE_MARK].add(marked.into()),
        }
        marked
    }
}

impl Qdisc for FqCodelQdisc {
    fn enqueue(&mut self, mut packet: QueuedPacket, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
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
            self.stats.extra[counter::NEW_FLOW_COUNT].add(1);
        }
        let emptied = if self.is_over() { self.drop_from_fattest(cx) } else { None };
        self.publish();
        if emptied == Some(at) { Enqueued::Dropped } else { Enqueued::Queued }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
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
        self.stats.totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        let Waiting { mut store, mut flows, .. } = std::mem::take(&mut self.waiting);
        for at in flows.listed() {
            let queue = &mut flows.flow_mut(at).queue;
            while let Some(packet) = store.pop(queue) {
                out.push(packet);
            }
        }
        self.publish();
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>) {
        let Some(mut old) = same_kind::<Self>(old, rest) else { return };
        if old.set.flows != self.set.flows {
            // Queue all packets again: a different number of flows changes the hash assignment.
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
