//! Number of passed tests, and reasons of skips, from the log of a step.

use std::collections::BTreeSet;

/// Sums of one step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Distinct reasons of skips.
    pub(super) skips: BTreeSet<String>,
}

/// Parses the output of cargo's test harness and the `SKIP: reason` lines of the testkit.
pub(super) fn read(log: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in log.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            outcome.passed += count(result, " passed");
            outcome.failed += count(result, " failed");
        }
        // `SKIP:` may follow the harness's `test NAME ... ` on the same line.
        let skip = line.strip_prefix("SKIP: ").or_else(|| {
            line.strip_prefix("test ").and_then(|rest| Some(rest.split_once("... SKIP: ")?.1))
        });
        if let Some(reason) = skip {
            outcome.skips.insert(reason.trim().to_owned());
        }
    }
    outcome
}

/// Number before `unit` in `ok. 3 passed; 0 failed; ...`; 0 if there is none.
fn count(result: &str, unit: &str) -> usize {
    let before = result.split_once(unit).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let outcome = read(
            "test a ... ok\ntest result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\n\
             test result: FAILED. 3 passed; 2 failed; 1 ignored\ntest result is not one",
        );
        assert_eq!((outcome.passed, outcome.failed), (15, 2));
        assert!(outcome.skips.is_empty());
    }

    #[test]
    fn skips_are_found_once_each() {
        let outcome = read(
            "---- a stdout ----\nSKIP: no iperf3\nSKIP: no iperf3\n\
             test b ... SKIP: not root\nnot a SKIP: this\n",
        );
        let skips: Vec<&str> = outcome.skips.iter().map(String::as_str).collect();
        assert_eq!(skips, ["no iperf3", "not root"]);
    }
}
