//! Sums of a link's counters, and their JSON form.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use mqnet_engine::Link;
use mqnet_netdev::stats::equation;
use mqnet_netdev::{LaneCounters, LaneSums, QueuePairStats};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One direction of a link or channel, as `mqnet link -j` prints it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DirectionSums {
    #[serde(flatten, with = "by_name")]
    counters: LaneCounters,
    pub drops: BTreeMap<String, u64>,
    pub in_flight: i64,
}

impl Deref for DirectionSums {
    type Target = LaneCounters;

    fn deref(&self) -> &LaneCounters {
        &self.counters
    }
}

impl DirectionSums {
    pub(super) fn of(sums: &LaneSums) -> Self {
        let drops = sums.drops().map(|(reason, frames)| (reason.to_owned(), frames)).collect();
        Self { counters: sums.counters, drops, in_flight: sums.in_flight() }
    }

    /// Frames dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Conservation check as text.
    pub fn equation(&self) -> String {
        let drops = self.drops.iter().map(|(reason, frames)| (&**reason, *frames));
        equation(&self.counters, drops, self.in_flight)
    }
}

/// Serialization of counters under the names of the counter table.
mod by_name {
    use serde::{Deserializer, Serializer};

    use super::{BTreeMap, Deserialize, LaneCounters, Value};

    pub(super) fn serialize<S: Serializer>(
        counters: &LaneCounters,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(counters.iter().map(|(row, value)| (row.json(), value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<LaneCounters, D::Error> {
        let all = BTreeMap::<String, Value>::deserialize(from)?;
        let number = |name: &str| all.get(name).and_then(Value::as_u64);
        Ok(LaneCounters::read(|row| number(&row.json()).unwrap_or(0)))
    }
}

/// Statistics of the channels of both functions.
pub(crate) fn channel_stats(link: &mut Link) -> [Vec<Arc<QueuePairStats>>; 2] {
    link.stats().map(<[_]>::to_vec)
}

/// Both directions of each channel as JSON.
pub(crate) fn channels_json(link: &mut Link) -> Vec<Value> {
    let [a, b] = channel_stats(link);
    let lane =
        |from: &QueuePairStats, to: &QueuePairStats| DirectionSums::of(&LaneSums::of(from, to));
    let both = a.iter().zip(&b);
    both.map(|(a, b)| json!({ "a-to-b": lane(a, b), "b-to-a": lane(b, a) })).collect()
}

/// Sums of each direction over all current and past channels: A to B, then B to A.
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
    use mqnet_netdev::DropReason;

    use super::*;

    // Goal: JSON has every counter of the table, and parsing restores the same values.
    #[test]
    fn json_has_every_counter() {
        let (from, to) = (QueuePairStats::default(), QueuePairStats::default());
        from.rx.drops.count(DropReason::TooLong, 2);
        to.tx.checksums.add(7);
        let lane = DirectionSums::of(&LaneSums::of(&from, &to));
        let json = serde_json::to_value(&lane).unwrap();
        assert_eq!((&json["drops"], &json["in-flight"]), (&json!({ "too-long": 2 }), &json!(-2)));
        for (row, value) in lane.counters.iter() {
            assert_eq!(json[row.json()], value, "{}", row.name);
        }
        let read: DirectionSums = serde_json::from_value(json).unwrap();
        assert_eq!((read.counters, read.dropped()), (lane.counters, 2));
    }
}
