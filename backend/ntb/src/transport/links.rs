//! QP_LINKS: which queue pairs are open.
//!
//! The scratchpad is an echo: to open pair `q`, the peer writes our value with bit `q` set, and to
//! close it, our value with bit `q` clear. An opening is repeated every 10 ms until our value has
//! the bit; later, an open pair causes no write. In each write of the peer
//! - a bit that our value lacks is a request to open a pair;
//! - a bit that only our value has closes a pair, or is missing because the peer read an older value;
//! - all other bits have no meaning.
//!
//! Writes are recognised by a mark ([`UNTOUCHED`]) that the session leaves in the scratchpad. After
//! a pair was closed here, writes may still echo the old bit for a while.
//!
//! A missing bit alone does not end a pair that carries frames. Our bit is cleared immediately; after
//! [`DOUBT`] without a sign of life the pair is *dormant*: still received, and counted as closed.

use std::time::Duration;

/// Time in which the peer repeats an opening; as long, writes may echo a bit that was cleared.
pub(super) const REPEAT: Duration = Duration::from_millis(10);

/// Time after an opening in which a missing bit may be older than the opening, even if it was
/// written later: the peer reads and writes in two steps.
const SETTLE: Duration = Duration::from_millis(20);

/// Time without a sign of life after which a pair with a missing bit is dormant.
const DOUBT: Duration = Duration::from_millis(200);

/// Time after which a request to open has expired: the peer repeats it more often.
const REQUESTED: Duration = Duration::from_millis(500);

/// Mark that no peer writes, since no bit of ours has it and no pair is its own.
pub(super) const UNTOUCHED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    Dormant,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    state: State,
    /// Until then writes may echo the bit.
    quiet_until: Duration,
    requested: Option<Duration>,
    opened: Duration,
    /// Since when the bit is missing, and the activity of the pair at that time.
    doubt: Option<(Duration, u64)>,
}

/// Open queue pairs, by the scratchpads.
#[derive(Debug)]
pub(super) struct Links {
    ours: u32,
    /// Bits that were set before the last poll: a write that lacks one of these is newer.
    settled: u32,
    pairs: Vec<Pair>,
}

impl Links {
    /// No pair is open.
    pub(super) fn new(pairs: u16) -> Self {
        let pair = Pair {
            state: State::Closed,
            quiet_until: Duration::ZERO,
            requested: None,
            opened: Duration::ZERO,
            doubt: None,
        };
        Self { ours: 0, settled: 0, pairs: vec![pair; usize::from(pairs)] }
    }

    /// The bits to be written to the peer.
    pub(super) fn ours(&self) -> u32 {
        self.ours
    }

    /// Processes a write of the peer since the last poll. `activity` counts the signs of life of a
    /// pair. Returns the pairs to be closed: the peer requests to open them anew.
    pub(super) fn note_write(
        &mut self,
        value: u32,
        now: Duration,
        activity: impl Fn(u16) -> u64,
    ) -> Vec<u16> {
        let mut ended = Vec::new();
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            let bit = 1 << number;
            let is_settled = self.settled & bit != 0 && now >= pair.opened + SETTLE;
            match (value & bit != 0, self.ours & bit != 0) {
                (true, false) if now >= pair.quiet_until => {
                    pair.requested = Some(now);
                    if pair.state != State::Closed {
                        ended.push(number as u16);
                    }
                }
                (false, true) if is_settled => {
                    self.ours &= !bit;
                    pair.quiet_until = now + REPEAT;
                    pair.doubt = Some((now, activity(number as u16)));
                }
                _ => {}
            }
        }
        ended
    }

    /// Ends a poll, with a write or without: pairs in doubt become dormant, or are open after a
    /// sign of life.
    pub(super) fn tick(&mut self, now: Duration, activity: impl Fn(u16) -> u64) {
        self.settled = self.ours;
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            let Some((since, mark)) = pair.doubt else { continue };
            if activity(number as u16) != mark {
                (pair.doubt, pair.state) = (None, State::Open);
            } else if pair.state == State::Open && now >= since + DOUBT {
                pair.state = State::Dormant;
            }
        }
    }

    /// Pairs that the peer requests to open.
    pub(super) fn requested(&self, now: Duration) -> impl Iterator<Item = u16> {
        let is_requested = move |pair: &Pair| {
            pair.state == State::Closed && pair.requested.is_some_and(|at| now < at + REQUESTED)
        };
        let pairs = self.pairs.iter().enumerate();
        pairs.filter(move |(_, pair)| is_requested(pair)).map(|(number, _)| number as u16)
    }

    /// Opens a pair.
    pub(super) fn open(&mut self, number: u16, now: Duration) {
        self.ours |= 1 << number;
        let pair = &mut self.pairs[usize::from(number)];
        *pair = Pair { state: State::Open, requested: None, opened: now, doubt: None, ..*pair };
    }

    /// Closes a pair; a request counts as soon as writes do not echo the bit.
    pub(super) fn close(&mut self, number: u16, now: Duration) {
        self.ours &= !(1 << number);
        let pair = &mut self.pairs[usize::from(number)];
        *pair = Pair { state: State::Closed, quiet_until: now + REPEAT, doubt: None, ..*pair };
    }

    /// True for a pair that may carry frames.
    pub(super) fn is_served(&self, number: u16) -> bool {
        self.pairs[usize::from(number)].state != State::Closed
    }

    /// Pairs that are open.
    pub(super) fn opened(&self) -> impl Iterator<Item = u16> {
        let pairs = self.pairs.iter().enumerate();
        pairs.filter(|(_, pair)| pair.state == State::Open).map(|(number, _)| number as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn requested(links: &Links, now: u64) -> Vec<u16> {
        links.requested(ms(now)).collect()
    }

    fn opened(links: &Links) -> Vec<u16> {
        links.opened().collect()
    }

    // Goal: only bits that our value lacks are requests, and a request expires.
    #[test]
    fn new_bits_ask_and_expire() {
        let mut links = Links::new(4);
        assert!(links.note_write(0b0100, ms(100), |_| 0).is_empty());
        assert_eq!(requested(&links, 100), [2]);
        links.open(2, ms(100));
        assert_eq!((links.ours(), opened(&links)), (0b0100, vec![2]));
        // An echo of ours, and the own bit of another pair.
        assert!(links.note_write(0b0101, ms(110), |_| 0).is_empty());
        assert_eq!(requested(&links, 110), [0]);
        assert!(requested(&links, 700).is_empty());
    }

    // Goal: a write that was read before ours was written closes nothing, however late it is seen.
    #[test]
    fn older_writes_close_nothing() {
        for late in [110, 5000] {
            let mut links = Links::new(2);
            links.note_write(0b01, ms(100), |_| 0);
            links.tick(ms(100), |_| 0);
            links.open(0, ms(100));
            links.note_write(0b10, ms(late), |_| 0);
            links.tick(ms(late), |_| 0);
            assert_eq!((links.ours(), requested(&links, late)), (0b01, vec![1]));
            links.note_write(0b10, ms(late + 20), |_| 0);
            assert_eq!(links.ours(), 0, "this one is newer");
        }
    }

    // Goal: after a close, echoes of the old bit do not open the pair, and a repetition does.
    #[test]
    fn echoes_after_a_close_are_ignored() {
        let mut links = Links::new(2);
        links.open(0, ms(100));
        links.close(0, ms(200));
        assert_eq!(links.ours(), 0);
        links.note_write(0b11, ms(205), |_| 0);
        assert_eq!(requested(&links, 205), [1]);
        links.note_write(0b01, ms(210), |_| 0);
        assert_eq!(requested(&links, 210), [0, 1]);
    }

    // Goal: a missing bit clears ours immediately; the pair is dormant without a sign of life and open
    // with one, and a new request ends it.
    #[test]
    fn missing_bit_puts_a_pair_in_doubt() {
        let mut links = Links::new(2);
        links.open(0, ms(100));
        links.open(1, ms(100));
        links.tick(ms(110), |_| 7);
        links.note_write(0b10, ms(200), |_| 7);
        assert_eq!((links.ours(), opened(&links)), (0b10, vec![0, 1]));
        links.tick(ms(399), |_| 7);
        assert_eq!(opened(&links), [0, 1]);
        links.tick(ms(400), |_| 7);
        assert_eq!(opened(&links), [1]);
        assert!(links.is_served(0), "frames are still read");
        links.tick(ms(500), |_| 8);
        assert_eq!(opened(&links), [0, 1]);
        assert_eq!(links.note_write(0b11, ms(600), |_| 8), [0]);
        links.close(0, ms(600));
        assert_eq!(requested(&links, 600), [0]);
    }
}
