//! Sums of a link's counters, and the conservation law.

use std::sync::Arc;

use mqnet_engine::Link;
use mqnet_netdev::{ChannelStats, DropReason};
use serde_json::{Value, json};

/// One direction: what its sources took in, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSums {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) drops: u64,
    pub(crate) by_reason: [u64; DropReason::ALL.len()],
    pub(crate) lost: u64,
    pub(crate) xdp_out: u64,
    pub(crate) xdp_in: u64,
    pub(crate) stops: u64,
    pub(crate) wakes: u64,
    pub(crate) stopped_ns: u64,
    pub(crate) kicks: u64,
    pub(crate) copies: u64,
    pub(crate) syscalls: u64,
    pub(crate) segments: u64,
    pub(crate) merged: u64,
}

impl LaneSums {
    /// The lane from RX half `rx` to TX half `tx`.
    pub(crate) fn of(rx: &ChannelStats, tx: &ChannelStats) -> Self {
        let mut sums = Self::default();
        sums.add(rx, tx);
        sums
    }

    pub(crate) fn add(&mut self, from: &ChannelStats, to: &ChannelStats) {
        let (rx, tx) = (&from.rx, &to.tx);
        self.rx_packets += rx.packets.get();
        self.rx_bytes += rx.bytes.get();
        self.tx_packets += tx.packets.get();
        self.tx_bytes += tx.bytes.get();
        self.drops += rx.drops.total() + tx.drops.total();
        for (sum, reason) in self.by_reason.iter_mut().zip(DropReason::ALL) {
            *sum += rx.drops.get(reason) + tx.drops.get(reason);
        }
        self.lost += tx.lost.get();
        self.xdp_out += rx.xdp.sent.get();
        self.xdp_in += tx.xdp_tx.get();
        self.stops += tx.stops.get();
        self.wakes += tx.wakes.get();
        self.stopped_ns += tx.stopped_ns.get();
        self.kicks += rx.kicks.get() + tx.kicks.get();
        self.copies += tx.copies.get();
        self.syscalls += rx.syscalls.get() + tx.syscalls.get();
        self.segments += tx.segments.get() + rx.xdp.segments.get();
        self.merged += tx.merged.get();
    }

    /// Frames that came in, or were made of those that did, and have neither left nor been
    /// dropped. At rest it must be 0.
    pub(crate) fn in_flight(&self) -> i64 {
        let came = (self.rx_packets + self.xdp_in + self.segments) as i64;
        let left = (self.tx_packets + self.merged + self.xdp_out) as i64;
        came - left - self.drops as i64
    }

    /// What happened since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut by_reason = self.by_reason;
        for (now, then) in by_reason.iter_mut().zip(before.by_reason) {
            *now -= then;
        }
        Self {
            rx_packets: self.rx_packets - before.rx_packets,
            rx_bytes: self.rx_bytes - before.rx_bytes,
            tx_packets: self.tx_packets - before.tx_packets,
            tx_bytes: self.tx_bytes - before.tx_bytes,
            drops: self.drops - before.drops,
            by_reason,
            lost: self.lost - before.lost,
            xdp_out: self.xdp_out - before.xdp_out,
            xdp_in: self.xdp_in - before.xdp_in,
            stops: self.stops - before.stops,
            wakes: self.wakes - before.wakes,
            stopped_ns: self.stopped_ns - before.stopped_ns,
            kicks: self.kicks - before.kicks,
            copies: self.copies - before.copies,
            syscalls: self.syscalls - before.syscalls,
            segments: self.segments - before.segments,
            merged: self.merged - before.merged,
        }
    }

    /// Under the names of the statistics.
    pub(crate) fn json(&self) -> Value {
        let mut drops = serde_json::Map::new();
        for (reason, n) in DropReason::ALL.iter().zip(self.by_reason) {
            if n > 0 {
                drops.insert(reason.name().to_owned(), n.into());
            }
        }
        json!({
            "rx-packets": self.rx_packets, "rx-bytes": self.rx_bytes,
            "tx-packets": self.tx_packets, "tx-bytes": self.tx_bytes,
            "drops": drops, "tx-lost": self.lost, "in-flight": self.in_flight(),
            "xdp-out": self.xdp_out, "xdp-in": self.xdp_in,
            "tx-stop": self.stops, "tx-wake": self.wakes, "stopped-ns": self.stopped_ns,
            "kicks": self.kicks, "copies": self.copies, "segments": self.segments,
            "syscalls": self.syscalls,
            "merged": self.merged,
        })
    }
}

/// The statistics of both functions' channels.
pub(crate) fn channel_stats(link: &mut Link) -> [Vec<Arc<ChannelStats>>; 2] {
    link.stats().map(<[_]>::to_vec)
}

/// Both directions of each channel.
pub(crate) fn channels_json(link: &mut Link) -> Vec<Value> {
    let [a, b] = channel_stats(link);
    let lane = |from: &ChannelStats, to: &ChannelStats| LaneSums::of(from, to).json();
    let both = a.iter().zip(&b);
    both.map(|(a, b)| json!({ "a-to-b": lane(a, b), "b-to-a": lane(b, a) })).collect()
}

/// Each direction over all channels that there have been: a to b, then b to a.
pub(crate) fn link_sums(link: &mut Link) -> [LaneSums; 2] {
    let [a, b] = channel_stats(link);
    let mut sums = [LaneSums::default(); 2];
    for (a, b) in a.iter().zip(&b) {
        sums[0].add(a, b);
        sums[1].add(b, a);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what came in is accounted for: sent, dropped for a reason, or in flight.
    #[test]
    fn conservation() {
        let (from, to) = (ChannelStats::default(), ChannelStats::default());
        from.rx.packets.add(10);
        from.rx.drops.count(DropReason::TooLong, 2);
        to.tx.packets.add(6);
        to.tx.drops.count(DropReason::Refused, 1);
        let sums = LaneSums::of(&from, &to);
        assert_eq!((sums.drops, sums.in_flight()), (3, 1));
        assert_eq!(sums.json()["drops"]["too-long"], 2);
        assert_eq!(sums.since(&sums), LaneSums::default());
    }

    // Goal: of small frames that are merged, fewer leave than came, and the law counts them.
    #[test]
    fn merged_frames_are_accounted_for() {
        let (from, to) = (ChannelStats::default(), ChannelStats::default());
        from.rx.packets.add(45);
        to.tx.packets.add(2);
        to.tx.merged.add(42);
        let sums = LaneSums::of(&from, &to);
        assert_eq!((sums.in_flight(), sums.json()["merged"].as_u64()), (1, Some(42)));
    }

    // Goal: of a large frame that is cut, more leave than came, and the law counts them.
    #[test]
    fn segments_are_accounted_for() {
        let (from, to) = (ChannelStats::default(), ChannelStats::default());
        from.rx.packets.add(2);
        to.tx.packets.add(45);
        to.tx.segments.add(44);
        let sums = LaneSums::of(&from, &to);
        assert_eq!((sums.in_flight(), sums.json()["segments"].as_u64()), (1, Some(44)));
    }
}
