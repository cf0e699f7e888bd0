//! Counters of a link.

use mqnet_netdev::{LaneCounters, LaneSums, counter_table};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Frames dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct DropCount {
    /// Name of the drop reason, such as `too-long`.
    pub reason: String,
    /// Number of dropped frames.
    pub frames: u64,
}

/// State of the TX queue of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopState {
    /// The TX queue takes frames.
    Running,
    /// The TX queue is full.
    Stopped,
    /// The channel is not in use.
    #[default]
    Unused,
}

/// Party that keeps a TX queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopCause {
    /// The device or its driver takes no frames.
    #[default]
    Device,
    /// The other end of a bridge takes no frames.
    Peer,
    /// The kernel has no memory for a frame.
    Memory,
}

/// Cause and duration of the stop of a TX queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Stopped {
    /// Cause as text, such as `the peer's ring is full: the peer does not take frames`.
    pub by: String,
    /// Cause for programs.
    #[serde(default)]
    pub cause: StopCause,
    /// Nanoseconds since the TX queue stopped.
    pub for_ns: u64,
}

macro_rules! define {
    ($( #[doc = $about:literal] $Stats:ident, $side:ident, { $($other:tt)* } { $(
        $field:ident: Counter, $pattern:literal, $help:literal
            $( => $lane:ident: $unit:ident, $check:ident, $metric:literal, $action:literal )?
            $( + $sum:ident )?;
    )* } )*) => {
        /// Counters of a lane: one direction of one channel, from an RX queue to a TX queue.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub struct LaneStats {
            /// NAPI id of the lane; 0 for sums.
            pub napi_id: u32,
            /// Netdev with the lane's RX queue.
            pub from: String,
            /// Netdev with the lane's TX queue.
            pub to: String,
            $( $( $(
                #[doc = $help]
                #[serde(default)]
                #[cfg_attr(feature = "openapi", schema(required = true))]
                pub $lane: u64,
            )? )* )*
            /// Dropped frames by reason; reasons without drops are omitted.
            pub drops: Vec<DropCount>,
            /// Conservation check: frames of the lane that were neither sent nor dropped. 0 if no
            /// frame waits in the lane.
            pub in_flight: i64,
            /// State of the TX queue.
            pub state: StopState,
            /// Cause and duration of the stop; absent unless `state` is `stopped`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub stopped: Option<Stopped>,
        }

        impl LaneStats {
            /// Creates a record with counters and drops; netdevs, NAPI id and state are left empty.
            pub fn of(sums: &LaneSums) -> Self {
                let count = |(reason, frames): (&str, u64)| DropCount {
                    reason: reason.to_owned(),
                    frames,
                };
                Self {
                    $( $( $( $lane: sums.$lane, )? )* )*
                    drops: sums.drops().map(count).collect(),
                    in_flight: sums.in_flight(),
                    ..Self::default()
                }
            }

            /// Returns the counters of the table.
            pub fn counters(&self) -> LaneCounters {
                LaneCounters { $( $( $( $lane: self.$lane, )? )* )* }
            }
        }
    };
}

counter_table!(define);

/// Counters of a channel: both lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct ChannelStats {
    /// Channel number.
    pub id: u16,
    /// True if the channel is in use; otherwise the counters are those of past use.
    pub active: bool,
    /// Number of the worker that polls the channel; absent: the channel is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// Lane from netdev `a` to netdev `b`.
    pub a_to_b: LaneStats,
    /// Lane from netdev `b` to netdev `a`.
    pub b_to_a: LaneStats,
}

/// Use of the page pool of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct PoolUse {
    /// NAPI id of the lane.
    pub napi_id: u32,
    /// Number of pages in use.
    pub inflight: u64,
}

/// Counters of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct LinkStats {
    /// Name of the link.
    pub link: String,
    /// Name of its first netdev.
    pub a: String,
    /// Name of its second netdev.
    pub b: String,
    /// Monotonic time of the snapshot in nanoseconds, to calculate rates.
    pub time_ns: u64,
    /// Channels that are in use or were in use earlier.
    pub channels: Vec<ChannelStats>,
    /// Sum over all channels, a to b.
    pub a_to_b: LaneStats,
    /// Sum over all channels, b to a.
    pub b_to_a: LaneStats,
    /// Frames that the system dropped before the RX queues of `a`; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_a: Option<u64>,
    /// Frames that the system dropped before the RX queues of `b`; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_b: Option<u64>,
    /// Page pools of the lanes that have one.
    pub pools: Vec<PoolUse>,
    /// NUMA locality of each function with a known node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locality: Vec<Locality>,
}

/// NUMA locality of a function. A byte is local if the worker of its channel runs on the node of
/// the function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Locality {
    /// Name of the netdev.
    pub netdev: String,
    /// Number of the function within the netdev.
    pub function: u16,
    /// Kernel interface of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// NUMA node of the function.
    pub node: u32,
    /// Bytes received and sent by workers on the function's node.
    pub local_bytes: u64,
    /// Bytes received and sent by workers on other nodes.
    pub cross_bytes: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Goal: the JSON names of the first version remain, and every counter of the table is present,
    // also with value 0. JSON of an older version without some counters is accepted.
    #[test]
    fn json_names_are_stable() {
        let stopped = Stopped { by: String::new(), cause: StopCause::Peer, for_ns: 1 };
        let lane = LaneStats { stopped: Some(stopped), ..LaneStats::default() };
        let json = serde_json::to_value(&lane).unwrap();
        let first = [
            "napi-id",
            "from",
            "to",
            "rx-packets",
            "rx-bytes",
            "tx-packets",
            "tx-bytes",
            "drops",
            "tx-lost",
            "segments",
            "merged",
            "xdp-out",
            "xdp-in",
            "in-flight",
            "tx-stop",
            "tx-wake",
            "stopped-ns",
            "kicks",
            "copies",
            "syscalls",
            "state",
            "stopped",
        ];
        let counters = LaneCounters::TABLE.iter().map(|row| row.json());
        for name in first.into_iter().map(str::to_owned).chain(counters) {
            assert!(json.get(&name).is_some(), "{name}");
        }
        let old = json!({ "napi-id": 1, "from": "a", "to": "b", "rx-packets": 3, "drops": [],
                          "in-flight": 3, "state": "running" });
        let read: LaneStats = serde_json::from_value(old).unwrap();
        assert_eq!((read.rx_packets, read.checksums), (3, 0));
    }

    // Goal: each sum is stored in the field with its name.
    #[test]
    fn sums_become_fields() {
        let mut values = 1..;
        let counters = LaneCounters::read(|_| values.next().unwrap());
        let mut sums = LaneSums { counters, ..LaneSums::default() };
        sums.by_reason[0] = 5;
        let lane = LaneStats::of(&sums);
        assert_eq!((lane.counters(), lane.in_flight), (counters, sums.in_flight()));
        assert_eq!(lane.drops, [DropCount { reason: "too-long".into(), frames: 5 }]);
    }
}
