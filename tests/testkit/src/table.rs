//! The table with which `mqnet link --json` ends.

use serde_json::Value;

/// The last line of one end.
#[derive(Clone, Debug)]
pub struct EndTable(pub Value);

/// The counters of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Frames that came in.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that left.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames dropped, for any reason.
    pub drops: u64,
    /// Frames sent that the peer never took.
    pub lost: u64,
    /// Frames beyond the first that were made of one large frame.
    pub segments: u64,
    /// Frames that left as a part of another.
    pub merged: u64,
    /// Frames neither sent nor dropped.
    pub in_flight: i64,
    /// Of those taken, frames that an XDP program sent elsewhere.
    pub xdp_out: u64,
    /// Frames that an XDP program of the other side sent back by this lane.
    pub xdp_in: u64,
    /// Times that the sink was full, and that it was not any more.
    pub stops: u64,
    /// See `stops`.
    pub wakes: u64,
    /// Doorbells rung.
    pub kicks: u64,
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
            rx_packets: number("rx-packets"),
            rx_bytes: number("rx-bytes"),
            tx_packets: number("tx-packets"),
            tx_bytes: number("tx-bytes"),
            drops: drops.values().map(|n| n.as_u64().expect("a number of drops")).sum(),
            lost: number("tx-lost"),
            segments: number("segments"),
            merged: number("merged"),
            in_flight: lane["in-flight"].as_i64().expect("frames in flight"),
            xdp_out: lane["xdp-out"].as_u64().unwrap_or(0),
            xdp_in: lane["xdp-in"].as_u64().unwrap_or(0),
            stops: number("tx-stop"),
            wakes: number("tx-wake"),
            kicks: number("kicks"),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            drops: self.drops + other.drops,
            lost: self.lost + other.lost,
            segments: self.segments + other.segments,
            merged: self.merged + other.merged,
            in_flight: self.in_flight + other.in_flight,
            xdp_out: self.xdp_out + other.xdp_out,
            xdp_in: self.xdp_in + other.xdp_in,
            stops: self.stops + other.stops,
            wakes: self.wakes + other.wakes,
            kicks: self.kicks + other.kicks,
        }
    }
}

impl EndTable {
    /// From the TAP to the bridge.
    #[track_caller]
    pub fn out(&self) -> Lane {
        Lane::read(&self.0, "a-to-b")
    }

    /// From the bridge to the TAP.
    #[track_caller]
    pub fn back(&self) -> Lane {
        Lane::read(&self.0, "b-to-a")
    }

    /// Each channel: from the TAP to the bridge, and back.
    #[track_caller]
    pub fn channels(&self) -> Vec<(Lane, Lane)> {
        let channels = self.0["channels"].as_array().expect("a list of channels");
        channels.iter().map(|c| (Lane::read(c, "a-to-b"), Lane::read(c, "b-to-a"))).collect()
    }

    /// Frames that the TAP's own ring dropped before we saw them.
    #[track_caller]
    pub fn dropped_outside(&self) -> u64 {
        self.0["dropped-outside-a"].as_u64().expect("drops of the TAP's ring")
    }

    /// Frames of both directions.
    pub fn frames(&self) -> u64 {
        self.out().tx_packets + self.back().tx_packets
    }

    /// The conservation law holds, and the channels add up to the whole.
    #[track_caller]
    pub fn assert_law(&self) {
        let channels = self.channels();
        let zero = || (Lane::default(), Lane::default());
        let sum = channels.iter().fold(zero(), |(o, b), c| (o.plus(&c.0), b.plus(&c.1)));
        assert_eq!((self.out(), self.back()), sum, "the channels do not add up: {}", self.0);
        for lane in [self.out(), self.back()] {
            assert_eq!(lane.in_flight, 0, "frames in flight after the end: {}", self.0);
            let accounted = lane.tx_packets + lane.merged + lane.drops + lane.xdp_out;
            let came = lane.rx_packets + lane.xdp_in + lane.segments;
            assert_eq!(came, accounted, "rx + segments = tx + merged + drops: {}", self.0);
            let changed = lane.segments + lane.merged + lane.xdp_in + lane.xdp_out;
            if (lane.drops, changed) == (0, 0) {
                assert_eq!(lane.rx_bytes, lane.tx_bytes, "bytes without drops: {}", self.0);
            }
        }
    }
}

/// The law holds on both ends and across the bridge: what one end sent, the other took or the
/// first counts as lost. (It counts what was under way when the link ended, and the other end may
/// still have taken that.)
#[track_caller]
pub fn assert_pair(a: &EndTable, b: &EndTable) {
    a.assert_law();
    b.assert_law();
    for (from, to) in [(a, b), (b, a)] {
        let (sent, taken) = (from.out(), to.back());
        let least = sent.tx_packets - sent.lost;
        assert!(
            (least..=sent.tx_packets).contains(&taken.rx_packets),
            "{} frames sent, {} lost, {} taken: {} {}",
            sent.tx_packets,
            sent.lost,
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
        json!({ "rx-packets": rx, "rx-bytes": rx * 10, "tx-packets": tx, "tx-bytes": tx * 10,
                "drops": { "too-long": rx - tx }, "tx-lost": lost, "in-flight": 0, "tx-stop": 0,
                "segments": 0, "merged": 0, "tx-wake": 0, "kicks": 1 })
    }

    fn table(out: Value, back: Value) -> EndTable {
        let channels = json!([{ "a-to-b": out, "b-to-a": back }]);
        EndTable(json!({ "channels": channels, "a-to-b": out, "b-to-a": back }))
    }

    // Goal: the law is checked: a table that holds passes, one that lost a frame does not.
    #[test]
    fn the_law_can_fail() {
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
