//! Universal scalability law, fitted by least squares.
//!
//! The throughput of N workers is `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`.
//! `lambda` is the rate of one worker, `sigma` the serial share of the work, and `kappa` the
//! coherency cost of each pair of workers. `N / X` is linear in `1 / lambda`, `sigma / lambda` and
//! `kappa / lambda`, so that a linear fit suffices.

use serde::Serialize;

/// Universal scalability law with fitted parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Usl {
    /// Rate of one worker alone, per second.
    pub(super) lambda: f64,
    /// Serial share; 0 unless at least two numbers of workers were measured.
    pub(super) sigma: f64,
    /// Cost of each pair; 0 unless at least three numbers of workers were measured.
    pub(super) kappa: f64,
}

impl Usl {
    /// Rate of `workers` together.
    pub(super) fn at(&self, workers: f64) -> f64 {
        let others = workers - 1.0;
        self.lambda * workers / (1.0 + self.sigma * others + self.kappa * workers * others)
    }

    /// Fits points (workers, rate) with rates above 0. A term that would be negative is omitted; a
    /// term that the points do not determine is 0.
    pub(super) fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let mut numbers: Vec<f64> = points.iter().map(|&(n, _)| n).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let known = numbers.len().min(3);
        let shapes: &[&[usize]] = &[&[0, 1, 2], &[0, 1], &[0, 2], &[0]];
        let possible = shapes.iter().filter(|shape| match known {
            0 => false,
            1 => shape.len() == 1,
            // Two points determine two parameters; the serial share is the more likely second one.
            2 => **shape == [0] || **shape == [0, 1],
            _ => true,
        });
        let fits = possible.filter_map(|shape| fit_shape(points, shape));
        fits.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(law, _)| law)
    }
}

/// Terms of `N / X`.
fn terms(n: f64) -> [f64; 3] {
    [1.0, n - 1.0, n * (n - 1.0)]
}

/// Model with only these terms, and the sum of its squared errors; `None` without a solution, or
/// with a negative term.
fn fit_shape(points: &[(f64, f64)], shape: &[usize]) -> Option<(Usl, f64)> {
    // Relative errors count: divided by its own value, each point has the same weight.
    let row = |&(n, rate): &(f64, f64)| {
        let cost = n / rate;
        shape.iter().map(|&at| terms(n)[at] / cost).collect::<Vec<f64>>()
    };
    let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
    let found = least_squares(&rows, &vec![1.0; rows.len()])?;
    let mut all = [0.0; 3];
    shape.iter().zip(&found).for_each(|(&at, &value)| all[at] = value);
    if all[0] <= 0.0 || all.iter().any(|&value| value < 0.0) {
        return None;
    }
    let error = |row: &Vec<f64>| {
        let said: f64 = row.iter().zip(&found).map(|(a, x)| a * x).sum();
        (said - 1.0).powi(2)
    };
    let law = Usl { lambda: 1.0 / all[0], sigma: all[1] / all[0], kappa: all[2] / all[0] };
    Some((law, rows.iter().map(error).sum()))
}

/// Least-squares solution `x` of `rows x = values`; `None` if the rows do not determine it.
pub(super) fn least_squares(rows: &[Vec<f64>], values: &[f64]) -> Option<Vec<f64>> {
    let n = rows.first()?.len();
    let sum = |f: &dyn Fn(usize) -> f64| (0..rows.len()).map(f).sum::<f64>();
    // The normal equations, with their right side in the last column.
    let mut m: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let mut row: Vec<f64> = (0..n).map(|j| sum(&|k| rows[k][i] * rows[k][j])).collect();
            row.push(sum(&|k| rows[k][i] * values[k]));
            row
        })
        .collect();
    for at in 0..n {
        let best = (at..n).max_by(|&a, &b| m[a][at].abs().total_cmp(&m[b][at].abs()))?;
        m.swap(at, best);
        let scale = m[at][at];
        if scale.abs() < f64::MIN_POSITIVE {
            return None;
        }
        let pivot: Vec<f64> = m[at].iter().map(|value| value / scale).collect();
        for (other, row) in m.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at];
            debug_assert_ne!(other, at);
            row.iter_mut().zip(&pivot).for_each(|(value, p)| *value -= factor * p);
        }
        m[at] = pivot;
    }
    let solved: Vec<f64> = m.iter().map(|row| row[n]).collect();
    solved.iter().all(|value| value.is_finite()).then_some(solved)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
    }

    proptest! {
        // Goal: the parameters of a model are recovered from its own points, for all parameters.
        #[test]
        fn a_law_is_found_again(
            lambda in 1e3f64..1e9, sigma in 0.0f64..0.5, kappa in 0.0f64..0.05,
            points in 3usize..12,
        ) {
            let law = Usl { lambda, sigma, kappa };
            let made: Vec<(f64, f64)> =
                (1..=points).map(|n| (n as f64, law.at(n as f64))).collect();
            let found = Usl::fit(&made).unwrap();
            prop_assert!(close(found.lambda / lambda, 1.0), "{found:?}");
            prop_assert!(close(found.sigma, sigma) && close(found.kappa, kappa), "{found:?}");
        }

        // Goal: noise gives no impossible model: no term is ever below 0, and the model deviates
        // from the points by no more than the noise.
        #[test]
        fn noise_makes_no_impossible_law(
            lambda in 1e3f64..1e9, sigma in 0.0f64..0.3,
            noise in prop::collection::vec(0.95f64..1.05, 2..10),
        ) {
            let law = Usl { lambda, sigma, kappa: 0.0 };
            let made: Vec<(f64, f64)> = noise
                .iter()
                .enumerate()
                .map(|(at, noise)| (1.0 + at as f64, law.at(1.0 + at as f64) * noise))
                .collect();
            let found = Usl::fit(&made).unwrap();
            prop_assert!(found.lambda > 0.0 && found.sigma >= 0.0 && found.kappa >= 0.0);
            for (n, rate) in made {
                prop_assert!((found.at(n) / rate - 1.0).abs() < 0.2, "{found:?} {n} {rate}");
            }
        }
    }

    // Goal: parameters that few points do not determine are 0: one point determines the rate of one
    // worker, two also the serial share; a superlinear gain is not modelled.
    #[test]
    fn few_points_tell_little() {
        assert_eq!(Usl::fit(&[]), None);
        assert_eq!(Usl::fit(&[(1.0, 5.0)]).unwrap(), Usl { lambda: 5.0, sigma: 0.0, kappa: 0.0 });
        let two = Usl::fit(&[(1.0, 10.0), (2.0, 16.0)]).unwrap();
        assert!(close(two.lambda, 10.0) && close(two.sigma, 0.25) && two.kappa == 0.0, "{two:?}");
        let fast = Usl::fit(&[(1.0, 10.0), (2.0, 22.0)]).unwrap();
        assert!(fast.sigma == 0.0 && fast.lambda > 10.0 && fast.lambda < 11.0, "{fast:?}");
    }

    // Goal: a straight line is found; points that do not determine a line are rejected.
    #[test]
    fn lines_are_fitted() {
        let rows: Vec<Vec<f64>> = (0..5).map(|x| vec![1.0, f64::from(x)]).collect();
        let values: Vec<f64> = (0..5).map(|x| 3.0 + 2.0 * f64::from(x)).collect();
        let line = least_squares(&rows, &values).unwrap();
        assert!(close(line[0], 3.0) && close(line[1], 2.0), "{line:?}");
        assert_eq!(least_squares(&rows[..1], &values[..1]), None);
        assert_eq!(least_squares(&[], &[]), None);
    }
}
