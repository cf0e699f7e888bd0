//! Every counter of a link.

use mqnet_netdev::{LaneCounters, LaneSums, counter_table};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Frames dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct DropCount {
    /// Such as `too-long`.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// Whether a lane's sink takes frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopState {
    /// It does.
    Running,
    /// It is full.
    Stopped,
    /// The channel is not in use.
    #[default]
    Unused,
}

/// What keeps a queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopCause {
    /// The device takes no frames.
    #[default]
    Device,
    /// The other end of a bridge takes no frames.
    Peer,
    /// The kernel has no memory for a frame.
    Memory,
}

/// Why and since when a lane does not move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Stopped {
    /// Cause, such as `the peer's ring is full: the peer does not take frames`.
    pub by: String,
    /// The same for programs.
    #[serde(default)]
    pub cause: StopCause,
    /// Nanoseconds since it stopped.
    pub for_ns: u64,
}

macro_rules! define {
    ($( #[doc = $about:literal] $Stats:ident, $side:ident, { $($other:tt)* } { $(
        $field:ident: Counter, $pattern:literal, $help:literal
            $( => $lane:ident: $unit:ident, $check:ident, $metric:literal, $action:literal )?
            $( + $sum:ident )?;
    )* } )*) => {
        /// One direction of one channel: from an RX queue to a TX queue.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub struct LaneStats {
            /// Its NAPI id.
            pub napi_id: u32,
            /// Netdev that it takes from.
            pub from: String,
            /// Netdev that it gives to.
            pub to: String,
            $( $( $(
                #[doc = $help]
                #[serde(default)]
                #[cfg_attr(feature = "openapi", schema(required = true))]
                pub $lane: u64,
            )? )* )*
            /// Frames dropped, by reason; reasons without drops are left out.
            pub drops: Vec<DropCount>,
            /// Conservation check: frames that entered the lane and have neither left it nor were
            /// dropped. 0 at rest.
            pub in_flight: i64,
            /// State of the TX queue.
            pub state: StopState,
            /// Cause of the stop, and its time.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub stopped: Option<Stopped>,
        }

        impl LaneStats {
            /// Counters and drops; netdevs and state are left empty.
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

            /// Counters of the table.
            pub fn counters(&self) -> LaneCounters {
                LaneCounters { $( $( $( $lane: self.$lane, )? )* )* }
            }
        }
    };
}

counter_table!(define);

/// One channel: both lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct ChannelStats {
    /// Its number.
    pub id: u16,
    /// In use now; the counters of an unused channel are history.
    pub active: bool,
    /// Number of the worker that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// From a to b.
    pub a_to_b: LaneStats,
    /// From b to a.
    pub b_to_a: LaneStats,
}

/// A lane's page pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct PoolUse {
    /// The lane.
    pub napi_id: u32,
    /// Pages in use.
    pub inflight: u64,
}

/// Everything that is counted about a link.
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
    /// Monotonic time of the reading in nanoseconds, for rates.
    pub time_ns: u64,
    /// Channels that are or were in use.
    pub channels: Vec<ChannelStats>,
    /// Sum over all channels, a to b.
    pub a_to_b: LaneStats,
    /// Sum over all channels, b to a.
    pub b_to_a: LaneStats,
    /// Frames that the system dropped before our RX queues saw them; absent: not counted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_a: Option<u64>,
    /// As for `a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_b: Option<u64>,
    /// Page pools of lanes that have one.
    pub pools: Vec<PoolUse>,
    /// What crossed between NUMA nodes, for each function whose node is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locality: Vec<Locality>,
}

/// Where the bytes of a function were handled. A byte is local when the worker of its channel runs
/// on the function's node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Locality {
    /// The netdev.
    pub netdev: String,
    /// Number of the function there.
    pub function: u16,
    /// The kernel's interface that stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its NUMA node.
    pub node: u32,
    /// Bytes received and sent by workers of its node.
    pub local_bytes: u64,
    /// Bytes received and sent by workers of other nodes.
    pub cross_bytes: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Goal: names in JSON: those of the first version remain, and every counter of the table is
    // present, also at 0. A reading of an older version without some of them is accepted.
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

    // Goal: sums become the fields of their names.
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
