//! Limits of the machine, and mqnet's share of them.

use serde::{Deserialize, Serialize};

use super::measured::{Case, Line};

/// Figures of the section `limits`; `None` for a figure that was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes per second that a CPU copies within its second-level cache.
    pub(super) copy_cached: Option<f64>,
    /// Bytes per second of a copy larger than all caches.
    pub(super) copy_memory: Option<f64>,
    /// Nanoseconds to move a cache line from CPU to CPU.
    pub(super) line: Option<f64>,
    /// Nanoseconds to move a cache line between CPUs with a shared cache.
    pub(super) line_near: Option<f64>,
    /// Nanoseconds to move a cache line between CPUs without a shared cache.
    pub(super) line_far: Option<f64>,
    /// Nanoseconds of a system call.
    pub(super) call: Option<f64>,
    /// Nanoseconds from the wake-up of a thread until it runs.
    pub(super) wake_up: Option<f64>,
}

/// Figure of mqnet in relation to the limits of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MachineShare {
    pub(super) case: String,
    pub(super) who: String,
    /// Nanoseconds for one frame or object.
    pub(super) nanoseconds: f64,
    /// Share of this time for one copy of the bytes within a cache. `None` if the number of bytes
    /// is unknown or the copy was not measured.
    pub(super) copy_share: Option<f64>,
    /// Share of this time for one copy of the bytes through memory.
    pub(super) memory_share: Option<f64>,
    /// Number of cache lines that could move from CPU to CPU in this time.
    pub(super) lines: Option<f64>,
    /// Number of system calls in this time.
    pub(super) calls: Option<f64>,
    /// Number of consecutive wake-ups of a thread in this time.
    pub(super) wake_ups: Option<f64>,
    /// Median of the ratio to a bare copy between the same CPUs, measured in alternating slices;
    /// `None` if not measured.
    pub(super) bare_share: Option<f64>,
}

/// Name of the contender that only copies.
const BARE: &str = "memory limit";
/// Bytes of a frame for the conversion of streams.
const USUAL: f64 = 1500.0;

/// Line of mqnet: the first name that starts with `mqnet`, otherwise the first that does not start
/// with `tail drop` (a reference).
fn ours(case: &Case) -> Option<&Line> {
    let named = case.lines.iter().find(|line| line.who.starts_with("mqnet"));
    named.or_else(|| case.lines.iter().find(|line| !line.who.starts_with("tail drop")))
}

impl Limits {
    /// Reads the limits from the cases named in `tools/bench/src/limits.rs`; a test compares the
    /// names.
    pub(super) fn of(cases: &[Case]) -> Self {
        let line = |name: &str| -> Option<&Line> {
            cases.iter().find(|case| case.name.starts_with(name))?.lines.first()
        };
        let median = |name: &str| Some(line(name)?.all?.median);
        let cache_line = "cache line";
        Self {
            copy_cached: median("memory copy within"),
            copy_memory: median("memory copy, larger"),
            line: median(cache_line),
            line_near: line(cache_line).and_then(|line| Some(line.near?.median)),
            line_far: line(cache_line).and_then(|line| Some(line.far?.median)),
            call: median("system call"),
            wake_up: median("wake-up"),
        }
    }

    /// Cost of one frame or object of a case; `None` if the case's unit has no such cost, or if
    /// there is no figure of mqnet.
    pub(super) fn comparison(&self, case: &Case) -> Option<MachineShare> {
        let ours = ours(case)?;
        let value = ours.all?.median;
        let (nanoseconds, bytes) = match case.unit.kind.as_str() {
            "frames" => (1e9 / value, case.unit.bytes.map(|bytes| bytes as f64)),
            "objects" => (1e9 / value, None),
            // A stream is converted to frames of [`USUAL`] bytes.
            "bits" => (1e9 / (value / 8.0 / USUAL), Some(USUAL)),
            "cpu-per-gigabit" => (value * 8.0 * USUAL, Some(USUAL)),
            "nanoseconds" | "latency" | "delay" => (value, None),
            _ => return None,
        };
        if !nanoseconds.is_finite() || nanoseconds <= 0.0 {
            return None;
        }
        let copy =
            |rate: Option<f64>| rate.zip(bytes).map(|(rate, b)| b / rate * 1e9 / nanoseconds);
        let bare = format!(" / {BARE}");
        let bare = case.ratios.iter().find(|ratio| ratio.who.ends_with(&bare));
        Some(MachineShare {
            case: case.name.clone(),
            who: ours.who.clone(),
            nanoseconds,
            copy_share: copy(self.copy_cached),
            memory_share: copy(self.copy_memory),
            lines: self.line.map(|line| nanoseconds / line),
            calls: self.call.map(|call| nanoseconds / call),
            wake_ups: self.wake_up.map(|wake_up| nanoseconds / wake_up),
            bare_share: bare.and_then(|ratio| Some(ratio.all?.median)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    // Goal: the limits are found under the names that the program prints.
    #[test]
    fn limits_are_found_in_what_the_program_prints() {
        let limits = Limits::of(&fixture::cases("limits"));
        let Limits { copy_cached, copy_memory, line, call, wake_up, .. } = limits;
        for value in [copy_cached, copy_memory, line, call, wake_up] {
            assert!(value.is_some_and(|value| value > 0.0), "{limits:?}");
        }
    }

    // Goal: 10 M frames of 100 B per second are 100 ns each, and a tenth of a copy at 10 GB/s.
    #[test]
    fn shares_are_shares() {
        let limits = Limits {
            copy_cached: Some(10e9),
            copy_memory: Some(4e9),
            line: Some(50.0),
            call: Some(200.0),
            wake_up: Some(10e3),
            ..Limits::default()
        };
        let case = fixture::case("x", "frames", Some(100), &[("mqnet", &[10e6])]);
        let row = limits.comparison(&case).unwrap();
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
        assert!((row.nanoseconds - 100.0).abs() < 1e-9);
        assert!(near(row.copy_share, 0.1) && near(row.lines, 2.0));
        assert!(near(row.calls, 0.5) && row.bare_share.is_none());
        assert!(near(row.memory_share, 0.25));
        let count = fixture::case("x", "count", None, &[("mqnet", &[0.0])]);
        assert_eq!(limits.comparison(&count), None);
        let latency = fixture::case("x", "latency", None, &[("mqnet", &[20e3])]);
        let row = limits.comparison(&latency).unwrap();
        assert!(near(row.wake_ups, 2.0) && row.copy_share.is_none());
        // A gigabit is 83333 frames of 1500 B.
        let cost = fixture::case("x", "cpu-per-gigabit", None, &[("mqnet", &[0.1])]);
        let row = limits.comparison(&cost).unwrap();
        assert!((row.nanoseconds - 1200.0).abs() < 1e-9);
        assert!(near(row.copy_share, 0.125));
    }

    // Goal: the limits are compared with the figure of mqnet, not with a reference.
    #[test]
    fn ours_is_found() {
        let of = |contenders: &[(&str, &[f64])]| {
            let case = fixture::case("x", "frames", Some(64), contenders);
            Limits::default().comparison(&case).unwrap().who
        };
        let one = &[1e6][..];
        assert_eq!(of(&[("tail drop, spinning", one), ("backpressure", one)]), "backpressure");
        assert_eq!(of(&[("relay", one), ("mqnet", one)]), "mqnet");
        assert_eq!(of(&[("64 channels", one), ("1 channel", one)]), "64 channels");
    }

    // Goal: the ratio to a bare copy is found in every case of the section `link`.
    #[test]
    fn a_bare_copy_is_found() {
        let cases = fixture::cases("link");
        assert!(cases.iter().all(|case| {
            Limits::default().comparison(case).unwrap().bare_share.is_some_and(|share| share > 0.0)
        }));
    }
}
