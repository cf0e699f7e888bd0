//! prio.

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::class::{Class, Sum};
use super::{run_filters, same_kind};
use crate::kind::{Bypass, Classes, Env, Kind, KindOptions};
use crate::parse::{Words, invalid, number, unknown, usage};
use crate::{
    Blueprint, ClassPlan, Cx, Enqueued, FilterVerdict, Filters, Handle, Qdisc, QueuedPacket,
    TcError, Totals,
};

/// Default priority map of pfifo_fast and prio.
pub const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// Parameters of prio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prio {
    /// Number of bands, 2 to 16.
    pub bands: u8,
    /// Band of each priority.
    pub priomap: [u8; 16],
}

impl Default for Prio {
    fn default() -> Self {
        Self { bands: 3, priomap: PRIOMAP }
    }
}

/// The kind prio.
pub(crate) struct PrioKind;

impl Kind for PrioKind {
    type Params = Prio;
    const NAME: &'static str = "prio";
    const BYPASS: Bypass = Bypass::WithoutFilters;

    fn parse(words: Words<'_>, _: Option<&Prio>, _: Env) -> Result<Prio, TcError> {
        parse(words)
    }

    fn options(prio: &Prio) -> KindOptions {
        band_options(prio.bands, &prio.priomap)
    }

    fn build(prio: &Prio, plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
        Box::new(PrioQdisc::new(plan, *prio, mtu, seed))
    }

    fn classes(prio: &Prio) -> Classes {
        Classes::Bands(prio.bands.into())
    }
}

/// Options of a qdisc with bands: prio and pfifo_fast.
pub(crate) fn band_options(bands: u8, priomap: &[u8; 16]) -> KindOptions {
    vec![
        ("bands", u32::from(bands).into()),
        ("priomap", priomap[..].into()),
        ("multiqueue", false.into()),
    ]
}

fn parse(mut words: Words<'_>) -> Result<Prio, TcError> {
    let mut prio = Prio::default();
    let mut mapped = None;
    while let Some(word) = words.next() {
        match (word, &mut mapped) {
            ("bands", _) => {
                let bands = words.read("bands", number::decimal::<u32>)?;
                prio.bands = bands.try_into().unwrap_or(u8::MAX);
            }
            ("priomap", None) => {
                // At least one element must follow.
                words.peek().map_or_else(|| words.value().map(drop), |_| Ok(()))?;
                mapped = Some(0);
            }
            ("priomap", Some(_)) => return Err(usage("Error: duplicate priomap")),
            (word, Some(at)) => {
                let band = number::decimal::<u8>(word)
                    .ok_or_else(|| usage(format!("Illegal \"priomap\" element: \"{word}\"")))?;
                if band >= prio.bands {
                    return Err(usage("\"priomap\" element is out of bands"));
                }
                let slot = prio.priomap.get_mut(*at);
                *slot.ok_or_else(|| usage("\"priomap\" index > TC_PRIO_MAX=15"))? = band;
                *at += 1;
            }
            (word, None) => return Err(unknown(word)),
        }
    }
    if !(2..=16).contains(&prio.bands) {
        return Err(invalid("prio: bands must be 2 to 16"));
    }
    match prio.priomap.iter().find(|band| **band >= prio.bands) {
        Some(band) => {
            Err(invalid(format!("prio: priomap has band {band}, of {} bands", prio.bands)))
        }
        None => Ok(prio),
    }
}

/// Bands, each with a qdisc; a band is served if no earlier band has a packet that may leave.
struct PrioQdisc {
    handle: Handle,
    bands: Vec<Class>,
    priomap: [u8; 16],
    filters: Filters,
    sum: Sum,
}

impl PrioQdisc {
    fn new(plan: Blueprint, prio: Prio, mtu: u32, seed: u64) -> Self {
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

    /// Band of a packet: the class id in its priority, otherwise the result of the filters,
    /// otherwise the map. An error is the drop reason of a filter.
    fn band(
        &mut self,
        packet: &mut QueuedPacket,
        keys: &FlowKeys,
        now: u64,
    ) -> Result<usize, DropReason> {
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
        let mapped = |priority: u32| usize::from(self.priomap[(priority & 15) as usize]);
        let band = match named.map(|class| usize::from(class.minor())) {
            Some(minor) if (1..=self.bands.len()).contains(&minor) => minor - 1,
            // Map a class that does not exist like priority 0.
            Some(_) => mapped(0),
            None if Handle(packet.meta.priority).major() != 0 => mapped(0),
            None => mapped(packet.meta.priority),
        };
        Ok(band.min(self.bands.len() - 1))
    }
}

impl Qdisc for PrioQdisc {
    fn enqueue(&mut self, mut packet: QueuedPacket, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
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

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
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
        self.sum.stats().totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.bands.iter_mut().for_each(|band| band.take_all(out));
        self.sum.recount(self.bands.iter());
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>) {
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
