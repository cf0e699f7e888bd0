//! Buffer setting of a function, from the control thread to all of its queues.

use std::sync::atomic::{AtomicU32, Ordering};

use mqnet_virtio::rxbuf::layout::RequestedLayout;

/// Buffer setting as a queue reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) requested: RequestedLayout,
    /// True if an XDP program processes the frames.
    pub(crate) xdp: bool,
    /// Number of requests so far. A repeated request starts a new trial.
    pub(crate) number: u32,
}

/// Buffer setting, written by the control thread and read by every queue.
#[derive(Debug, Default)]
pub(crate) struct SettingCell(AtomicU32);

const NUMBER: u32 = 1 << 3;

impl SettingCell {
    /// Writes a setting. A repeated setting counts as a new request.
    pub(crate) fn set(&self, requested: RequestedLayout, xdp: bool) {
        // Relaxed suffices: a queue may use a new setting one burst later.
        let number = self.0.load(Ordering::Relaxed) / NUMBER;
        let word = (number.wrapping_add(1) * NUMBER) | (u32::from(xdp) << 2) | requested as u32;
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Setting {
        let word = self.0.load(Ordering::Relaxed);
        let requested = match word & 3 {
            x if x == RequestedLayout::Full as u32 => RequestedLayout::Full,
            x if x == RequestedLayout::Auto as u32 => RequestedLayout::Auto,
            _ => RequestedLayout::Frag,
        };
        Setting { requested, xdp: word & 4 != 0, number: word / NUMBER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a setting is read as written, and a repeated setting is distinguishable.
    #[test]
    fn settings_are_read_as_written() {
        let cell = SettingCell::default();
        for requested in [RequestedLayout::Frag, RequestedLayout::Full, RequestedLayout::Auto] {
            for xdp in [false, true] {
                cell.set(requested, xdp);
                let first = cell.get();
                assert_eq!((first.requested, first.xdp), (requested, xdp));
                cell.set(requested, xdp);
                assert_ne!(cell.get(), first);
            }
        }
    }
}
