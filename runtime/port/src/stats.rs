//! What a driven link has moved.

use std::sync::Arc;

use mqnet_netdev::{ChannelStats, LaneSums};

/// One direction, all channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Frames taken from the source.
    pub taken: u64,
    /// Frames that the sink has.
    pub sent: u64,
    /// Frames beyond the first that were made of a large one.
    pub segments: u64,
    /// Frames that left as a part of the one before them.
    pub merged: u64,
    /// Frames dropped, by the one reason of each; reasons without any are left out.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames that wait inside (in a discipline); while traffic flows, a moment's view.
    pub waiting: u64,
    /// Times that the sink was full and stopped its source.
    pub stops: u64,
    /// Times that it went on.
    pub wakes: u64,
    /// Nanoseconds stopped.
    pub stopped_ns: u64,
}

impl Direction {
    pub(crate) fn of(source: &[Arc<ChannelStats>], sink: &[Arc<ChannelStats>]) -> Self {
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

/// What a driven link has moved: `taken + segments = sent + merged + drops + waiting`, in
/// each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// From the device to the program.
    pub to_program: Direction,
    /// From the program to the device.
    pub to_device: Direction,
    /// Frames that the system dropped before they came to us (a TUN's own ring was full), where it
    /// counts them.
    pub dropped_outside: Option<u64>,
}
