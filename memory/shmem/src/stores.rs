//! How payload is stored into memory that another CPU reads: through the cache, or past it.
//!
//! A store needs its cache line first. Where the reader's CPU is near (one third-level cache), that
//! is cheap, and the reader finds the line in a cache. Where it is far (another socket, or another
//! cluster of cores), the line comes from the reader's cache over there, and goes there again to be
//! read: two journeys for each line, and the writer waits for the first. Stores past the cache need
//! no line: the writer waits for nothing, and the reader reads memory. A link, in Mpps:
//!
//! | bytes | near, cached | near, streamed | far, cached | far, streamed |
//! |---|---|---|---|---|
//! | 64 | 122 | 72 | 15 | 67 |
//! | 1514 | 22 | 6.4 | 1.4 | 7.7 |
//! | 9000 | 4.0 | 1.1 | 0.24 | 1.2 |
//!
//! Where the CPUs are is measured, by what a line costs the writer (a *sample*: one burst through
//! the cache, timed). Where that says nothing for certain, both manners are tried in turns, and the
//! bytes that went tell (a *trial*). Rejected: to believe a topology, which a virtual machine does
//! not know, and which does not know where the peer runs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mqnet_sysio::clock::monotonic;

use crate::Streaming;
use crate::stream::is_possible;

/// What a burst may cost for each of its lines and frames.
#[derive(Clone, Copy, Debug)]
struct Cost {
    line: Duration,
    frame: Duration,
}

/// Below this, the reader is near: 1.5 to 2.5 ns for a line, and 5 to 10 for a frame's own work.
const NEAR: Cost = Cost { line: Duration::from_nanos(3), frame: Duration::from_nanos(12) };

/// Above this, it is far: 24 to 60 ns for a line, where reading from memory in order, which
/// streaming leaves to the reader, takes 4 to 8.
const FAR: Cost = Cost { line: Duration::from_nanos(12), frame: Duration::from_nanos(40) };

/// Bytes of a burst that say something.
const BYTES_MIN: u64 = 1024;

/// Bursts from one sample to the next while nothing is streamed.
const PERIOD: u32 = 64;

/// The same while all else is streamed: a sample may cost many times another burst.
const PERIOD_STREAMED: u32 = 512;

/// By so many more samples that speak for the other manner it is changed: one may have been
/// interrupted.
const EVIDENCE: u32 = 6;

/// Bursts in one turn of a trial, and bytes, at least.
const TURN: u32 = 64;
const TURN_BYTES: u64 = 32 << 10;

/// Turns of each manner, of which the quickest counts: others were interrupted, or waited for
/// traffic.
const TURNS: u32 = 3;

/// Streaming wins a trial with this part of the time of the cache, or less.
const GAIN: f64 = 0.85;

/// Bursts from one trial to the next: what its worse turns cost is about one in a hundred then.
const REST: u32 = 1 << 14;

/// Who decides, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Preference {
    /// What is measured.
    #[default]
    Auto = 0,
    /// The user: through the cache.
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
    /// Samples that were neither, since the last trial.
    unclear: u32,
    /// Bursts up to when a trial may be.
    rest: u32,
    trial: Option<Trial>,
    /// The decision is not ours.
    is_fixed: bool,
}

/// How a burst is stored.
#[derive(Debug)]
pub struct Manner {
    /// Past the cache, while this lives; through it, without.
    pub streaming: Option<Streaming>,
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
            unclear: 0,
            rest: 0,
            trial: None,
            is_fixed: preference != Preference::Auto || !is_possible(),
        }
    }

    /// How the burst that begins is stored.
    #[inline(always)]
    pub fn begin(&mut self) -> Manner {
        self.left -= 1;
        if self.left == 0 {
            return self.watch();
        }
        Manner { streaming: self.is_streaming.then(Streaming::new), watch: None }
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
        Manner { streaming: streams.then(Streaming::new), watch }
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
                if let Some(wins) = trial.hear(began, now, bytes) {
                    self.trial = None;
                    self.is_streaming = wins;
                    self.evidence = if wins { EVIDENCE } else { 0 };
                    (self.unclear, self.rest) = (0, REST);
                }
            }
        }
        self.left = self.period();
    }

    fn judge(&mut self, took: Duration, frames: u32, bytes: u64) {
        self.rest = self.rest.saturating_sub(self.period());
        if bytes < BYTES_MIN {
            return;
        }
        let lines = bytes.div_ceil(64) as u32;
        let cost = |of: Cost| of.line * lines + of.frame * frames;
        if took > cost(FAR) {
            self.evidence = EVIDENCE.min(self.evidence + 1);
        } else if took <= cost(NEAR) {
            self.evidence = self.evidence.saturating_sub(1);
        } else {
            self.unclear += 1;
            if self.unclear >= EVIDENCE && self.rest == 0 {
                self.trial = Some(Trial::default());
            }
            return;
        }
        match self.evidence {
            0 => self.is_streaming = false,
            EVIDENCE => self.is_streaming = true,
            _ => {}
        }
    }
}

/// Both manners in turns, the cache first.
#[derive(Debug)]
struct Trial {
    turn: u32,
    bursts: u32,
    bytes: u64,
    since: Duration,
    /// The best of each manner, in ns for a byte.
    best: [f64; 2],
}

impl Default for Trial {
    fn default() -> Self {
        let best = [f64::INFINITY; 2];
        Self { turn: 0, bursts: 0, bytes: 0, since: Duration::ZERO, best }
    }
}

impl Trial {
    fn streams(&self) -> bool {
        self.turn % 2 == 1
    }

    /// A burst of this turn is stored. At the end of all turns: whether streaming has won.
    fn hear(&mut self, began: Duration, now: Duration, bytes: u64) -> Option<bool> {
        if self.bursts == 0 {
            self.since = began;
        }
        self.bursts += 1;
        self.bytes += bytes;
        if self.bursts < TURN || self.bytes < TURN_BYTES {
            return None;
        }
        let took = now.saturating_sub(self.since).as_nanos() as f64 / self.bytes as f64;
        let best = &mut self.best[usize::from(self.streams())];
        *best = best.min(took);
        (self.bursts, self.bytes) = (0, 0);
        self.turn += 1;
        (self.turn == 2 * TURNS).then(|| self.best[1] < GAIN * self.best[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Bursts of 16 lines and one frame each, which take so long through the cache and past it;
    /// how many of the last 1000 were streamed.
    fn run(stores: &mut Stores, bursts: u32, took: [u64; 2]) -> usize {
        let mut now = Duration::from_secs(1);
        let mut streamed = Vec::new();
        for _ in 0..bursts {
            let Manner { streaming, watch } = stores.begin();
            let began = now;
            streamed.push(streaming.is_some());
            now += Duration::from_nanos(took[usize::from(streaming.is_some())]);
            if watch.is_some() {
                stores.hear(began, now, 1, KIB);
            }
        }
        streamed[streamed.len() - 1000..].iter().filter(|streamed| **streamed).count()
    }

    // Goal: who is near is written to through the cache, who is far past it, but for samples, and
    // who moves is followed.
    #[test]
    fn far_readers_are_streamed_to() {
        let mut stores = Stores::new(Preference::Auto);
        for _ in 0..2 {
            assert_eq!(run(&mut stores, 5000, [40, 900]), 0);
            assert!(run(&mut stores, 5000, [900, 40]) >= 997);
        }
    }

    // Goal: in between, the manner that moves more bytes stays, whichever the writer finds cheaper,
    // and is asked again.
    #[test]
    fn a_trial_decides_what_is_unclear() {
        for (took, streamed) in [([150, 100], 990..1001), ([150, 140], 0..1), ([150, 300], 0..1)] {
            let mut stores = Stores::new(Preference::Auto);
            assert!(streamed.contains(&run(&mut stores, 5000, took)), "{took:?}");
            // Nobody has to be sure forever.
            let other = [took[1], took[0]];
            run(&mut stores, 40 * REST, [160, other[1]]);
            assert_eq!(run(&mut stores, 2000, [160, other[1]]) > 900, other[1] < 130, "{took:?}");
        }
    }

    // Goal: one interrupted burst, or bursts that are too small to tell, change nothing.
    #[test]
    fn what_says_nothing_changes_nothing() {
        let mut stores = Stores::new(Preference::Auto);
        for n in 0..1000u32 {
            let took = if n % 2 == 0 { 1_000_000 } else { 40 };
            stores.hear(Duration::ZERO, Duration::from_nanos(took), 1, KIB);
        }
        stores.hear(Duration::ZERO, Duration::from_secs(1), 1, BYTES_MIN - 1);
        assert_eq!(run(&mut stores, 1000, [40, 40]), 0);
    }

    // Goal: where the decision is made, nothing is watched.
    #[test]
    fn what_is_fixed_stays() {
        let streamed = if is_possible() { 1000 } else { 0 };
        for (preference, streamed) in [(Preference::Streamed, streamed), (Preference::Cached, 0)] {
            for took in [[40, 900], [900, 40], [150, 100]] {
                assert_eq!(run(&mut Stores::new(preference), 5000, took), streamed);
            }
        }
    }
}
