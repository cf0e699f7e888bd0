//! The counter table: every counter of a queue is declared here once. The statistics of queues and
//! lanes, `ethtool -S`, JSON, Prometheus metrics and the reference page are generated from it.

use mqnet_counters::Counter;

use super::Drops;

/// Calls the macro `$then` with the counter table: one block for each statistics struct, one row
/// for each counter.
///
/// A row is `field: Counter, "name in ethtool -S", "help"`, where `#` in the name is the queue,
/// followed by a lane counter. `=> name: Unit, Check, "metric", "advice if it increases"` declares
/// the lane counter; `+ name` adds to one that another row declares. An empty advice means that an
/// increase is normal.
#[macro_export]
macro_rules! counter_table {
    ($then:ident) => {
        $then! {
            #[doc = "One RX queue. Written by the worker that owns the queue."]
            RxStats, Rx, {
                /// Drops of frames that the RX queue consumed.
                pub drops: Drops,
                /// Verdicts of an XDP program.
                pub xdp: XdpStats,
            } {
                packets: Counter, "rx_queue_#_packets", "Frames taken from the RX queue."
                    => rx_packets: Frames, In, "netdev_receive_packets_total", "";
                bytes: Counter, "rx_queue_#_bytes", "Bytes of the frames taken from the RX queue."
                    => rx_bytes: Bytes, None, "netdev_receive_bytes_total", "";
                kicks: Counter, "rx_queue_#_kicks", "Doorbells rung to return credit to the sender."
                    + kicks;
                arms: Counter, "rx_queue_#_arms",
                    "Times that the queue was armed to wake its worker."
                    + arms;
                syscalls: Counter, "rx_queue_#_syscalls",
                    "System calls that read frames or found none."
                    + syscalls;
            }

            #[doc = "Verdicts of the XDP program of an RX queue."]
            XdpStats, Rx, {} {
                packets: Counter, "rx#_xdp_packets", "Frames that the XDP program received."
                    => xdp_packets: Frames, None, "xdp_packets_total", "";
                tx: Counter, "rx#_xdp_tx", "Frames for which the XDP program returned XDP_TX."
                    => xdp_tx: Frames, None, "xdp_tx_total", "";
                redirects: Counter, "rx#_xdp_redirects", "Frames that the XDP program redirected."
                    => xdp_redirects: Frames, None, "xdp_redirects_total", "";
                sent: Counter, "rx#_xdp_sent",
                    "Frames taken that the XDP program moved to the opposite lane."
                    => xdp_out: Frames, Out, "xdp_out_total", "";
                drops: Counter, "rx#_xdp_drops", "Frames dropped by the XDP program or after it."
                    => xdp_drops: Frames, None, "xdp_drops_total",
                    "The drop reasons `xdp-drop`, `xdp-aborted`, `xdp-unsent` and `xdp-elsewhere` \
name the cause; `mqnet xdp show DEV`.";
                segments: Counter, "rx#_xdp_segments",
                    "Segments beyond the first that were cut from a large frame for the XDP \
program."
                    + segments;
            }

            #[doc = "One TX queue. Written by the worker that owns the queue."]
            TxStats, Tx, {
                /// Monotonic time in nanoseconds at which the queue stopped; 0 if it is not
                /// stopped.
                pub stopped_since_ns: Counter,
                /// Drops of frames that the TX queue accepted.
                pub drops: Drops,
            } {
                packets: Counter, "tx_queue_#_packets", "Frames handed to the peer."
                    => tx_packets: Frames, Out, "netdev_transmit_packets_total", "";
                bytes: Counter, "tx_queue_#_bytes", "Bytes of the frames handed to the peer."
                    => tx_bytes: Bytes, None, "netdev_transmit_bytes_total", "";
                lost: Counter, "tx_queue_#_lost",
                    "Frames handed to the peer that it had not consumed when it was lost."
                    => tx_lost: Frames, None, "lost_total",
                    "The peer ended or failed: `mqnet show` has the reason.";
                credits: Counter, "tx_queue_#_credits",
                    "Slots that the peer returned (ntb_transport only)."
                    => credits: Events, None, "credits_total",
                    "";
                stops: Counter, "tx_queue_#_stop",
                    "Times that the TX queue was full and stopped its source."
                    => tx_stop: Events, None, "queue_stops_total",
                    "The receiver is slower than the sender: `mqnet why` names the cause.";
                wakes: Counter, "tx_queue_#_wake", "Times that a stopped TX queue was woken."
                    => tx_wake: Events, None, "queue_wakes_total", "";
                stopped_ns: Counter, "tx_queue_#_stopped_ns", "Time that the TX queue was full."
                    => stopped_ns: Nanoseconds, None, "queue_stopped_seconds_total",
                    "See `tx-stop`.";
                kicks: Counter, "tx_queue_#_kicks", "Doorbells rung."
                    => kicks: Events, None, "kicks_total",
                    "Many for each frame: the peer sleeps between frames; a longer `--poll-window` \
there avoids that.";
                arms: Counter, "tx_queue_#_arms",
                    "Times that the queue was armed to wake its worker."
                    => arms: Events, None, "arms_total", "";
                copies: Counter, "tx_queue_#_copies", "Frames with a copied payload."
                    => copies: Frames, None, "copies_total", "";
                syscalls: Counter, "tx_queue_#_syscalls", "System calls that moved frames."
                    => syscalls: Events, None, "syscalls_total", "";
                segments: Counter, "tx_queue_#_segments",
                    "Segments beyond the first that were cut from one large frame."
                    => segments: Frames, In, "segments_total",
                    "The receiver has no segmentation offload; `mqnet ethtool -k` shows its \
offloads.";
                merged: Counter, "tx_queue_#_merged",
                    "Frames coalesced into the frame before them, for a device with segmentation \
offload."
                    => merged: Frames, Out, "merged_total", "";
                checksums: Counter, "tx_queue_#_checksums",
                    "Frames with a checksum filled in for a queue without checksum offload."
                    => checksums: Frames, None, "checksums_total",
                    "The receiver has no checksum offload; `mqnet ethtool -k` shows its offloads.";
                xdp_tx: Counter, "tx#_xdp_tx",
                    "Frames that the XDP program of this netdev moved from the opposite lane."
                    => xdp_in: Frames, In, "xdp_in_total", "";
                xdp_tx_drops: Counter, "tx#_xdp_tx_drops",
                    "Frames of XDP_TX and XDP_REDIRECT that could not be sent."
                    => xdp_tx_drops: Frames, None, "xdp_tx_drops_total",
                    "The TX queue has no room: see `tx-stop`.";
            }
        }
    };
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Frames.
    Frames,
    /// Bytes.
    Bytes,
    /// Occurrences.
    Events,
    /// Nanoseconds; a metric is in seconds.
    Nanoseconds,
}

/// Queue of a lane that has a counter: the RX queue or the TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneSide {
    /// RX queue: the source of the lane.
    Rx,
    /// TX queue: the sink of the lane.
    Tx,
}

/// Role of a counter in the conservation check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Frames that enter the lane.
    In,
    /// Frames that leave the lane.
    Out,
    /// No role in the check.
    None,
}

/// Description of a counter of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueCounter {
    /// Name in `ethtool -S`; `#` stands for the queue.
    pub pattern: &'static str,
    /// Meaning, in one sentence.
    pub help: &'static str,
    /// Name of the lane counter that includes the queue counter.
    pub lane: &'static str,
}

impl QueueCounter {
    /// Name in `ethtool -S`.
    pub fn ethtool(&self, queue: usize) -> String {
        self.pattern.replace('#', &queue.to_string())
    }
}

/// Description of a counter of a lane.
#[derive(Debug)]
pub struct LaneCounter {
    /// Name, in snake case.
    pub name: &'static str,
    /// Meaning, in one sentence.
    pub help: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Queue of the lane that declares the counter.
    pub side: LaneSide,
    /// Role in the conservation check.
    pub check: Check,
    /// Name of the Prometheus metric, without the prefix `mqnet_`.
    pub metric: &'static str,
    /// Advice for a counter that increases; empty: an increase is normal.
    pub action: &'static str,
}

impl LaneCounter {
    /// Name in JSON.
    pub fn json(&self) -> String {
        self.name.replace('_', "-")
    }
}

macro_rules! define {
    ($( #[doc = $about:literal] $Stats:ident, $side:ident, { $($other:tt)* } { $(
        $field:ident: Counter, $pattern:literal, $help:literal
            $( => $lane:ident: $unit:ident, $check:ident, $metric:literal, $action:literal )?
            $( + $sum:ident )?;
    )* } )*) => {
        $(
            #[doc = $about]
            #[derive(Debug, Default)]
            pub struct $Stats {
                $( #[doc = $help] pub $field: Counter, )*
                $($other)*
            }

            impl $Stats {
                /// Rows of the table for this struct.
                pub const COUNTERS: &[QueueCounter] = &[$( QueueCounter {
                    pattern: $pattern,
                    help: $help,
                    lane: concat!($( stringify!($lane) )? $( stringify!($sum) )?),
                } ),*];

                /// Every counter with its value.
                pub fn counters(&self) -> impl Iterator<Item = (&'static QueueCounter, u64)> {
                    Self::COUNTERS.iter().zip([$( self.$field.get() ),*])
                }

                pub(super) fn add_to(&self, lane: &mut LaneCounters) {
                    $(
                        $( lane.$lane += self.$field.get(); )?
                        $( lane.$sum += self.$field.get(); )?
                    )*
                }
            }
        )*

        /// Counters of one lane, read at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LaneCounters {
            $( $( $( #[doc = $help] pub $lane: u64, )? )* )*
        }

        impl LaneCounters {
            /// Rows of the table that declare a lane counter.
            pub const TABLE: &[LaneCounter] = &[$( $( $( LaneCounter {
                name: stringify!($lane),
                help: $help,
                unit: Unit::$unit,
                side: LaneSide::$side,
                check: Check::$check,
                metric: $metric,
                action: $action,
            }, )? )* )*];

            /// Creates the counters from the value that `value` returns for each row.
            pub fn read(mut value: impl FnMut(&'static LaneCounter) -> u64) -> Self {
                let mut rows = Self::TABLE.iter().map(|row| value(row));
                Self { $( $( $( $lane: rows.next().unwrap_or(0), )? )* )* }
            }

            /// Every counter with its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static LaneCounter, u64)> {
                Self::TABLE.iter().zip([$( $( $( self.$lane, )? )* )*])
            }
        }
    };
}

counter_table!(define);
