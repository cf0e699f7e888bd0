//! prio.

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::class::{Class, Sum};
use super::{run_filters, same_kind};
use crate::{
    Blueprint, ClassPlan, Cx, Enqueued, Extra, Filters, Handle, Packet, Prio, Qdisc, Totals,
    Verdict,
};

/// Bands with a discipline each; one is served when those before it have nothing that may leave.
pub(crate) struct PrioQdisc {
    handle: Handle,
    bands: Vec<Class>,
    priomap: [u8; 16],
    filters: Filters,
    sum: Sum,
}

impl PrioQdisc {
    pub(crate) fn new(plan: Blueprint, prio: Prio, mtu: u32, seed: u64) -> Self {
        let handle = plan.handle;
        let mut classes = plan.classes;
        for minor in classes.len() as u16 + 1..=u16::from(prio.bands.max(1)) {
            classes.push(ClassPlan::plain(Handle::new(handle.major(), minor)));
        }
        Self {
            handle,
            bands: classes.into_iter().map(|class| Class::new(class, mtu, seed)).collect(),
            priomap: prio.priomap,
            filters: plan.filters,
            sum: Sum::new(plan.stats),
        }
    }

    /// The band of a packet: a priority that is a class of ours, then filters, then the map.
    fn band(
        &mut self,
        packet: &mut Packet,
        keys: &FlowKeys,
        now: u64,
    ) -> Result<usize, DropReason> {
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
        let mapped = |priority: u32| usize::from(self.priomap[(priority & 15) as usize]);
        let band = match named.map(|class| usize::from(class.minor())) {
            Some(minor) if (1..=self.bands.len()).contains(&minor) => minor - 1,
            // A class that is not there: as if the priority were 0.
            Some(_) => mapped(0),
            None if Handle(packet.meta.priority).major() != 0 => mapped(0),
            None => mapped(packet.meta.priority),
        };
        Ok(band.min(self.bands.len() - 1))
    }
}

impl Qdisc for PrioQdisc {
    fn enqueue(&mut self, mut packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        match self.band(&mut packet, keys, cx.now) {
            Ok(band) => {
                let (result, change) = self.bands[band].enqueue(packet, keys, cx);
                self.sum.apply(change);
                result
            }
            Err(reason) => {
                self.sum.stats().drops.add(1);
                cx.drop(packet, reason);
                Enqueued::Dropped
            }
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        for band in self.bands.iter_mut().filter(|band| !band.is_empty()) {
            let (packet, change) = band.dequeue(cx);
            self.sum.apply(change);
            if let Some(packet) = packet {
                self.sum.stats().sent(&packet);
                return Some(packet);
            }
        }
        None
    }

    fn next_time(&self) -> Option<u64> {
        self.bands.iter().filter(|band| !band.is_empty()).filter_map(Class::next_time).min()
    }

    fn len(&self) -> u32 {
        self.sum.len()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.bands.iter().map(|band| band.len_of(channel)).sum()
    }

    fn backlog(&self) -> u64 {
        self.sum.bytes()
    }

    fn totals(&self) -> Totals {
        self.sum.stats().with(Extra::None)
    }

    fn take_all(&mut self, out: &mut Vec<Packet>) {
        self.bands.iter_mut().for_each(|band| band.take_all(out));
        self.sum.recount(self.bands.iter());
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<Packet>, cx: &mut Cx<'_>) {
        let Some(mut old) = same_kind::<Self>(old, rest) else { return };
        let mut bands = std::mem::take(&mut old.bands).into_iter();
        for (new, old) in self.bands.iter_mut().zip(bands.by_ref()) {
            new.adopt(old, rest, cx);
        }
        bands.for_each(|mut band| band.take_all(rest));
        old.sum.recount(std::iter::empty());
        self.sum.recount(self.bands.iter());
    }
}
