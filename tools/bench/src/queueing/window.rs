//! Limit of the frames in flight per sender, like the kernel's socket buffer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use mqnet_counters::Padded;

/// Longest sleep of a waiting sender between two checks.
const NAP: Duration = Duration::from_millis(5);
/// Number of sleeps without progress after which the frames in flight are regarded as lost.
const NAPS_MAX: u32 = 20;

/// State shared by sender and receiver of one flow. Frames of a flow stay in order: when frame n
/// arrives, every earlier frame has arrived or is lost.
#[derive(Debug, Default)]
pub(super) struct Window {
    sent: Padded<AtomicU64>,
    refused: AtomicU64,
    /// Number of frames that have arrived or are lost.
    settled: Padded<AtomicU64>,
    frames: AtomicU64,
    bytes: AtomicU64,
    waits: Padded<AtomicBool>,
    sender: OnceLock<Thread>,
}

impl Window {
    /// Registers the sender's thread; called by that thread before any other method.
    pub(super) fn begin(&self) {
        let _ = self.sender.set(std::thread::current());
    }

    /// Blocks the sender until fewer than `most` frames are in flight, or `stop` is set. After
    /// [`NAPS_MAX`] sleeps without progress all frames in flight are regarded as lost: `forgiven`
    /// becomes the number of sent frames.
    pub(super) fn wait(&self, forgiven: &mut u64, most: u64, stop: &AtomicBool) {
        let sent = self.sent.load(Ordering::Relaxed);
        let on_their_way = |forgiven: u64| {
            // Pairs with note_received, which stores the settled count.
            let settled = self.settled.load(Ordering::SeqCst);
            sent - settled.max(forgiven).min(sent)
        };
        let mut naps = 0;
        while on_their_way(*forgiven) >= most && !stop.load(Ordering::Relaxed) {
            // Pairs with note_received: the wait flag is set before the settled count is loaded
            // again.
            self.waits.store(true, Ordering::SeqCst);
            let before = on_their_way(*forgiven);
            if before >= most {
                std::thread::park_timeout(NAP);
            }
            naps = if on_their_way(*forgiven) == before { naps + 1 } else { 0 };
            if naps == NAPS_MAX {
                *forgiven = sent;
            }
        }
        self.waits.store(false, Ordering::Relaxed);
    }

    /// Counts a frame that the sender has sent.
    pub(super) fn note_sent(&self) {
        self.sent.store(self.sent.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts a frame that the queue has refused.
    pub(super) fn note_refused(&self) {
        self.refused.store(self.refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Records that the receiver has frame `seq`. Wakes a waiting sender if at least an eighth of
    /// the window `most` is free.
    pub(super) fn note_received(&self, seq: u64, bytes: usize, most: u64) {
        self.frames.store(self.frames.load(Ordering::Relaxed) + 1, Ordering::Release);
        let bytes = bytes as u64;
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        if most == u64::MAX {
            return;
        }
        // Pairs with wait: the settled count is stored before the wait flag is loaded.
        self.settled.store(seq + 1, Ordering::SeqCst);
        let on_their_way = self.sent.load(Ordering::Acquire).saturating_sub(seq + 1);
        if on_their_way > most - most.div_ceil(8) {
            return;
        }
        // Pairs with wait, which sets the flag before its last load of the settled count.
        let waits = self.waits.load(Ordering::SeqCst);
        // Pairs with wait: the swap clears the flag, so a waiting sender is woken once.
        if waits && self.waits.swap(false, Ordering::SeqCst) {
            self.sender.get().into_iter().for_each(std::thread::Thread::unpark);
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a sender with a full window continues after its frames have arrived, and after
    // [`NAPS_MAX`] sleeps if some are lost.
    #[test]
    fn a_full_window_opens() {
        let (window, stop) = (Window::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                window.begin();
                let mut forgiven = 0;
                for _ in 0..24 {
                    window.wait(&mut forgiven, 8, &stop);
                    window.note_sent();
                }
            });
            while window.sent() < 8 {
                std::thread::yield_now();
            }
            (0..8).for_each(|seq| window.note_received(seq, 100, 8));
            // Only one of the next eight frames arrives; the other seven are regarded as lost after
            // a time.
            while window.sent() < 16 {
                std::thread::yield_now();
            }
            window.note_received(8, 100, 8);
        });
        assert_eq!((window.sent(), window.frames(), window.bytes()), (24, 9, 900));
    }
}
