//! What the machine can do at all, and our share of it.

use serde::{Deserialize, Serialize};

use super::measured::{Case, Line};

/// From the section `limits`; what is missing was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes a second that a CPU copies within its second-level cache.
    pub(super) copy_cached: Option<f64>,
    /// The same with more than all caches hold.
    pub(super) copy_memory: Option<f64>,
    /// Nanoseconds that a cache line takes from CPU to CPU.
    pub(super) line: Option<f64>,
    /// The same while they shared a cache.
    pub(super) line_near: Option<f64>,
    /// The same while they did not.
    pub(super) line_far: Option<f64>,
    /// Nanoseconds of a system call.
    pub(super) call: Option<f64>,
    /// Nanoseconds until a sleeping thread runs.
    pub(super) wake_up: Option<f64>,
}

/// One of our figures, said in the limits of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Beside {
    pub(super) case: String,
    pub(super) who: String,
    /// Nanoseconds for one frame or object.
    pub(super) nanoseconds: f64,
    /// Of that, the share that one copy of its bytes would take; `None` of what has no bytes.
    pub(super) copy_share: Option<f64>,
    /// As many cache lines could go from CPU to CPU meanwhile.
    pub(super) lines: Option<f64>,
    /// As many system calls could be made meanwhile.
    pub(super) calls: Option<f64>,
    /// Share of a bare copy between the same CPUs, measured in turn; `None` where nobody makes one.
    pub(super) bare_share: Option<f64>,
}

/// The contender that does nothing but copy.
const BARE: &str = "memory limit";

impl Limits {
    /// The names are those of `bin/mqnet/src/bench/limits.rs`; a test holds them.
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

    /// What one frame or object of a case costs us, unless the case counts something else.
    pub(super) fn beside(&self, case: &Case) -> Option<Beside> {
        let ours = case.lines.first()?;
        let rate = ours.all?.median;
        let (units, bytes) = match case.unit.kind.as_str() {
            "frames" => (rate, case.unit.bytes.map(|bytes| bytes as f64)),
            "objects" => (rate, None),
            // A stream has no frames: one of the usual size stands for them.
            "bits" => (rate / 8.0 / 1500.0, Some(1500.0)),
            _ => return None,
        };
        if units <= 0.0 {
            return None;
        }
        let nanoseconds = 1e9 / units;
        let bare = format!(" / {BARE}");
        let bare = case.ratios.iter().find(|ratio| ratio.who.ends_with(&bare));
        Some(Beside {
            case: case.name.clone(),
            who: ours.who.clone(),
            nanoseconds,
            copy_share: self.copy_cached.zip(bytes).map(|(copy, b)| b / copy * 1e9 / nanoseconds),
            lines: self.line.map(|line| nanoseconds / line),
            calls: self.call.map(|call| nanoseconds / call),
            bare_share: bare.and_then(|ratio| Some(ratio.all?.median)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    // Goal: the names that are looked for are those that the program prints.
    #[test]
    fn limits_are_found_in_what_the_program_prints() {
        let limits = Limits::of(&fixture::cases("limits"));
        let Limits { copy_cached, copy_memory, line, call, wake_up, .. } = limits;
        for value in [copy_cached, copy_memory, line, call, wake_up] {
            assert!(value.is_some_and(|value| value > 0.0), "{limits:?}");
        }
    }

    // Goal: 10 M frames of 100 B a second are 100 ns each, and a tenth of a copy at 10 GB/s.
    #[test]
    fn shares_are_shares() {
        let limits = Limits {
            copy_cached: Some(10e9),
            line: Some(50.0),
            call: Some(200.0),
            ..Limits::default()
        };
        let case = fixture::case("x", "frames", Some(100), &[("mqnet", &[10e6])]);
        let beside = limits.beside(&case).unwrap();
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
        assert!((beside.nanoseconds - 100.0).abs() < 1e-9);
        assert!(near(beside.copy_share, 0.1) && near(beside.lines, 2.0));
        assert!(near(beside.calls, 0.5) && beside.bare_share.is_none());
        let count = fixture::case("x", "count", None, &[("mqnet", &[0.0])]);
        assert_eq!(limits.beside(&count), None);
    }

    // Goal: the bare copy is found where the program measures one.
    #[test]
    fn a_bare_copy_is_found() {
        let cases = fixture::cases("link");
        assert!(cases.iter().all(|case| {
            Limits::default().beside(case).unwrap().bare_share.is_some_and(|share| share > 0.0)
        }));
    }
}
