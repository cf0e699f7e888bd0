//! What a driven link has moved.

use std::sync::Arc;

use mqnet_netdev::{ChannelStats, DropReason};

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
        let (rx, tx) = (|| source.iter().map(|s| &*s.rx), || sink.iter().map(|s| &*s.tx));
        // The sink first: what it has was taken before.
        let sent = tx().map(|tx| tx.packets.get()).sum();
        let merged = tx().map(|tx| tx.merged.get()).sum();
        let segments = tx().map(|tx| tx.segments.get()).sum();
        let dropped = |reason| -> u64 {
            rx().map(|rx| rx.drops.get(reason)).chain(tx().map(|tx| tx.drops.get(reason))).sum()
        };
        let drops: Vec<_> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name(), dropped(reason)))
            .filter(|&(_, n)| n > 0)
            .collect();
        let taken: u64 = rx().map(|rx| rx.packets.get()).sum();
        let gone = sent + merged + drops.iter().map(|(_, n)| n).sum::<u64>();
        Self {
            taken,
            sent,
            segments,
            merged,
            drops,
            waiting: (taken + segments).saturating_sub(gone),
            stops: tx().map(|tx| tx.stops.get()).sum(),
            wakes: tx().map(|tx| tx.wakes.get()).sum(),
            stopped_ns: tx().map(|tx| tx.stopped_ns.get()).sum(),
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
