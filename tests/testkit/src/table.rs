//! Final table of `mqnet link --json`.

use std::ops::Deref;

use mqnet_netdev::LaneCounters;
use serde_json::Value;

/// Final table of one end.
#[derive(Clone, Debug)]
pub struct EndTable(pub Value);

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// All counters except drops, under the names of the counter table.
    counters: LaneCounters,
    /// Frames dropped, for any reason.
    pub drops: u64,
    /// Number of frames that are neither sent nor dropped.
    pub in_flight: i64,
}

impl Deref for Lane {
    type Target = LaneCounters;

    fn deref(&self) -> &LaneCounters {
        &self.counters
    }
}

impl Lane {
    /// Reads one direction (`a-to-b`, `b-to-a`) of a table, a channel or a status line.
    #[track_caller]
    pub fn read(lanes: &Value, direction: &str) -> Self {
        let lane = &lanes[direction];
        let number = |key: &str| {
            lane[key].as_u64().unwrap_or_else(|| panic!("no {direction} {key} in {lanes}"))
        };
        let drops = lane["drops"].as_object().expect("drops by reason");
        Self {
            counters: LaneCounters::read(|row| number(&row.json())),
            drops: drops.values().map(|n| n.as_u64().expect("a number of drops")).sum(),
            in_flight: lane["in-flight"].as_i64().expect("frames in flight"),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut values = self.iter().zip(other.iter()).map(|((_, a), (_, b))| a + b);
        Self {
            counters: LaneCounters::read(|_| values.next().expect("a value of each row")),
            drops: self.drops + other.drops,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}

impl EndTable {
    /// Counters from the TAP to the bridge.
    #[track_caller]
    pub fn out(&self) -> Lane {
        Lane::read(&self.0, "a-to-b")
    }

    /// Counters from the bridge to the TAP.
    #[track_caller]
    pub fn back(&self) -> Lane {
        Lane::read(&self.0, "b-to-a")
    }

    /// Counters of each channel: TAP to bridge, and bridge to TAP.
    #[track_caller]
    pub fn channels(&self) -> Vec<(Lane, Lane)> {
        let channels = self.0["channels"].as_array().expect("a list of channels");
        channels.iter().map(|c| (Lane::read(c, "a-to-b"), Lane::read(c, "b-to-a"))).collect()
    }

    /// Frames that the TAP's own ring dropped before mqnet read them.
    #[track_caller]
    pub fn dropped_outside(&self) -> u64 {
        self.0["dropped-outside-a"].as_u64().expect("drops of the TAP's ring")
    }

    /// Number of sent frames in both directions.
    pub fn frames(&self) -> u64 {
        self.out().tx_packets + self.back().tx_packets
    }

    /// Asserts that the conservation check holds with no frame in flight, and that the channels add
    /// up to the total.
    #[track_caller]
    pub fn assert_conserved(&self) {
        let channels = self.channels();
        let zero = || (Lane::default(), Lane::default());
        let sum = channels.iter().fold(zero(), |(o, b), c| (o.plus(&c.0), b.plus(&c.1)));
        assert_eq!((self.out(), self.back()), sum, "the channels do not add up: {}", self.0);
        for lane in [self.out(), self.back()] {
            assert_eq!(lane.in_flight, 0, "frames in flight after the end: {}", self.0);
            let flight = lane.in_flight(lane.drops.into());
            assert_eq!(flight, 0, "frames in = frames out + drops: {}", self.0);
            let changed = lane.segments + lane.merged + lane.xdp_in + lane.xdp_out;
            if (lane.drops, changed) == (0, 0) {
                assert_eq!(lane.rx_bytes, lane.tx_bytes, "bytes without drops: {}", self.0);
            }
        }
    }
}

/// Asserts the conservation check on both ends and across the bridge: the other end received each
/// sent frame, or the sending end counted it as lost. A frame in flight at the end of the link may
/// be counted as lost and still be received.
#[track_caller]
pub fn assert_pair(a: &EndTable, b: &EndTable) {
    a.assert_conserved();
    b.assert_conserved();
    for (from, to) in [(a, b), (b, a)] {
        let (sent, taken) = (from.out(), to.back());
        let least = sent.tx_packets - sent.tx_lost;
        assert!(
            (least..=sent.tx_packets).contains(&taken.rx_packets),
            "{} frames sent, {} lost, {} taken: {} {}",
            sent.tx_packets,
            sent.tx_lost,
            taken.rx_packets,
            from.0,
            to.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lane(rx: u64, tx: u64, lost: u64) -> Value {
        let zeros = LaneCounters::TABLE.iter().map(|row| (row.json(), json!(0)));
        let mut lane = Value::Object(zeros.collect());
        for (name, value) in
            [("rx-packets", rx), ("rx-bytes", rx * 10), ("tx-packets", tx), ("tx-bytes", tx * 10)]
        {
            lane[name] = value.into();
        }
        lane["tx-lost"] = lost.into();
        lane["drops"] = json!({ "too-long": rx - tx });
        lane["in-flight"] = 0.into();
        lane
    }

    fn table(out: Value, back: Value) -> EndTable {
        let channels = json!([{ "a-to-b": out, "b-to-a": back }]);
        EndTable(json!({ "channels": channels, "a-to-b": out, "b-to-a": back }))
    }

    // Goal: the conservation check passes a valid table and fails one that lost a frame.
    #[test]
    fn conservation_check_can_fail() {
        let a = table(lane(10, 8, 1), lane(5, 5, 0));
        let fails = |b: &EndTable| std::panic::catch_unwind(|| assert_pair(&a, b)).is_err();
        assert!(!fails(&table(lane(5, 5, 0), lane(7, 7, 0))));
        assert!(!fails(&table(lane(5, 5, 0), lane(8, 8, 0))));
        assert!(fails(&table(lane(5, 5, 0), lane(6, 6, 0))), "a frame vanished in the bridge");
        assert!(fails(&table(lane(5, 5, 0), lane(9, 9, 0))), "a frame came from nowhere");
        let mut wrong = table(lane(5, 5, 0), lane(7, 7, 0));
        wrong.0["a-to-b"]["in-flight"] = json!(1);
        assert!(fails(&wrong), "a frame is in flight after the end");
    }
}
