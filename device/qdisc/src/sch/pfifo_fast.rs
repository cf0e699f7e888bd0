//! pfifo_fast.

use std::sync::Arc;

use mqnet_wire::FlowKeys;

use super::channels::{Channels, Unit};
use super::fifo::Fifo;
use super::prio::{PRIOMAP, band_options};
use super::same_kind;
use crate::kind::{Env, Kind, KindOptions, TXQUEUELEN};
use crate::parse::{Words, usage};
use crate::{Blueprint, Cx, Enqueued, NodeStats, Qdisc, QueuedPacket, TcError, Totals};

/// The kind pfifo_fast.
pub(crate) struct PfifoFast;

impl Kind for PfifoFast {
    type Params = Fifo;
    const NAME: &'static str = "pfifo_fast";

    fn parse(mut words: Words<'_>, _: Option<&Fifo>, _: Env) -> Result<Fifo, TcError> {
        match words.next() {
            Some(_) => Err(usage("qdisc 'pfifo_fast' does not support option parsing")),
            None => Ok(Fifo { limit: TXQUEUELEN }),
        }
    }

    fn options(_: &Fifo) -> KindOptions {
        band_options(3, &PRIOMAP)
    }

    fn build(fifo: &Fifo, plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        Box::new(PfifoFastQdisc::new(fifo.limit, plan.stats))
    }
}

/// Three bands by priority; a band is served if the bands before it have no packet of an open
/// channel.
struct PfifoFastQdisc {
    bands: [Channels; 3],
    /// Limit of each band in packets.
    limit: u32,
    stats: Arc<NodeStats>,
}

impl PfifoFastQdisc {
    fn new(limit: u32, stats: Arc<NodeStats>) -> Self {
        Self { bands: Default::default(), limit, stats }
    }

    fn publish(&self) {
        self.stats.waiting(self.len(), self.backlog());
    }
}

impl Qdisc for PfifoFastQdisc {
    fn enqueue(&mut self, packet: QueuedPacket, _keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        let band = PRIOMAP[(packet.meta.priority & 15) as usize];
        let band = &mut self.bands[usize::from(band)];
        let (result, dropped) = band.offer(packet, Unit::Packets, self.limit, cx);
        self.stats.drops.add(dropped);
        self.publish();
        result
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        let packet = self.bands.iter_mut().find_map(|band| band.pop(cx.open))?;
        self.stats.sent(&packet);
        self.publish();
        Some(packet)
    }

    fn next_time(&self) -> Option<u64> {
        None
    }

    fn len(&self) -> u32 {
        self.bands.iter().map(Channels::len).sum()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.bands.iter().map(|band| band.len_of(channel)).sum()
    }

    fn backlog(&self) -> u64 {
        self.bands.iter().map(Channels::bytes).sum()
    }

    fn totals(&self) -> Totals {
        self.stats.totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.bands.iter_mut().for_each(|band| band.take_all(out));
        self.publish();
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, _cx: &mut Cx<'_>) {
        if let Some(mut old) = same_kind::<Self>(old, rest) {
            self.bands = std::mem::take(&mut old.bands);
            old.publish();
            self.publish();
        }
    }
}
