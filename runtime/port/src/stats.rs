//! Counters of a driven link.

use std::sync::Arc;

use mqnet_netdev::{LaneSums, QueuePairStats};

/// Counters of one direction, summed over all channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames taken from the source.
    pub taken: u64,
    /// Frames accepted by the sink.
    pub sent: u64,
    /// Additional frames from segmentation: parts of a large frame after the first.
    pub segments: u64,
    /// Frames coalesced into the frame before them.
    pub merged: u64,
    /// Dropped frames by reason, for reasons with at least one. Every dropped frame has one reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames that wait in a discipline. A snapshot while traffic flows.
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

    /// Frames dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, n)| n).sum()
    }
}

/// Counters of a driven link: `taken + segments = sent + merged + drops + waiting`, in
/// each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// From the device to the program.
    pub to_program: DirectionStats,
    /// From the program to the device.
    pub to_device: DirectionStats,
    /// Frames that the system dropped before they reached the device's queues (the ring of a TUN
    /// was full), where it counts them.
    pub dropped_outside: Option<u64>,
}
