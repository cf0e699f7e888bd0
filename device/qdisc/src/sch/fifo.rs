//! pfifo and bfifo.

use std::sync::Arc;

use mqnet_wire::FlowKeys;

use super::channels::{Channels, Unit};
use super::same_kind;
use crate::kind::{Env, Kind, KindOptions, TXQUEUELEN};
use crate::parse::{Words, number, usage};
use crate::{Blueprint, Cx, Enqueued, NodeStats, Qdisc, QueuedPacket, TcError, Totals};

/// Parameters of pfifo, bfifo and pfifo_fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Limit: packets for pfifo, bytes for bfifo, packets of each band for pfifo_fast.
    pub limit: u32,
}

/// The kind pfifo.
pub(crate) struct Pfifo;

/// The kind bfifo.
pub(crate) struct Bfifo;

impl Kind for Pfifo {
    type Params = Fifo;
    const NAME: &'static str = "pfifo";

    fn parse(words: Words<'_>, old: Option<&Fifo>, _: Env) -> Result<Fifo, TcError> {
        parse(Self::NAME, words, old.copied().unwrap_or(Fifo { limit: TXQUEUELEN }))
    }

    fn options(fifo: &Fifo) -> KindOptions {
        vec![("limit", fifo.limit.into())]
    }

    fn build(fifo: &Fifo, plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        Box::new(FifoQdisc::packets(fifo.limit, plan.stats))
    }
}

impl Kind for Bfifo {
    type Params = Fifo;
    const NAME: &'static str = "bfifo";

    fn parse(words: Words<'_>, old: Option<&Fifo>, env: Env) -> Result<Fifo, TcError> {
        let limit = TXQUEUELEN.saturating_mul(env.frame);
        parse(Self::NAME, words, old.copied().unwrap_or(Fifo { limit }))
    }

    fn options(fifo: &Fifo) -> KindOptions {
        vec![("limit", fifo.limit.into())]
    }

    fn build(fifo: &Fifo, plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        Box::new(FifoQdisc::new(Unit::Bytes, fifo.limit, plan.stats))
    }
}

fn parse(kind: &str, mut words: Words<'_>, old: Fifo) -> Result<Fifo, TcError> {
    let mut fifo = old;
    while let Some(word) = words.next() {
        match word {
            "limit" => {
                let word = words.value()?;
                fifo.limit = number::size(word).ok_or_else(|| {
                    usage(format!("{kind}: Illegal value for \"limit\": \"{word}\""))
                })?;
            }
            _ => return Err(usage(format!("{kind}: unknown parameter \"{word}\""))),
        }
    }
    Ok(fifo)
}

/// FIFO queue with a limit. A packet above the limit is dropped, unless packets of a closed channel
/// with a larger queue are dropped instead.
pub(crate) struct FifoQdisc {
    waiting: Channels,
    unit: Unit,
    limit: u32,
    stats: Arc<NodeStats>,
}

/// Creates a pfifo for kinds without a scheduler; no blueprint contains such a kind.
pub(crate) fn placeholder(plan: Blueprint) -> Box<dyn Qdisc> {
    Box::new(FifoQdisc::packets(TXQUEUELEN, plan.stats))
}

impl FifoQdisc {
    /// Creates a FIFO queue with a limit in packets.
    pub(crate) fn packets(limit: u32, stats: Arc<NodeStats>) -> Self {
        Self::new(Unit::Packets, limit, stats)
    }

    fn new(unit: Unit, limit: u32, stats: Arc<NodeStats>) -> Self {
        Self { waiting: Channels::default(), unit, limit, stats }
    }

    fn publish(&self) {
        self.stats.waiting(self.waiting.len(), self.waiting.bytes());
    }
}

impl Qdisc for FifoQdisc {
    fn enqueue(&mut self, packet: QueuedPacket, _keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        let (result, dropped) = self.waiting.offer(packet, self.unit, self.limit, cx);
        self.stats.drops.add(dropped);
        self.publish();
        result
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        let packet = self.waiting.pop(cx.open)?;
        self.stats.sent(&packet);
        self.publish();
        Some(packet)
    }

    fn next_time(&self) -> Option<u64> {
        None
    }

    fn len(&self) -> u32 {
        self.waiting.len()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.waiting.len_of(channel)
    }

    fn backlog(&self) -> u64 {
        self.waiting.bytes()
    }

    fn totals(&self) -> Totals {
        self.stats.totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.waiting.take_all(out);
        self.publish();
    }

    /// Takes the queued packets, even above a smaller limit: the queue then accepts no packet until
    /// it has drained below the limit.
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, _cx: &mut Cx<'_>) {
        if let Some(mut old) = same_kind::<Self>(old, rest) {
            self.waiting = std::mem::take(&mut old.waiting);
            old.publish();
            self.publish();
        }
    }
}
