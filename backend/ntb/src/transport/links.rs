//! State of the open queue pairs, exchanged in the scratchpad QP_LINKS.
//!
//! The peer writes this end's value back with a change: with bit `q` set to open pair `q`, with bit
//! `q` clear to close it. The peer repeats an opening every 10 ms until this end's value has the
//! bit. While a pair is open, the peer neither writes for it nor reads its bit.
//!
//! # Bits are set for a short time
//! A bit that stays set would let the peer reopen a pair unnoticed: when its MTU changes, the
//! kernel closes and opens all pairs within a millisecond. A bit is therefore cleared when the
//! peer has stopped writing, and every further opening needs a request. A pair that ends while
//! its bit is set may already be open at the peer again. This end then makes all slots link-down
//! slots, so that the peer requests the pair again. The peer reads no slot of a closed pair, and
//! this end clears the slots before the next opening.
//!
//! # Writes of the peer
//! - A bit that this end's value lacks is a request to open a pair.
//! - A bit that only this end's value has closes a pair, or is missing because the peer read an
//!   older value. The pair is *in doubt*: it ends after [`DOUBT`], unless there is activity in
//!   the second half of that time. Activity in the first half proves nothing: frames sent before
//!   the closing are received after it, and the kernel returns slots for a while after it has
//!   closed a pair.
//! - All other bits have no meaning.
//! - A write without a request closes some pair. The write withdraws all pending requests, and
//!   puts pairs opened shortly before in doubt: the kernel sends no link-down slot for a pair
//!   that it closes while it requests the pair. The peer repeats the other requests.
//!
//! Each poll replaces the scratchpad's value by a mark ([`UNTOUCHED`]), so that any later value
//! is a write of the peer. Writes may echo a bit for a while after this end has cleared it.

use std::time::Duration;

/// Period of the peer's repeated writes for an opening, and time for which its writes may echo a
/// bit that this end has cleared.
pub(super) const REPEAT: Duration = Duration::from_millis(10);

/// Time without a write of the peer after which this end clears all its bits: no request is pending
/// then.
const QUIET: Duration = Duration::from_millis(30);

/// Time after an opening in which a missing bit does not mean that the peer closes the pair. The
/// peer reads and writes in two steps, so a later write may be based on an older value.
const SETTLE: Duration = Duration::from_millis(20);

/// Time after which a pair in doubt ends, if there is no activity in the second half of that time.
const DOUBT: Duration = Duration::from_millis(200);

/// Time for which a request for an open pair is ignored if the peer has used the pair: a
/// link-down slot may still be unread.
const INSIST: Duration = Duration::from_millis(100);

/// Time after which a request to open expires, unless the peer repeats it.
const REQUESTED: Duration = Duration::from_millis(500);

/// Mark in the scratchpad that no peer writes: [`PAIRS_MAX`](super::handshake::PAIRS_MAX) excludes
/// this bit.
pub(super) const UNTOUCHED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Pair {
    is_open: bool,
    /// Time until which writes of the peer may echo the cleared bit of this pair.
    quiet_until: Duration,
    requested: Option<Duration>,
    /// Time of the first request since the pair was last opened or closed; `None` without one.
    insists: Option<Duration>,
    opened: Duration,
    /// Activity of the pair at its opening.
    mark: u64,
    doubt: Option<Doubt>,
}

/// Doubt that an open pair is still open at the peer.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Duration,
    /// Begin of the second half, and the pair's activity at that time; `None` in the first half.
    half: Option<(Duration, u64)>,
}

impl Doubt {
    /// Judges if the pair is open at the peer. `all_read` is true if it has no unread frames.
    fn judge(&mut self, now: Duration, activity: u64, all_read: bool) -> Verdict {
        match self.half {
            None if now >= self.since + DOUBT / 2 && all_read => {
                self.half = Some((now, activity));
                Verdict::Open
            }
            None => Verdict::Open,
            Some((_, before)) if activity != before => Verdict::Active,
            Some((half, _)) if now >= half + DOUBT / 2 => Verdict::Ended,
            Some(_) => Verdict::Open,
        }
    }
}

/// Decision on a pair in doubt.
enum Verdict {
    /// Not decided.
    Open,
    /// The peer uses the pair.
    Active,
    /// The peer has closed the pair.
    Ended,
}

/// Open queue pairs of a link.
#[derive(Debug)]
pub(super) struct Links {
    ours: u32,
    /// Value of `ours` at the end of the last poll. The peer cannot have read bits set since then,
    /// so that such a bit may be missing in its writes.
    settled: u32,
    /// Time of the peer's last write, or of the last opening.
    touched: Duration,
    pairs: Vec<Pair>,
}

impl Links {
    /// State of `pairs` queue pairs, none of them open.
    pub(super) fn new(pairs: u16) -> Self {
        let pair = Pair {
            is_open: false,
            quiet_until: Duration::ZERO,
            requested: None,
            insists: None,
            opened: Duration::ZERO,
            mark: 0,
            doubt: None,
        };
        Self { ours: 0, settled: 0, touched: Duration::ZERO, pairs: vec![pair; usize::from(pairs)] }
    }

    /// Bits that this end writes to the peer.
    pub(super) fn ours(&self) -> u32 {
        self.ours
    }

    /// Processes a write of the peer since the last poll. `activity` changes with each frame that
    /// the peer sends or consumes. Returns open pairs that must be closed, because the peer
    /// requests them again.
    pub(super) fn note_write(
        &mut self,
        value: u32,
        now: Duration,
        activity: impl Fn(u16) -> u64,
    ) -> Vec<u16> {
        let mut ended = Vec::new();
        self.touched = now;
        let closes = value & !self.ours == 0;
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            let bit = 1 << number;
            let active = activity(number as u16);
            let is_newer = value == 0 || self.settled & bit != 0;
            let is_settled = self.settled & bit != 0 && now >= pair.opened + SETTLE;
            match (value & bit != 0, self.ours & bit != 0) {
                (true, false) if now >= pair.quiet_until => {
                    pair.requested = Some(now);
                    // The peer requests only pairs that it has closed. If this end has such a pair
                    // open, the link-down slot of the pair is still unread, or the write is older
                    // than the opening.
                    let may_be_up = active != pair.mark;
                    let insists = *pair.insists.get_or_insert(now);
                    let is_over = !may_be_up || now >= insists + INSIST;
                    if pair.is_open && is_over {
                        ended.push(number as u16);
                    }
                }
                (false, false) if closes => pair.requested = None,
                // A request to open has a bit set, so a write without any bit closes pairs.
                (false, true) if is_settled || closes && is_newer => {
                    self.ours &= !bit;
                    pair.quiet_until = now + REPEAT;
                    pair.doubt = Some(Doubt { since: now, half: None });
                }
                _ => {}
            }
        }
        ended
    }

    /// Ends a poll, with or without a write. `all_read` is true for a pair without unread frames.
    /// Returns the pairs in doubt that have ended.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        activity: impl Fn(u16) -> u64,
        all_read: impl Fn(u16) -> bool,
    ) -> Vec<u16> {
        if now >= self.touched + QUIET {
            for (number, pair) in self.pairs.iter_mut().enumerate() {
                if self.ours & 1 << number != 0 {
                    pair.quiet_until = now + REPEAT;
                }
            }
            self.ours = 0;
        }
        self.settled = self.ours;
        let mut ended = Vec::new();
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            let Some(doubt) = &mut pair.doubt else { continue };
            let number = number as u16;
            match doubt.judge(now, activity(number), all_read(number)) {
                Verdict::Open => {}
                Verdict::Active => pair.doubt = None,
                Verdict::Ended => ended.push(number),
            }
        }
        ended
    }

    /// Closed pairs that the peer requests to open.
    pub(super) fn requested(&self, now: Duration) -> impl Iterator<Item = u16> {
        let is_requested = move |pair: &Pair| {
            !pair.is_open && pair.requested.is_some_and(|at| now < at + REQUESTED)
        };
        let pairs = self.pairs.iter().enumerate();
        pairs.filter(move |(_, pair)| is_requested(pair)).map(|(number, _)| number as u16)
    }

    /// Opens a pair that was requested.
    pub(super) fn open(&mut self, number: u16, now: Duration, activity: u64) {
        self.ours |= 1 << number;
        self.touched = now;
        let pair = &mut self.pairs[usize::from(number)];
        *pair = Pair {
            is_open: true,
            requested: None,
            insists: None,
            opened: now,
            mark: activity,
            doubt: None,
            ..*pair
        };
    }

    /// Closes a pair. Requests are ignored until the peer's writes no longer echo the bit.
    pub(super) fn close(&mut self, number: u16, now: Duration) {
        let pair = &mut self.pairs[usize::from(number)];
        let is_echo = self.ours & 1 << number != 0;
        let quiet_until = if is_echo { now + REPEAT } else { pair.quiet_until };
        *pair = Pair { is_open: false, quiet_until, insists: None, doubt: None, ..*pair };
        self.ours &= !(1 << number);
    }

    pub(super) fn is_open(&self, number: u16) -> bool {
        self.pairs[usize::from(number)].is_open
    }

    pub(super) fn opened(&self) -> impl Iterator<Item = u16> {
        let pairs = self.pairs.iter().enumerate();
        pairs.filter(|(_, pair)| pair.is_open).map(|(number, _)| number as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Ends a poll without unread frames.
    fn tick(links: &mut Links, now: u64, activity: u64) -> Vec<u16> {
        links.tick(ms(now), |_| activity, |_| true)
    }

    fn requested(links: &Links, now: u64) -> Vec<u16> {
        links.requested(ms(now)).collect()
    }

    fn opened(links: &Links) -> Vec<u16> {
        links.opened().collect()
    }

    // Rule: only a bit that this end's value lacks is a request. A request expires.
    #[test]
    fn new_bits_request_link_and_expire() {
        let mut links = Links::new(4);
        assert!(links.note_write(0b0100, ms(100), |_| 0).is_empty());
        assert_eq!(requested(&links, 100), [2]);
        links.open(2, ms(100), 7);
        assert_eq!((links.ours(), opened(&links)), (0b0100, vec![2]));
        // The write has the set bit of pair 2, and a new bit of pair 0.
        assert!(links.note_write(0b0101, ms(110), |_| 0).is_empty());
        assert_eq!(requested(&links, 110), [0]);
        assert!(requested(&links, 700).is_empty());
    }

    // Rule: a pair that the peer requests and then closes is not opened. A pair that was opened
    // just before the peer closes a pair is in doubt.
    #[test]
    fn closed_requests_are_withdrawn() {
        let mut links = Links::new(2);
        links.note_write(0b10, ms(100), |_| 0);
        links.note_write(0b00, ms(101), |_| 0);
        assert!(requested(&links, 101).is_empty());
        links.note_write(0b01, ms(102), |_| 0);
        links.open(0, ms(102), 0);
        links.note_write(0b00, ms(105), |_| 0);
        assert_eq!((links.ours(), opened(&links)), (0, vec![0]));
        assert!(tick(&mut links, 205, 0).is_empty());
        assert!(tick(&mut links, 304, 0).is_empty());
        assert_eq!(tick(&mut links, 305, 0), [0]);
    }

    // Goal: a write based on a value before the opening closes nothing, at any later poll.
    #[test]
    fn older_writes_close_nothing() {
        for late in [110, 5000] {
            let mut links = Links::new(2);
            links.note_write(0b01, ms(100), |_| 0);
            tick(&mut links, 100, 0);
            links.open(0, ms(100), 7);
            links.note_write(0b10, ms(late), |_| 0);
            tick(&mut links, late, 0);
            assert_eq!((links.ours(), requested(&links, late)), (0b01, vec![1]));
            links.note_write(0b10, ms(late + 20), |_| 0);
            assert_eq!(links.ours(), 0, "this one is newer");
        }
    }

    // Rule: after a close, echoes of the cleared bit do not request the pair. A write after
    // [`REPEAT`] does.
    #[test]
    fn echoes_after_a_close_are_ignored() {
        let mut links = Links::new(2);
        links.open(0, ms(100), 7);
        links.close(0, ms(200));
        assert_eq!(links.ours(), 0);
        links.note_write(0b11, ms(205), |_| 0);
        assert_eq!(requested(&links, 205), [1]);
        links.note_write(0b01, ms(210), |_| 0);
        assert_eq!(requested(&links, 210), [0, 1]);
    }

    // Rule: a missing bit clears this end's bit immediately. The pair then ends, unless there is
    // activity in the second half of the doubt.
    #[test]
    fn missing_bit_puts_a_pair_in_doubt() {
        let mut links = Links::new(2);
        links.open(0, ms(100), 7);
        links.open(1, ms(100), 7);
        tick(&mut links, 110, 7);
        links.note_write(0b10, ms(129), |_| 7);
        assert_eq!((links.ours(), opened(&links)), (0b10, vec![0, 1]));
        assert!(tick(&mut links, 229, 8).is_empty());
        assert!(tick(&mut links, 328, 8).is_empty());
        assert_eq!(tick(&mut links, 329, 8), [0], "activity of the first half");
        assert!(tick(&mut links, 330, 9).is_empty());
        assert!(tick(&mut links, 1000, 9).is_empty());
    }

    // Goal: the second half of a doubt begins after all frames of the pair were read.
    #[test]
    fn waiting_frames_prolong_a_doubt() {
        let mut links = Links::new(1);
        links.open(0, ms(100), 7);
        tick(&mut links, 110, 7);
        links.note_write(0, ms(129), |_| 7);
        assert!(links.tick(ms(1000), |_| 7, |_| false).is_empty());
        assert!(tick(&mut links, 1001, 9).is_empty());
        assert!(tick(&mut links, 1100, 9).is_empty());
        assert_eq!(tick(&mut links, 1101, 9), [0]);
    }

    // Rule: a request for an open pair ends the pair. A pair that the peer has not used ends
    // immediately, another pair after [`INSIST`], when its link-down slot has been read.
    #[test]
    fn request_ends_an_open_pair() {
        let mut links = Links::new(2);
        links.open(0, ms(100), 7);
        links.open(1, ms(100), 7);
        tick(&mut links, 200, 7);
        assert_eq!(links.ours(), 0, "grants are short");
        let activity = |pair| if pair == 1 { 8 } else { 7 };
        assert!(links.note_write(0b11, ms(205), activity).is_empty(), "an echo");
        assert_eq!(links.note_write(0b11, ms(210), activity), [0]);
        assert_eq!(links.note_write(0b11, ms(309), activity), [0]);
        assert_eq!(links.note_write(0b11, ms(310), activity), [0, 1]);
        links.close(1, ms(310));
        assert_eq!(requested(&links, 310), [1]);
    }
}
