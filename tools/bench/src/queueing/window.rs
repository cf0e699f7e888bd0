//! How much of a sender is on its way: what a socket's buffer is to the kernel.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use mqnet_counters::Padded;

/// How long a sender waits before it looks again.
const NAP: Duration = Duration::from_millis(5);
/// Naps without any news after which what is on its way is taken for lost.
const NAPS_MAX: u32 = 20;

/// What sender and receiver of one flow tell each other. Frames of a flow stay in order, so with
/// frame n every frame before it has come or is lost.
#[derive(Debug, Default)]
pub(super) struct Window {
    sent: Padded<AtomicU64>,
    refused: AtomicU64,
    /// Frames that have come or are lost.
    settled: Padded<AtomicU64>,
    frames: AtomicU64,
    bytes: AtomicU64,
    waits: Padded<AtomicBool>,
    sender: OnceLock<Thread>,
}

impl Window {
    /// The sender's thread says so first.
    pub(super) fn begin(&self) {
        let _ = self.sender.set(std::thread::current());
    }

    /// The sender waits until fewer than `most` frames are on their way. When none of them comes in
    /// a long time all are taken for lost: `forgiven` are those before the next one.
    pub(super) fn wait(&self, forgiven: &mut u64, most: u64, stop: &AtomicBool) {
        let sent = self.sent.load(Ordering::Relaxed);
        let on_their_way = |forgiven: u64| {
            // Pairs with note_received: what has settled against that we wait.
            let settled = self.settled.load(Ordering::SeqCst);
            sent - settled.max(forgiven).min(sent)
        };
        let mut naps = 0;
        while on_their_way(*forgiven) >= most && !stop.load(Ordering::Relaxed) {
            // Pairs with note_received: that we wait before a last look at what has settled.
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

    /// The sender has sent one more.
    pub(super) fn note_sent(&self) {
        self.sent.store(self.sent.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The queue did not take one.
    pub(super) fn note_refused(&self) {
        self.refused.store(self.refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The receiver has frame `seq`. A sender that waits goes on when an eighth of `most` has
    /// settled.
    pub(super) fn note_received(&self, seq: u64, bytes: usize, most: u64) {
        self.frames.store(self.frames.load(Ordering::Relaxed) + 1, Ordering::Release);
        let bytes = bytes as u64;
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        if most == u64::MAX {
            return;
        }
        // Pairs with wait: what has settled before a look whether the sender waits.
        self.settled.store(seq + 1, Ordering::SeqCst);
        let on_their_way = self.sent.load(Ordering::Acquire).saturating_sub(seq + 1);
        if on_their_way > most - most.div_ceil(8) {
            return;
        }
        // Pairs with wait: what has settled before this look.
        let waits = self.waits.load(Ordering::SeqCst);
        // Pairs with wait: one who waits is woken once.
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

    // Goal: a sender with a full window goes on when its frames arrive, and when the last of them
    // were lost.
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
            // Of the next eight only one comes; the others are lost in the end.
            while window.sent() < 16 {
                std::thread::yield_now();
            }
            window.note_received(8, 100, 8);
        });
        assert_eq!((window.sent(), window.frames(), window.bytes()), (24, 9, 900));
    }
}
