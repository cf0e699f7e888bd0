//! Confidence interval of a median: between two of the samples, by the binomial distribution.
//!
//! Each sample is below the true median with probability 1/2, for any distribution of the samples.
//! So the k-th smallest and the k-th largest sample enclose the median unless fewer than k samples,
//! or more than n - k, are below it. No distribution is assumed, and no random numbers are used.

use serde::{Deserialize, Serialize};

/// Minimum probability with which an interval encloses the true median, if there are enough
/// samples.
pub(super) const CONFIDENCE: f64 = 0.95;

/// Summary of a series of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) samples: usize,
    pub(super) min: f64,
    /// Lower end of the interval of the median.
    pub(super) low: f64,
    pub(super) median: f64,
    /// Upper end of the interval of the median.
    pub(super) high: f64,
    pub(super) max: f64,
    /// Probability that the interval encloses the true median.
    pub(super) coverage: f64,
}

impl Figure {
    /// Summary of `values`; `None` if there are no values, or if one is not finite.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let k = rank(n);
        Some(Self {
            samples: n,
            min: sorted[0],
            low: sorted[k - 1],
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            high: sorted[n - k],
            max: sorted[n - 1],
            coverage: coverage(n, k),
        })
    }

    /// Applies a monotonically increasing function to each value.
    pub(super) fn map(self, how: impl Fn(f64) -> f64) -> Self {
        Self {
            min: how(self.min),
            low: how(self.low),
            median: how(self.median),
            high: how(self.high),
            max: how(self.max),
            ..self
        }
    }

    /// True if the samples are so few that even their extremes enclose the median with a
    /// probability below [`CONFIDENCE`].
    pub(super) fn is_unsure(&self) -> bool {
        self.coverage < CONFIDENCE
    }
}

/// Largest rank with a sufficient coverage, or 1 (the extremes) if no rank has it.
fn rank(n: usize) -> usize {
    let sure = (1..=n.div_ceil(2)).take_while(|&k| coverage(n, k) >= CONFIDENCE);
    sure.last().unwrap_or(1)
}

/// Probability that the median is between the k-th smallest and the k-th largest of n samples.
fn coverage(n: usize, k: usize) -> f64 {
    let n_f = n as f64;
    // Logarithms are used, because 2 to the power of -n underflows for n above a thousand.
    let mut log = -n_f * std::f64::consts::LN_2;
    let mut outside = 0.0;
    for below in 0..k {
        outside += log.exp();
        log += ((n_f - below as f64) / (below as f64 + 1.0)).ln();
    }
    (1.0 - 2.0 * outside).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Share of the ways to place n samples below or above the median in which the k-th smallest is
    /// below and the k-th largest above.
    fn by_counting(n: usize, k: usize) -> f64 {
        let holds = |fell: &u32| {
            let below = fell.count_ones() as usize;
            below >= k && n - below >= k
        };
        (0..1_u32 << n).filter(holds).count() as f64 / f64::from(1_u32 << n)
    }

    // Goal: the computed probability equals the share that `by_counting` finds.
    #[test]
    fn coverage_matches_enumeration() {
        for n in 1..=16_usize {
            for k in 1..=n.div_ceil(2) {
                assert!((coverage(n, k) - by_counting(n, k)).abs() < 1e-12, "{n} {k}");
            }
        }
    }

    // Goal: ranks equal those in tables of the sign test; 6 samples are the minimum for 95 %.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        let known = [(1, 1), (5, 1), (6, 1), (9, 2), (10, 2), (12, 3), (20, 6), (100, 40)];
        for (n, k) in known {
            assert_eq!(rank(n), k, "{n}");
        }
        assert!(Figure::of(&[1.0; 5]).unwrap().is_unsure());
        assert!(!Figure::of(&[1.0; 6]).unwrap().is_unsure());
        assert!(coverage(10_000, rank(10_000)) >= CONFIDENCE);
    }

    // Goal: in many experiments the interval encloses the true median with the stated probability,
    // also if the samples are not normally distributed.
    #[test]
    fn intervals_hold_the_median_of_a_skewed_distribution() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let held = (0..4000).filter(|_| {
            let values: Vec<f64> = (0..10).map(|_| -(1.0 - uniform()).ln()).collect();
            let figure = Figure::of(&values).unwrap();
            (figure.low..=figure.high).contains(&std::f64::consts::LN_2)
        });
        let share = held.count() as f64 / 4000.0;
        assert!((share - coverage(10, 2)).abs() < 0.01, "{share}");
    }

    proptest! {
        // Goal: the numbers are ordered, the ends of the interval are samples, at most half of the
        // samples are on either side of the median, and the order of the samples does not matter.
        #[test]
        fn figures_are_in_order(values in prop::collection::vec(-1e9..1e9, 1..60)) {
            let figure = Figure::of(&values).unwrap();
            let order = [figure.min, figure.low, figure.median, figure.high, figure.max];
            prop_assert!(order.is_sorted(), "{:?}", order);
            prop_assert!(values.contains(&figure.low) && values.contains(&figure.high));
            let below = values.iter().filter(|&&value| value < figure.median).count();
            let above = values.iter().filter(|&&value| value > figure.median).count();
            prop_assert!(below.max(above) <= values.len() / 2);
            let backwards: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(Figure::of(&backwards), Some(figure));
        }
    }

    // Goal: an empty list, and a list with a value that is not a number, have no figure.
    #[test]
    fn nothing_has_no_figure() {
        assert_eq!(Figure::of(&[]), None);
        assert_eq!(Figure::of(&[1.0, f64::NAN]), None);
    }
}
