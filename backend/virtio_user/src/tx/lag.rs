//! Whether the device is behind: what we write next it will wait for, and we have the time to hand
//! it on.

use mqnet_netdev::limits::BURST_FRAMES;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Frames in flight when the device was seen to have taken some.
    moved_at: u16,
    is_behind: bool,
}

impl Lag {
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// A burst begins. Of `size` frames `before` were in flight, and `now` are: half of them, and
    /// the device has taken some since the burst before. One that has not is asleep, or waits for
    /// the very CPU that we run on, in whose caches it would find what we write (to hand on costs
    /// 35 ns a line then).
    #[inline(always)]
    pub(super) fn look(&mut self, size: u16, before: u16, now: u16) {
        if now < before {
            self.moved_at = now;
        }
        let since = usize::from(now.saturating_sub(self.moved_at));
        self.is_behind = now >= size / 2 && since <= BURST_FRAMES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u16 = 256;
    const BURST: u16 = BURST_FRAMES as u16;

    /// Bursts of which the device takes so many frames each; how many find it behind.
    fn run(bursts: u32, taken: impl Fn(u32) -> u16) -> u32 {
        let (mut lag, mut in_flight, mut behind) = (Lag::default(), 0u16, 0);
        for n in 0..bursts {
            let before = in_flight;
            in_flight = in_flight.saturating_sub(taken(n));
            // Twice, as who takes the ring and who submits do.
            lag.look(SIZE, before, in_flight);
            lag.look(SIZE, in_flight, in_flight);
            behind += u32::from(lag.is_behind());
            in_flight = SIZE.min(in_flight + BURST);
        }
        behind
    }

    // Goal: a device is behind that keeps taking frames from a ring that is half full or more; one
    // that keeps up is not, nor one that takes none, or all at once whenever it is its turn.
    #[test]
    fn who_is_behind() {
        assert!(run(100, |_| BURST / 2) >= 95);
        assert!(run(100, |_| 1) >= 95);
        assert_eq!(run(100, |_| BURST), 0);
        assert_eq!(run(100, |_| SIZE), 0);
        assert_eq!(run(100, |_| 0), 0);
        assert_eq!(run(100, |n| if n % 4 == 0 { SIZE } else { 0 }), 0);
    }
}
