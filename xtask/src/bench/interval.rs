//! How sure a median is: an interval between two of the samples, by the binomial distribution.
//!
//! Each sample is below the true median with probability 1/2, whatever the samples are distributed
//! like. So the k-th smallest and the k-th largest enclose it unless fewer than k samples, or more
//! than n - k, are below it. No distribution is assumed, and nothing is drawn at random.

use serde::{Deserialize, Serialize};

/// Least probability with which an interval holds the true median, if there are samples enough.
pub(super) const CONFIDENCE: f64 = 0.95;

/// A series of samples in a few numbers.
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
    /// Probability that the interval holds the true median.
    pub(super) coverage: f64,
}

impl Figure {
    /// `None` of nothing, and of what is no number.
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

    /// Each value another way; `how` must keep their order.
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

    /// So few samples that even the extremes may not hold the median.
    pub(super) fn is_unsure(&self) -> bool {
        self.coverage < CONFIDENCE
    }
}

/// The largest rank whose interval is sure enough; 1, the extremes, if none is.
fn rank(n: usize) -> usize {
    let sure = (1..=n.div_ceil(2)).take_while(|&k| coverage(n, k) >= CONFIDENCE);
    sure.last().unwrap_or(1)
}

/// Probability that the median lies between the k-th smallest and the k-th largest of n samples.
fn coverage(n: usize, k: usize) -> f64 {
    let n_f = n as f64;
    // In logarithms: 2 to the power of minus n is no number for n above a thousand.
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

    /// Counts, of all ways in which n samples can fall below and above the median, those in which
    /// the k-th smallest is below it and the k-th largest above.
    fn by_counting(n: usize, k: usize) -> f64 {
        let holds = |fell: &u32| {
            let below = fell.count_ones() as usize;
            below >= k && n - below >= k
        };
        (0..1_u32 << n).filter(holds).count() as f64 / f64::from(1_u32 << n)
    }

    // Goal: the probability is that of a count of all cases.
    #[test]
    fn coverage_is_what_counting_says() {
        for n in 1..=16_usize {
            for k in 1..=n.div_ceil(2) {
                assert!((coverage(n, k) - by_counting(n, k)).abs() < 1e-12, "{n} {k}");
            }
        }
    }

    // Goal: well-known ranks (tables of the sign test): 6 samples are the least for 95 %.
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

    // Goal: in many experiments the interval holds the true median as often as it says, also when
    // the samples are far from normal.
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
        // Goal: the numbers are in order, the ends are samples, half of the samples is on either
        // side of the median, and the order in which they came does not matter.
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

    // Goal: nothing, and what is no number, has no median.
    #[test]
    fn nothing_has_no_figure() {
        assert_eq!(Figure::of(&[]), None);
        assert_eq!(Figure::of(&[1.0, f64::NAN]), None);
    }
}
