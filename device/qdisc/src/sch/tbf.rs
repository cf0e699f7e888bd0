//! tbf.

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::bucket::Bucket;
use super::class::{Class, Sum};
use super::same_kind;
use crate::{
    Blueprint, ClassPlan, Cx, Enqueued, Extra, Fifo, Handle, Packet, Params, Qdisc, Tbf, Totals,
};

/// Bytes of the shortest frame: no earlier than for these anything can leave.
const SHORTEST: u32 = 64;

/// Packets leave at a rate. Large frames that will be cut into segments later and exceed the burst
/// pass whole when the bucket is full (see [`Bucket`]); a frame that exceeds it as it is can
/// never be sent at this setting and is dropped, as by the kernel.
pub(crate) struct TbfQdisc {
    class: Class,
    rate: Bucket,
    peak: Option<Bucket>,
    /// Longest frame that fits the buckets.
    max_frame: u32,
    /// When the packet that was looked at may leave.
    wake: Option<u64>,
    sum: Sum,
}

impl TbfQdisc {
    pub(crate) fn new(mut plan: Blueprint, tbf: Tbf, mtu: u32, seed: u64) -> Self {
        let inner = Params::Bfifo(Fifo { limit: tbf.limit });
        let class = plan.classes.pop().unwrap_or_else(|| {
            let mut class = ClassPlan::plain(Handle::new(plan.handle.major(), 1));
            class.child.params = inner;
            class
        });
        let peak = (tbf.peakrate > 0).then(|| Bucket::new(tbf.peakrate, tbf.mtu));
        Self {
            class: Class::new(class, mtu, seed),
            rate: Bucket::new(tbf.rate, tbf.burst),
            max_frame: if peak.is_some() { tbf.burst.min(tbf.mtu) } else { tbf.burst },
            peak,
            wake: None,
            sum: Sum::new(plan.stats),
        }
    }

    /// True when so many bytes may not leave yet.
    fn waits_for(&mut self, bytes: u32, now: u64) -> bool {
        let ready = self.buckets().map(|bucket| bucket.ready(bytes, now)).fold(now, u64::max);
        let wake = (ready > now).then_some(ready);
        // Once for each wait: how often a caller looks is no property of the traffic.
        if wake.is_some() && self.wake != wake {
            self.sum.stats().overlimits.add(1);
        }
        self.wake = wake;
        wake.is_some()
    }

    fn buckets(&mut self) -> impl Iterator<Item = &mut Bucket> {
        std::iter::once(&mut self.rate).chain(&mut self.peak)
    }
}

impl Qdisc for TbfQdisc {
    fn enqueue(&mut self, packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        if packet.frame_len() > self.max_frame {
            self.sum.stats().drops.add(1);
            cx.drop(packet, DropReason::QdiscOverlimit);
            return Enqueued::Dropped;
        }
        let (result, change) = self.class.enqueue(packet, keys, cx);
        self.sum.apply(change);
        result
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        // A packet that is looked at leaves before all others. While some channels are closed (or
        // have a packet set aside) that would be one of another channel, out of its flow's turn:
        // nobody looks before anything could leave at all.
        if !self.class.is_choice_free(cx.open) && self.waits_for(SHORTEST, cx.now) {
            return None;
        }
        let (first, change) = self.class.peek(cx);
        let first = first.map(Packet::wire_len);
        self.sum.apply(change);
        let Some(bytes) = first else {
            self.wake = None;
            return None;
        };
        if self.waits_for(bytes, cx.now) {
            return None;
        }
        self.buckets().for_each(|bucket| bucket.spend(bytes));
        let (packet, change) = self.class.dequeue(cx);
        self.sum.apply(change);
        if let Some(packet) = &packet {
            self.sum.stats().sent(packet);
        }
        packet
    }

    fn next_time(&self) -> Option<u64> {
        // With a packet at hand, what the inner discipline once waited for is over.
        self.wake.or_else(|| self.class.next_time())
    }

    fn len(&self) -> u32 {
        self.sum.len()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.class.len_of(channel)
    }

    fn backlog(&self) -> u64 {
        self.sum.bytes()
    }

    fn totals(&self) -> Totals {
        self.sum.stats().with(Extra::None)
    }

    fn take_all(&mut self, out: &mut Vec<Packet>) {
        self.class.take_all(out);
        self.wake = None;
        self.sum.recount(std::iter::empty());
    }

    /// Tokens are kept: a burst cannot be had again by a change.
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<Packet>, cx: &mut Cx<'_>) {
        let Some(old) = same_kind::<Self>(old, rest) else { return };
        let mut old = *old;
        self.rate.adopt(&old.rate);
        if let (Some(new), Some(old)) = (&mut self.peak, &old.peak) {
            new.adopt(old);
        }
        old.sum.recount(std::iter::empty());
        self.class.adopt(old.class, rest, cx);
        self.sum.recount(std::iter::once(&self.class));
    }
}
