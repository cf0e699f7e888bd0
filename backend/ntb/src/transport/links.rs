//! QP_LINKS: which queue pairs are open.
//!
//! The scratchpad is an echo: to open pair `q`, the peer writes our value with bit `q` set, and to
//! close it, our value with bit `q` clear. An opening is repeated every 10 ms until our value has
//! the bit. An open pair causes no write and reads no bit.
//!
//! # Grants are short
//! A bit that stays set would reopen a pair behind our back: the kernel closes and opens all pairs
//! within a millisecond when its MTU changes. So a bit is cleared as soon as the peer writes no
//! more, and every further opening needs a request. A pair that ends may be open again already, if
//! its bit was set: link-down slots, wherever the peer reads, make it request the pair anew. (A
//! closed pair does not read them, and they are cleared before the next opening.)
//!
//! # Writes of the peer
//! - A bit that our value lacks is a request to open a pair.
//! - A bit that only our value has closes a pair, or is missing because the peer read an older
//!   value. The pair is *in doubt*: it ends after [`DOUBT`], unless there is activity in the second
//!   half of that time. Activity in the first half proves nothing: frames sent before the closing
//!   are received after it, and the kernel returns slots for a while after it has closed a pair.
//! - All other bits have no meaning.
//! - A write without a request closes some pair. It withdraws all requests that are pending, and
//!   puts new grants in doubt: the kernel sends no link-down slot for a pair that it closes while
//!   it requests it. Other requests are repeated.
//!
//! Writes are recognised by a mark ([`UNTOUCHED`]) that the session leaves in the scratchpad. After
//! a bit was cleared here, writes may still echo it for a while.

use std::time::Duration;

/// Time in which the peer repeats an opening; as long, writes may echo a bit that was cleared.
pub(super) const REPEAT: Duration = Duration::from_millis(10);

/// Time without a write after which no request is pending.
const QUIET: Duration = Duration::from_millis(30);

/// Time after an opening in which a missing bit may be older than the opening, even if it was
/// written later: the peer reads and writes in two steps.
const SETTLE: Duration = Duration::from_millis(20);

/// Time after which a pair in doubt ends, if its second half is without activity.
const DOUBT: Duration = Duration::from_millis(200);

/// Time in which a link-down slot may wait in front of a request for the same pair.
const INSIST: Duration = Duration::from_millis(100);

/// Time after which a request to open has expired: the peer repeats it more often.
const REQUESTED: Duration = Duration::from_millis(500);

/// Mark that no peer writes, since no bit of ours has it and no pair is its own.
pub(super) const UNTOUCHED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Pair {
    is_open: bool,
    /// Until then writes may echo the bit.
    quiet_until: Duration,
    requested: Option<Duration>,
    /// Since when an open pair is requested.
    insists: Option<Duration>,
    opened: Duration,
    /// Activity of the pair when it was opened.
    mark: u64,
    doubt: Option<Doubt>,
}

/// Doubt about an open pair.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Duration,
    /// Begin of the second half, and the pair's activity at that time.
    half: Option<(Duration, u64)>,
}

impl Doubt {
    /// Judges the pair. `all_read`: no frames of the pair wait.
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

/// State of a doubt.
enum Verdict {
    /// Not decided.
    Open,
    /// The peer uses the pair.
    Active,
    /// The peer has closed the pair.
    Ended,
}

/// Open queue pairs, by the scratchpads.
#[derive(Debug)]
pub(super) struct Links {
    ours: u32,
    /// Bits that were set before the last poll: a write that lacks one of these is newer.
    settled: u32,
    /// Time of the last write of the peer, or opening.
    touched: Duration,
    pairs: Vec<Pair>,
}

impl Links {
    /// No pair is open.
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

    /// The bits to be written to the peer.
    pub(super) fn ours(&self) -> u32 {
        self.ours
    }

    /// Processes a write of the peer since the last poll. `activity` changes with each frame that
    /// the peer sends or consumes. Returns the pairs to be closed: the peer requests to open them
    /// anew.
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
                    // A pair that is open at the peer's end is not requested. If it was, its
                    // link-down slot is on the way, or the write is older than the opening.
                    let may_be_up = active != pair.mark;
                    let insists = *pair.insists.get_or_insert(now);
                    let is_over = !may_be_up || now >= insists + INSIST;
                    if pair.is_open && is_over {
                        ended.push(number as u16);
                    }
                }
                (false, false) if closes => pair.requested = None,
                // An opening has a bit of its own, so that no bit at all closes.
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

    /// Ends a poll, with a write or without. `all_read`: no frames of a pair wait. Returns the
    /// pairs that have ended by doubt.
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

    /// Pairs that the peer requests to open.
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

    /// Closes a pair; a request counts as soon as writes do not echo the bit.
    pub(super) fn close(&mut self, number: u16, now: Duration) {
        let pair = &mut self.pairs[usize::from(number)];
        let is_echo = self.ours & 1 << number != 0;
        let quiet_until = if is_echo { now + REPEAT } else { pair.quiet_until };
        *pair = Pair { is_open: false, quiet_until, insists: None, doubt: None, ..*pair };
        self.ours &= !(1 << number);
    }

    /// True for an open pair.
    pub(super) fn is_open(&self, number: u16) -> bool {
        self.pairs[usize::from(number)].is_open
    }

    /// Pairs that are open.
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

    /// A poll in which no frames wait.
    fn tick(links: &mut Links, now: u64, activity: u64) -> Vec<u16> {
        links.tick(ms(now), |_| activity, |_| true)
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
        links.open(2, ms(100), 7);
        assert_eq!((links.ours(), opened(&links)), (0b0100, vec![2]));
        // An echo of ours, and the own bit of another pair.
        assert!(links.note_write(0b0101, ms(110), |_| 0).is_empty());
        assert_eq!(requested(&links, 110), [0]);
        assert!(requested(&links, 700).is_empty());
    }

    // Goal: a pair that is closed while it is requested is not opened, and one that was opened just
    // before is in doubt; requests of other pairs are repeated.
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

    // Goal: a write that was read before ours was written closes nothing, however late it is seen.
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

    // Goal: after a close, echoes of the old bit do not open the pair, and a repetition does.
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

    // Goal: a missing bit clears ours immediately; the pair ends without activity in the second
    // half of the doubt, and goes on with it.
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

    // Goal: a request for an open pair ends it: soon where the peer may never have opened it, and
    // where it did, after its link-down slot had time to arrive.
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
