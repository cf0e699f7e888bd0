//! Selection of cached or non-temporal stores for payload that another CPU reads.
//!
//! A cached store must obtain its line first. With a reader on the same last-level cache (*near*)
//! the writer obtains it fast, and the reader finds the line in a cache. With a reader on another
//! last-level cache (*far*: another socket or core cluster), each line moves from the reader's
//! cache and back again. The writer waits for the first transfer. Non-temporal stores need no line:
//! the writer does not wait, and the reader loads from memory. Near readers are faster with cached
//! stores, far ones with non-temporal stores, by factors of 2 to 5
//! (book/src/measurements/findings.md; `mqnet-bench link` with `MQNET_STORES=cached` and
//! `streamed`).
//!
//! The distance is measured by the writer's cost per line (a *sample*: one timed burst with cached
//! stores). A sample cannot separate cache misses on the source from those on the destination, and
//! does not include the reader's cost. So while samples do not show *near*, both modes are
//! occasionally compared in alternating rounds by their throughput (a *trial*). If a trial has no
//! winner, because the offered load is below the throughput of either mode, the samples decide.
//! Rejected: the CPU topology, which is unknown in a virtual machine, and does not include the
//! location of the peer.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mqnet_rings::demote;
use mqnet_sysio::clock::monotonic;

use crate::Streaming;
use crate::stream::is_possible;

/// Cost limit of a burst, per line and per frame.
#[derive(Clone, Copy, Debug)]
struct Cost {
    line: Duration,
    frame: Duration,
}

/// Fixed cost of a burst: clock reads, and cold code after a pause.
const BURST: Duration = Duration::from_nanos(200);

/// Limit of a near reader: above the typical cost of a line and of a frame's own processing.
const NEAR: Cost = Cost { line: Duration::from_nanos(3), frame: Duration::from_nanos(12) };

/// Lower limit of a far reader: above the reader's time for sequential loads from memory, which
/// non-temporal stores cause.
const FAR: Cost = Cost { line: Duration::from_nanos(12), frame: Duration::from_nanos(40) };

/// Minimum size of a burst that counts as a sample.
const BYTES_MIN: u64 = 2048;

/// Bursts between samples with cached stores.
const PERIOD: u32 = 64;

/// Bursts between samples with non-temporal stores: a sample may take many times as long as another
/// burst.
const PERIOD_STREAMED: u32 = 512;

/// Samples required to change the mode: a single sample may have been interrupted.
const EVIDENCE: u32 = 6;

/// Bytes that are ignored at the start of a round of a trial. Frames in a full ring were stored in
/// the previous round, and determine the rate. The limit covers the ring of `ntb:` in bytes, and
/// descriptor rings in frames, up to a maximum of bytes.
const ROUND_SKIPPED: u64 = 512 << 10;
/// Frames that are ignored; see [`ROUND_SKIPPED`].
const ROUND_SKIPPED_FRAMES: u32 = 1024;
/// Maximum of ignored bytes; see [`ROUND_SKIPPED`].
const ROUND_SKIPPED_MOST: u64 = 2 << 20;

/// Bytes counted per round.
const ROUND_COUNTED: u64 = 256 << 10;

/// Rounds per mode. Only the fastest counts: others were interrupted, or waited for traffic.
const ROUNDS: u32 = 3;

/// A mode wins a trial with at most this fraction of the other mode's time.
const GAIN: f64 = 0.85;

/// Approximate number of bytes between trials: the slower rounds are then one percent of the
/// traffic.
const TRIAL_INTERVAL: u64 = 1 << 30;

/// Selection of the store mode for this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Preference {
    /// Selection by measurement.
    #[default]
    Auto = 0,
    /// Forced: cached stores, without cache-line demotion.
    Cached = 1,
    /// Forced: non-temporal stores, if the CPU supports them.
    Streamed = 2,
}

static PREFERENCE: AtomicU8 = AtomicU8::new(Preference::Auto as u8);

/// Sets the preference for all queues created from now on.
pub fn prefer(preference: Preference) {
    PREFERENCE.store(preference as u8, Ordering::Relaxed);
}

/// Store mode of one queue.
#[derive(Debug)]
pub struct Stores {
    is_streaming: bool,
    /// Bursts until the next sample.
    left: u32,
    /// Evidence from 0 (near) to [`EVIDENCE`] (far).
    evidence: u32,
    /// Number of samples that do not show a near reader, since the last sample that does, or since
    /// the last trial.
    doubts: u32,
    /// Bytes until the next trial is allowed. Until then the last verdict holds, if there was one.
    until_trial: u64,
    verdict: Option<bool>,
    trial: Option<Trial>,
    /// True if the mode is forced.
    is_fixed: bool,
    /// True if cached lines may be demoted.
    may_demote: bool,
}

/// Store mode of one burst.
#[derive(Debug)]
pub struct StoreMode {
    /// Non-temporal stores while this value exists, or `None` for cached stores.
    pub streaming: Option<Streaming>,
    /// True if the first lines may be demoted ([`Window::demote`]), for a reader that lags. For a
    /// reader that does not lag, demotion only takes time of the writer. False in a sample, which
    /// measures the cost of lines.
    ///
    /// [`Window::demote`]: crate::Window::demote
    pub demotes: bool,
    /// Start time of a measured burst, to be passed to [`Stores::end`].
    pub watch: Option<Watch>,
}

/// Start time of a measured burst.
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
            until_trial: 0,
            verdict: None,
            trial: None,
            is_fixed: preference != Preference::Auto || !is_possible(),
            may_demote: preference == Preference::Auto && demote::is_possible(),
        }
    }

    /// True if stores outside a burst may be demoted; see [`StoreMode::demotes`].
    #[inline(always)]
    pub fn demotes(&self) -> bool {
        self.may_demote && !self.is_streaming
    }

    /// Returns the store mode of the burst that begins.
    #[inline(always)]
    pub fn begin(&mut self) -> StoreMode {
        self.left -= 1;
        if self.left == 0 {
            return self.watch();
        }
        let streaming = self.is_streaming.then(Streaming::new);
        StoreMode { streaming, demotes: self.demotes(), watch: None }
    }

    #[cold]
    #[inline(never)]
    fn watch(&mut self) -> StoreMode {
        let streams = match &self.trial {
            Some(trial) => trial.streams(),
            None => self.is_fixed && self.is_streaming,
        };
        self.left = self.period();
        let watch = (!self.is_fixed).then(|| Watch(monotonic()));
        let demotes = self.trial.is_some() && self.may_demote && !streams;
        StoreMode { streaming: streams.then(Streaming::new), demotes, watch }
    }

    fn period(&self) -> u32 {
        match (&self.trial, self.is_streaming) {
            (Some(_), _) => 1,
            (None, true) => PERIOD_STREAMED,
            (None, false) => PERIOD,
        }
    }

    /// Records a measured burst after its stores: number of frames, and their total bytes.
    #[cold]
    #[inline(never)]
    pub fn end(&mut self, watch: Watch, frames: usize, bytes: u64) {
        self.record(watch.0, monotonic(), frames as u32, bytes);
    }

    fn record(&mut self, began: Duration, now: Duration, frames: u32, bytes: u64) {
        match &mut self.trial {
            None => self.evaluate(now.saturating_sub(began), frames, bytes),
            Some(trial) => {
                if trial.record(began, now, frames, bytes) {
                    self.verdict = trial.verdict();
                    self.trial = None;
                    (self.doubts, self.until_trial) = (0, TRIAL_INTERVAL);
                    if let Some(streams) = self.verdict {
                        self.is_streaming = streams;
                        self.evidence = if streams { EVIDENCE } else { 0 };
                    }
                }
            }
        }
        self.left = self.period();
    }

    fn evaluate(&mut self, took: Duration, frames: u32, bytes: u64) {
        self.until_trial = self.until_trial.saturating_sub(bytes * u64::from(self.period()));
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
            if self.doubts >= EVIDENCE && self.until_trial == 0 {
                self.trial = Some(Trial::default());
            }
            match self.verdict.filter(|_| self.until_trial > 0) {
                // The verdict outweighs one sample, but not many samples that agree.
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
                    // The previous trial was for another reader location.
                    (self.verdict, self.until_trial) = (None, 0);
                }
            }
            EVIDENCE => self.is_streaming = true,
            _ => {}
        }
    }
}

/// Trial: both modes in alternating rounds, cached first.
#[derive(Debug)]
struct Trial {
    round: u32,
    frames: u32,
    bytes: u64,
    /// Start of the counted part of this round, and the number of bytes before it.
    since: Option<(Duration, u64)>,
    /// Best time of each mode, in ns per byte.
    best: [f64; 2],
}

impl Default for Trial {
    fn default() -> Self {
        Self { round: 0, frames: 0, bytes: 0, since: None, best: [f64::INFINITY; 2] }
    }
}

impl Trial {
    fn streams(&self) -> bool {
        self.round % 2 == 1
    }

    /// True if frames of the previous round have left the ring.
    fn has_drained_the_ring(&self) -> bool {
        self.bytes >= ROUND_SKIPPED
            && (self.frames >= ROUND_SKIPPED_FRAMES || self.bytes >= ROUND_SKIPPED_MOST)
    }

    /// Records a burst of this round. Returns true after the last round.
    fn record(&mut self, began: Duration, now: Duration, frames: u32, bytes: u64) -> bool {
        if self.since.is_none() && self.has_drained_the_ring() {
            self.since = Some((began, self.bytes));
        }
        self.frames += frames;
        self.bytes += bytes;
        let Some((since, skipped)) = self.since else { return false };
        let counted = self.bytes - skipped;
        if counted < ROUND_COUNTED {
            return false;
        }
        let took = now.saturating_sub(since).as_nanos() as f64 / counted as f64;
        let best = &mut self.best[usize::from(self.streams())];
        *best = best.min(took);
        (self.frames, self.bytes, self.since) = (0, 0, None);
        self.round += 1;
        self.round == 2 * ROUNDS
    }

    /// True if non-temporal stores have won, false if cached stores have, or `None` without a
    /// winner.
    fn verdict(&self) -> Option<bool> {
        let [cached, streamed] = self.best;
        match (streamed < GAIN * cached, cached < GAIN * streamed) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}
