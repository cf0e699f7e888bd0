//! What the control thread wants of the buffers of all queues.

use std::sync::atomic::{AtomicU32, Ordering};

use mqnet_virtio::rxbuf::layout::Wish;

/// A setting, as a queue reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) wish: Wish,
    /// An XDP program looks at the frames.
    pub(crate) xdp: bool,
    /// How often something was asked for: who asks again, tries again.
    pub(crate) number: u32,
}

/// Written by the control thread, read by every queue of a function.
#[derive(Debug, Default)]
pub(crate) struct Knob(AtomicU32);

const NUMBER: u32 = 1 << 3;

impl Knob {
    /// Asks for something, even if it is the same again.
    pub(crate) fn set(&self, wish: Wish, xdp: bool) {
        // Relaxed, here and below: a queue may see it a burst later.
        let number = self.0.load(Ordering::Relaxed) / NUMBER;
        let word = (number.wrapping_add(1) * NUMBER) | (u32::from(xdp) << 2) | wish as u32;
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Setting {
        let word = self.0.load(Ordering::Relaxed);
        let wish = match word & 3 {
            x if x == Wish::Full as u32 => Wish::Full,
            x if x == Wish::Auto as u32 => Wish::Auto,
            _ => Wish::Frag,
        };
        Setting { wish, xdp: word & 4 != 0, number: word / NUMBER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every setting is read as it was written, and the same asked again is another one.
    #[test]
    fn settings_are_read_whole() {
        let knob = Knob::default();
        for wish in [Wish::Frag, Wish::Full, Wish::Auto] {
            for xdp in [false, true] {
                knob.set(wish, xdp);
                let first = knob.get();
                assert_eq!((first.wish, first.xdp), (wish, xdp));
                knob.set(wish, xdp);
                assert_ne!(knob.get(), first);
            }
        }
    }
}
