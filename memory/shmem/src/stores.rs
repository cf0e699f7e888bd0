//! How payload is stored into memory that another CPU reads: through the cache, or past it.
//!
//! A store needs its cache line first. Where the reader's CPU is near (one third-level cache), that
//! is cheap, and the reader finds the line in a cache. Where it is far (another socket, or another
//! cluster of cores), the line comes from the reader's cache over there, and goes there again to be
//! read: two journeys for each line, and the writer waits for the first. Stores past the cache need
//! no line: the writer waits for nothing, and the reader reads memory. A link in Mpps (`mqnet-bench
//! link` with `MQNET_STORES=cached` and `streamed`):
//!
//! | bytes | near, cached | near, streamed | far, cached | far, streamed |
//! |---|---|---|---|---|
//! | 64 | 122 | 72 | 15 | 67 |
//! | 1514 | 22 | 6.4 | 1.4 | 7.7 |
//! | 9000 | 4.0 | 1.1 | 0.24 | 1.2 |
//!
//! Where the CPUs are is measured, by what a line costs the writer (a *sample*: one burst through
//! the cache, timed). A sample cannot tell the writer's own misses from those of its stores, and
//! does not know the reader's costs. So, while samples do not say *near*, both manners are also
//! tried in turns now and then (a *trial*), and the bytes that went tell; where they say nothing,
//! because less is sent than either manner moves, the samples count. Rejected: to believe a
//! topology, which a virtual machine does not know, and which does not know where the peer runs.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mqnet_rings::demote;
use mqnet_sysio::clock::monotonic;

use crate::Streaming;
use crate::stream::is_possible;

/// What a burst may cost, for each of its lines and frames.
#[derive(Clone, Copy, Debug)]
struct Cost {
    line: Duration,
    frame: Duration,
}

/// For each burst: to read the clock, and what is cold after a pause.
const BURST: Duration = Duration::from_nanos(200);

/// Below this, the reader is near: 1.5 to 2.5 ns for a line, and 5 to 10 for a frame's own work.
const NEAR: Cost = Cost { line: Duration::from_nanos(3), frame: Duration::from_nanos(12) };

/// Above this, it is far: 24 to 60 ns for a line, where reading from memory in order, which
/// streaming leaves to the reader, takes 4 to 8.
const FAR: Cost = Cost { line: Duration::from_nanos(12), frame: Duration::from_nanos(40) };

/// Bytes of a burst that say something.
const BYTES_MIN: u64 = 2048;

/// Bursts from one sample to the next while nothing is streamed.
const PERIOD: u32 = 64;

/// The same while all else is streamed: a sample may cost many times another burst.
const PERIOD_STREAMED: u32 = 512;

/// By so many more samples that speak for the other manner it is changed: one may have been
/// interrupted.
const EVIDENCE: u32 = 6;

/// What does not count at the begin of a turn of a trial: what lies in a full ring was stored in
/// the turn before, and sets the pace. So many bytes, which is what `ntb:` has there, and so many
/// frames, as rings of descriptors have, but no more bytes than the most.
const TURN_SKIPPED: u64 = 512 << 10;
/// See [`TURN_SKIPPED`].
const TURN_SKIPPED_FRAMES: u32 = 1024;
/// See [`TURN_SKIPPED`].
const TURN_SKIPPED_MOST: u64 = 2 << 20;

/// Bytes of a turn that count.
const TURN_COUNTED: u64 = 256 << 10;

/// Turns of each manner, of which the quickest counts: others were interrupted, or waited for
/// traffic.
const TURNS: u32 = 3;

/// A manner wins a trial with this part of the other's time, or less.
const GAIN: f64 = 0.85;

/// Bytes from one trial to the next, about: what its worse turns cost is one in a hundred then.
const REST: u64 = 1 << 30;

/// Who decides, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Preference {
    /// What is measured.
    #[default]
    Auto = 0,
    /// The user: through the cache, and nothing is handed on.
    Cached = 1,
    /// The user: past the cache, where the machine can.
    Streamed = 2,
}

static PREFERENCE: AtomicU8 = AtomicU8::new(Preference::Auto as u8);

/// Sets it for all queues that are made from now on.
pub fn prefer(preference: Preference) {
    PREFERENCE.store(preference as u8, Ordering::Relaxed);
}

/// How one queue stores its payload.
#[derive(Debug)]
pub struct Stores {
    is_streaming: bool,
    /// Bursts up to the next that is watched.
    left: u32,
    /// From 0 (near) to [`EVIDENCE`] (far).
    evidence: u32,
    /// Samples that did not say near, since one that did, or a trial.
    doubts: u32,
    /// Bytes up to when a trial may be; until then its verdict stands, if there was one.
    rest: u64,
    verdict: Option<bool>,
    trial: Option<Trial>,
    /// The decision is not ours.
    is_fixed: bool,
    /// What is stored through the cache may be handed on.
    may_demote: bool,
}

/// How a burst is stored.
#[derive(Debug)]
pub struct Manner {
    /// Past the cache, while this lives; through it, without.
    pub streaming: Option<Streaming>,
    /// First lines may be handed on to the cache that all CPUs share ([`Window::demote`]), for a
    /// reader that is behind; one that keeps up gains nothing, and the writer loses. Not in a
    /// sample, which is to say what a line costs.
    ///
    /// [`Window::demote`]: crate::Window::demote
    pub demotes: bool,
    /// [`Stores::end`] wants to hear of it.
    pub watch: Option<Watch>,
}

/// When a burst that is watched began.
#[derive(Debug)]
pub struct Watch(Duration);

impl Default for Stores {
    fn default() -> Self {
        let preference = PREFERENCE.load(Ordering::Relaxed);
        Self::new(match preference {
            n if n == Preference::Cached as u8 => Preference::Cached,
            n if n == Preference::Streamed as u8 => Preference::Streamed,
            _ => Preference::Auto,
        })
    }
}

impl Stores {
    fn new(preference: Preference) -> Self {
        Self {
            is_streaming: preference == Preference::Streamed && is_possible(),
            left: PERIOD,
            evidence: 0,
            doubts: 0,
            rest: 0,
            verdict: None,
            trial: None,
            is_fixed: preference != Preference::Auto || !is_possible(),
            may_demote: preference == Preference::Auto && demote::is_possible(),
        }
    }

    /// Whether what is stored outside of a burst may be handed on; see [`Manner::demotes`].
    #[inline(always)]
    pub fn demotes(&self) -> bool {
        self.may_demote && !self.is_streaming
    }

    /// How the burst that begins is stored.
    #[inline(always)]
    pub fn begin(&mut self) -> Manner {
        self.left -= 1;
        if self.left == 0 {
            return self.watch();
        }
        let streaming = self.is_streaming.then(Streaming::new);
        Manner { streaming, demotes: self.demotes(), watch: None }
    }

    #[cold]
    #[inline(never)]
    fn watch(&mut self) -> Manner {
        let streams = match &self.trial {
            Some(trial) => trial.streams(),
            None => self.is_fixed && self.is_streaming,
        };
        self.left = self.period();
        let watch = (!self.is_fixed).then(|| Watch(monotonic()));
        let demotes = self.trial.is_some() && self.may_demote && !streams;
        Manner { streaming: streams.then(Streaming::new), demotes, watch }
    }

    fn period(&self) -> u32 {
        match (&self.trial, self.is_streaming) {
            (Some(_), _) => 1,
            (None, true) => PERIOD_STREAMED,
            (None, false) => PERIOD,
        }
    }

    /// A burst that was watched is stored: so many frames, of so many bytes together.
    #[cold]
    #[inline(never)]
    pub fn end(&mut self, watch: Watch, frames: usize, bytes: u64) {
        self.hear(watch.0, monotonic(), frames as u32, bytes);
    }

    fn hear(&mut self, began: Duration, now: Duration, frames: u32, bytes: u64) {
        match &mut self.trial {
            None => self.judge(now.saturating_sub(began), frames, bytes),
            Some(trial) => {
                if trial.hear(began, now, frames, bytes) {
                    self.verdict = trial.verdict();
                    self.trial = None;
                    (self.doubts, self.rest) = (0, REST);
                    if let Some(streams) = self.verdict {
                        self.is_streaming = streams;
                        self.evidence = if streams { EVIDENCE } else { 0 };
                    }
                }
            }
        }
        self.left = self.period();
    }

    fn judge(&mut self, took: Duration, frames: u32, bytes: u64) {
        self.rest = self.rest.saturating_sub(bytes * u64::from(self.period()));
        if bytes < BYTES_MIN {
            return;
        }
        let lines = bytes.div_ceil(64) as u32;
        let is_over = |of: Cost| took > BURST + of.line * lines + of.frame * frames;
        if !is_over(NEAR) {
            self.doubts = 0;
            self.evidence = self.evidence.saturating_sub(1);
        } else {
            self.doubts += 1;
            if self.doubts >= EVIDENCE && self.rest == 0 {
                self.trial = Some(Trial::default());
            }
            match self.verdict.filter(|_| self.rest > 0) {
                // It knows more than a sample, but takes one that agrees.
                Some(true) if is_over(FAR) => self.evidence = EVIDENCE.min(self.evidence + 1),
                Some(_) => return,
                None if is_over(FAR) => self.evidence = EVIDENCE.min(self.evidence + 1),
                None if !self.is_streaming => self.evidence = self.evidence.saturating_sub(1),
                None => {}
            }
        }
        match self.evidence {
            0 => {
                self.is_streaming = false;
                if self.verdict == Some(true) {
                    // What was tried before is of another place.
                    (self.verdict, self.rest) = (None, 0);
                }
            }
            EVIDENCE => self.is_streaming = true,
            _ => {}
        }
    }
}

/// Both manners in turns, the cache first.
#[derive(Debug)]
struct Trial {
    turn: u32,
    frames: u32,
    bytes: u64,
    /// Since when bytes of this turn count, and how many do not.
    since: Option<(Duration, u64)>,
    /// The best of each manner, in ns for a byte.
    best: [f64; 2],
}

impl Default for Trial {
    fn default() -> Self {
        Self { turn: 0, frames: 0, bytes: 0, since: None, best: [f64::INFINITY; 2] }
    }
}

impl Trial {
    fn streams(&self) -> bool {
        self.turn % 2 == 1
    }

    /// What lay in the ring when this turn began has left it.
    fn is_past_the_ring(&self) -> bool {
        self.bytes >= TURN_SKIPPED
            && (self.frames >= TURN_SKIPPED_FRAMES || self.bytes >= TURN_SKIPPED_MOST)
    }

    /// A burst of this turn is stored; true at the end of all turns.
    fn hear(&mut self, began: Duration, now: Duration, frames: u32, bytes: u64) -> bool {
        if self.since.is_none() && self.is_past_the_ring() {
            self.since = Some((began, self.bytes));
        }
        self.frames += frames;
        self.bytes += bytes;
        let Some((since, skipped)) = self.since else { return false };
        let counted = self.bytes - skipped;
        if counted < TURN_COUNTED {
            return false;
        }
        let took = now.saturating_sub(since).as_nanos() as f64 / counted as f64;
        let best = &mut self.best[usize::from(self.streams())];
        *best = best.min(took);
        (self.frames, self.bytes, self.since) = (0, 0, None);
        self.turn += 1;
        self.turn == 2 * TURNS
    }

    /// Whether to stream, if one manner has won.
    fn verdict(&self) -> Option<bool> {
        let [cached, streamed] = self.best;
        match (streamed < GAIN * cached, cached < GAIN * streamed) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}
