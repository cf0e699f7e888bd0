//! Sums over lanes, and the conservation check.

use std::fmt::Write;
use std::ops::Deref;

use super::{Check, DropReason, LaneCounters, QueuePairStats};

/// Sums over lanes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSums {
    /// All counters except the drops.
    pub counters: LaneCounters,
    /// Drops of both queues, in the order of [`DropReason::ALL`].
    pub by_reason: [u64; DropReason::ALL.len()],
}

impl Deref for LaneSums {
    type Target = LaneCounters;

    fn deref(&self) -> &LaneCounters {
        &self.counters
    }
}

impl LaneSums {
    /// Creates the sums of the lane from the RX queue of `from` to the TX queue of `to`.
    pub fn of(from: &QueuePairStats, to: &QueuePairStats) -> Self {
        let mut sums = Self::default();
        sums.add(from, to);
        sums
    }

    /// Adds a lane. The TX counters are read first: while frames move, the sums never have more
    /// frames that left than frames that entered.
    pub fn add(&mut self, from: &QueuePairStats, to: &QueuePairStats) {
        to.tx.add_to(&mut self.counters);
        for (sum, reason) in self.by_reason.iter_mut().zip(DropReason::ALL) {
            *sum += to.tx.drops.get(reason) + from.rx.drops.get(reason);
        }
        from.rx.xdp.add_to(&mut self.counters);
        from.rx.add_to(&mut self.counters);
    }

    /// Increase since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut old = before.iter().map(|(_, value)| value);
        let mut new = self.iter().map(|(_, value)| value);
        let mut by_reason = self.by_reason;
        for (now, then) in by_reason.iter_mut().zip(before.by_reason) {
            *now -= then;
        }
        let grown = |_| new.next().unwrap_or(0) - old.next().unwrap_or(0);
        Self { counters: LaneCounters::read(grown), by_reason }
    }

    /// Number of frames dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.by_reason.iter().sum()
    }

    /// Reasons with at least one drop, and their numbers of frames.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = DropReason::ALL.iter().map(|reason| reason.name()).zip(self.by_reason);
        all.filter(|(_, frames)| *frames > 0)
    }

    /// Number of frames in flight; see [`LaneCounters::in_flight`].
    pub fn in_flight(&self) -> i64 {
        self.counters.in_flight(self.dropped().into()) as i64
    }
}

impl LaneCounters {
    /// Conservation check: number of frames that entered the lane and neither left it nor were
    /// dropped. The result is 0 if the lane is idle and holds no frame.
    pub fn in_flight(&self, dropped: i128) -> i128 {
        let terms = self.iter().map(|(row, value)| match row.check {
            Check::In => i128::from(value),
            Check::Out => -i128::from(value),
            Check::None => 0,
        });
        terms.sum::<i128>() - dropped
    }
}

/// Text of the conservation check: `rx 10 + 44 segments = tx 51 + 3 too-long + 0 in flight`.
pub fn equation<'a>(
    lane: &LaneCounters,
    drops: impl IntoIterator<Item = (&'a str, u64)>,
    in_flight: i64,
) -> String {
    let mut sides = [format!("rx {}", lane.rx_packets), format!("tx {}", lane.tx_packets)];
    for (row, value) in lane.iter() {
        let side = match row.check {
            Check::None => continue,
            Check::In => &mut sides[0],
            Check::Out => &mut sides[1],
        };
        if value > 0 && !["rx_packets", "tx_packets"].contains(&row.name) {
            let _ = write!(side, " + {value} {}", row.json());
        }
    }
    let mut dropped = String::new();
    for (reason, frames) in drops.into_iter().filter(|(_, frames)| *frames > 0) {
        let _ = write!(dropped, " + {frames} {reason}");
    }
    if dropped.is_empty() {
        dropped += " + 0 dropped";
    }
    let [came, left] = sides;
    format!("{came} = {left}{dropped} + {in_flight} in flight")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{RxStats, TxStats, XdpStats};

    // Goal: every counter of the conservation check is a term of the sum and of the text, with the
    // sign of its row; no other counter is.
    #[test]
    fn conservation_check_has_every_term() {
        for (at, (row, _)) in LaneCounters::default().iter().enumerate() {
            let mut rows = 0..;
            let one = LaneCounters::read(|_| u64::from(rows.next() == Some(at)));
            let expected = match row.check {
                Check::In => 1,
                Check::Out => -1,
                Check::None => 0,
            };
            assert_eq!(one.in_flight(0), expected, "{}", row.name);
            let text = equation(&one, [], expected as i64);
            assert_eq!(
                text.matches('1').count() as u32,
                2 * expected.unsigned_abs() as u32,
                "{text}"
            );
        }
    }

    // Goal: no two rows of the table have the same name, and every queue counter is part of a lane
    // counter.
    #[test]
    fn names_are_unique() {
        let queues = [RxStats::COUNTERS, XdpStats::COUNTERS, TxStats::COUNTERS].concat();
        let lanes: BTreeSet<_> = LaneCounters::TABLE.iter().map(|row| row.name).collect();
        let metrics: BTreeSet<_> = LaneCounters::TABLE.iter().map(|row| row.metric).collect();
        let patterns: BTreeSet<_> = queues.iter().map(|row| row.pattern).collect();
        let rows = LaneCounters::TABLE.len();
        assert_eq!([lanes.len(), metrics.len(), patterns.len()], [rows, rows, queues.len()]);
        assert_eq!(queues.iter().map(|row| row.lane).collect::<BTreeSet<_>>(), lanes);
    }

    // Goal: a frame that entered a lane is sent, dropped for a reason, or in flight. The sums cover
    // both queues of a lane, and the increase is a difference of sums.
    #[test]
    fn frames_are_accounted_for() {
        let (from, to) = (QueuePairStats::default(), QueuePairStats::default());
        from.rx.packets.add(10);
        from.rx.drops.count(DropReason::TooLong, 2);
        from.rx.kicks.add(3);
        from.rx.xdp.segments.add(4);
        to.tx.packets.add(50);
        to.tx.drops.count(DropReason::Refused, 1);
        to.tx.kicks.add(1);
        to.tx.segments.add(40);
        to.tx.merged.add(1);
        let sums = LaneSums::of(&from, &to);
        assert_eq!((sums.dropped(), sums.in_flight(), sums.kicks), (3, 0, 4));
        assert_eq!(sums.since(&sums), LaneSums::default());
        assert_eq!(sums.since(&LaneSums::default()), sums);
        assert_eq!(
            equation(&sums, sums.drops(), sums.in_flight()),
            "rx 10 + 44 segments = tx 50 + 1 merged + 2 too-long + 1 refused-by-kernel \
             + 0 in flight"
        );
    }
}
