//! Token bucket filter: tbf.

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::bucket::Bucket;
use super::class::{Class, Sum};
use super::same_kind;
use crate::kind::{Bypass, Classes, Env, Kind, KindOptions};
use crate::parse::{Words, invalid, number, usage};
use crate::{
    Blueprint, ClassPlan, Cx, Enqueued, Fifo, Handle, Params, Qdisc, QueuedPacket, TcError, Totals,
};

/// Parameters of tbf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tbf {
    /// Rate in bytes per second.
    pub rate: u64,
    /// Depth of the bucket in bytes.
    pub burst: u32,
    /// Rate of the second bucket in bytes per second; 0: no second bucket.
    pub peakrate: u64,
    /// Depth of the second bucket in bytes.
    pub mtu: u32,
    /// Limit of queued bytes, which is the limit of the inner bfifo.
    pub limit: u32,
}

/// The kind tbf.
pub(crate) struct TbfKind;

impl Kind for TbfKind {
    type Params = Tbf;
    const NAME: &'static str = "tbf";
    const BYPASS: Bypass = Bypass::Never;

    fn parse(words: Words<'_>, _: Option<&Tbf>, _: Env) -> Result<Tbf, TcError> {
        parse(words)
    }

    /// Options in force. The limit is shown as a latency, unless the limit is smaller than each
    /// bucket.
    fn options(tbf: &Tbf) -> KindOptions {
        let mut all = vec![("rate", tbf.rate.into()), ("burst", tbf.burst.into())];
        let delay = |rate: u64, bucket: u32| {
            let over = u64::from(tbf.limit).checked_sub(u64::from(bucket))?;
            (over * 1_000_000).checked_div(rate)
        };
        let mut lat = delay(tbf.rate, tbf.burst);
        if tbf.peakrate > 0 {
            all.extend([("peakrate", tbf.peakrate.into()), ("minburst", tbf.mtu.into())]);
            lat = lat.max(delay(tbf.peakrate, tbf.mtu));
        }
        all.push(lat.map_or(("limit", tbf.limit.into()), |lat| ("lat", lat.into())));
        all
    }

    fn build(tbf: &Tbf, plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
        Box::new(TbfQdisc::new(plan, *tbf, mtu, seed))
    }

    fn classes(tbf: &Tbf) -> Classes {
        Classes::One(Params::Bfifo(Fifo { limit: tbf.limit }))
    }
}

/// Parses a value of an option that may be given once, with the error texts of tbf.
fn tbf_value<T: Copy>(
    words: &mut Words<'_>,
    name: &str,
    into: &mut Option<T>,
    read: fn(&str) -> Option<T>,
) -> Result<(), TcError> {
    if into.is_some() {
        return Err(usage(format!("tbf: duplicate \"{name}\" specification")));
    }
    let word = words.value()?;
    let value = read(word);
    *into =
        Some(value.ok_or_else(|| usage(format!("tbf: illegal value for \"{name}\": \"{word}\"")))?);
    Ok(())
}

/// Parses a number of bytes. A cell size after a slash is validated and ignored.
fn burst(word: &str) -> Option<u32> {
    match word.split_once('/') {
        Some((bytes, cell)) => {
            let cell: u32 = number::decimal(cell)?;
            number::size(bytes).filter(|_| cell.is_power_of_two())
        }
        None => number::size(word),
    }
}

fn parse(mut words: Words<'_>) -> Result<Tbf, TcError> {
    let (mut rate, mut bucket, mut limit, mut latency) = (None, None, None, None);
    let (mut peakrate, mut mtu) = (None, None);
    while let Some(word) = words.next() {
        let words = &mut words;
        match word {
            "rate" => tbf_value(words, word, &mut rate, number::rate)?,
            "burst" | "buffer" | "maxburst" => tbf_value(words, word, &mut bucket, burst)?,
            "limit" => tbf_value(words, word, &mut limit, number::size)?,
            "latency" => tbf_value(words, word, &mut latency, number::time)?,
            "peakrate" => tbf_value(words, word, &mut peakrate, number::rate)?,
            "mtu" | "minburst" => tbf_value(words, word, &mut mtu, burst)?,
            _ => return Err(usage(format!("tbf: unknown parameter \"{word}\""))),
        }
    }
    let positive = |name, value: Option<u64>| {
        let missing = || usage(format!("tbf: the \"{name}\" parameter is mandatory"));
        value.filter(|value| *value > 0).ok_or_else(missing)
    };
    if limit.is_some() && latency.is_some() {
        return Err(usage("tbf: specifying both \"limit\" and \"latency\" is not allowed"));
    }
    let rate = positive("rate", rate)?;
    let bucket = positive("burst", bucket.map(u64::from))? as u32;
    let (peakrate, mtu) = (peakrate.unwrap_or(0), mtu.unwrap_or(0));
    if peakrate > 0 && mtu == 0 {
        let text = "tbf: when \"peakrate\" is specified, \"mtu\" must also be specified";
        return Err(usage(text));
    }
    let limit = match (limit.unwrap_or(0), latency.unwrap_or(0)) {
        (0, 0) => return Err(usage("tbf: either \"limit\" or \"latency\" is required")),
        (0, latency) => latency_limit(latency, (rate, bucket), (peakrate, mtu)),
        (limit, _) => limit,
    };
    if peakrate > 0 && peakrate <= rate {
        return Err(invalid("tbf: peakrate must be greater than rate"));
    }
    Ok(Tbf { rate, burst: bucket, peakrate, mtu, limit })
}

/// Number of bytes that leave within a latency: the smaller result of both buckets, each with its
/// rate and depth.
fn latency_limit(latency: u64, slow: (u64, u32), peak: (u64, u32)) -> u32 {
    let through = |(rate, burst): (u64, u32)| {
        let bytes = u128::from(rate) * u128::from(latency) / 1_000_000_000 + u128::from(burst);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    if peak.0 > 0 { through(slow).min(through(peak)) } else { through(slow) }
}

/// Length of the shortest frame in bytes; no packet can leave before the tokens for this length are
/// available.
const SHORTEST: u32 = 64;

/// Token bucket filter. A GSO frame with segments that fit the burst may exceed the burst as a
/// whole; such a frame leaves when the bucket is full (see [`Bucket`]). A frame with a segment
/// longer than the burst is dropped, as in the kernel.
struct TbfQdisc {
    class: Class,
    rate: Bucket,
    peak: Option<Bucket>,
    /// Longest frame on the wire that fits the buckets, in bytes.
    max_frame: u32,
    /// Time at which the next packet may leave, if the buckets hold it back.
    wake: Option<u64>,
    sum: Sum,
}

impl TbfQdisc {
    fn new(mut plan: Blueprint, tbf: Tbf, mtu: u32, seed: u64) -> Self {
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

    /// True if `bytes` bytes may not leave yet; records the time at which they may.
    fn waits_for(&mut self, bytes: u32, now: u64) -> bool {
        let ready = self.buckets().map(|bucket| bucket.ready(bytes, now)).fold(now, u64::max);
        let wake = (ready > now).then_some(ready);
        // Count each wait once: the polling frequency is no property of the traffic.
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
    fn enqueue(&mut self, packet: QueuedPacket, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        if packet.frame_len() > self.max_frame {
            self.sum.stats().drops.add(1);
            cx.drop(packet, DropReason::QdiscOverlimit);
            return Enqueued::Dropped;
        }
        let (result, change) = self.class.enqueue(packet, keys, cx);
        self.sum.apply(change);
        result
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        // Do not peek before the shortest frame could leave if closed channels restrict the
        // selection. A peek holds the selected packet, which then leaves before all others, also if
        // other channels have opened since.
        if !self.class.is_choice_free(cx.open) && self.waits_for(SHORTEST, cx.now) {
            return None;
        }
        let (first, change) = self.class.peek(cx);
        let first = first.map(QueuedPacket::wire_len);
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
        // Prefer the wait for the buckets: a peeked packet no longer waits in the inner qdisc.
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
        self.sum.stats().totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.class.take_all(out);
        self.wake = None;
        self.sum.recount(std::iter::empty());
    }

    /// Takes the levels of the old buckets with the packets, so that a change does not allow a
    /// second burst.
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>) {
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
