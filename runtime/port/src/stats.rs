//! Counters of a link with a driver.

use std::sync::Arc;

use mqnet_netdev::{LaneSums, QueuePairStats};

/// Counters of one direction, summed over all channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames taken from the source.
    pub taken: u64,
    /// Frames accepted by the sink.
    pub sent: u64,
    /// Additional frames from segmentation: all segments of a large frame except the first.
    pub segments: u64,
    /// Frames that were coalesced into a preceding frame.
    pub merged: u64,
    /// Dropped frames by reason; reasons without drops are omitted. Every dropped frame has exactly
    /// one reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames taken and neither sent nor dropped, for example in a discipline. The value is a
    /// snapshot while traffic flows.
    pub waiting: u64,
    /// Number of times that a full sink stopped its source.
    pub stops: u64,
    /// Number of times that a stopped source continued.
    pub wakes: u64,
    /// Total time of the stops in nanoseconds.
    pub stopped_ns: u64,
}

impl DirectionStats {
    pub(crate) fn of(source: &[Arc<QueuePairStats>], sink: &[Arc<QueuePairStats>]) -> Self {
        let mut sums = LaneSums::default();
        source.iter().zip(sink).for_each(|(from, to)| sums.add(from, to));
        Self {
            taken: sums.rx_packets,
            sent: sums.tx_packets,
            segments: sums.segments,
            merged: sums.merged,
            drops: sums.drops().collect(),
            waiting: sums.in_flight().max(0) as u64,
            stops: sums.tx_stop,
            wakes: sums.tx_wake,
            stopped_ns: sums.stopped_ns,
        }
    }

    /// Total number of dropped frames.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, n)| n).sum()
    }
}

/// Counters of a link with a driver. In each direction, `taken + segments = sent + merged + drops +
/// waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters of the direction from the device to the program.
    pub to_program: DirectionStats,
    /// Counters of the direction from the program to the device.
    pub to_device: DirectionStats,
    /// Frames that the system dropped before the device's queues, for example because the ring of a
    /// TUN was full. `None`: not counted by the system, or the link has ended.
    pub dropped_outside: Option<u64>,
}
