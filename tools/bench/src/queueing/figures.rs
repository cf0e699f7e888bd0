//! Statistics of measured values.

/// Smallest value with at least `share` of all values at or below it (nearest rank); `None` for an
/// empty list.
pub(super) fn percentile(values: &[u64], share: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Jain's index: 1 for equal shares, 1/n if one of n flows has everything, 0 if all shares are 0.
pub(super) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a percentile is one of the values, by nearest rank, in any order of the input.
    #[test]
    fn percentiles_are_values() {
        let values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(percentile(&values, 0.5), Some(100));
        assert_eq!(percentile(&values, 0.99), Some(198));
        assert_eq!(percentile(&values, 1.0), Some(200));
        assert_eq!(percentile(&values, 0.0), Some(1));
        assert_eq!(percentile(&[7], 0.99), Some(7));
        assert_eq!(percentile(&[], 0.99), None);
    }

    // Goal: the index is 1 for equal shares, 1/n if one flow has everything, and 0 without traffic.
    #[test]
    fn jain_knows_the_extremes() {
        assert!((jain(&[5; 8]) - 1.0).abs() < 1e-12);
        assert!((jain(&[0, 0, 9, 0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1, 1, 1, 1, 1, 1, 1, 10]) - 289.0 / 856.0).abs() < 1e-12);
        assert!(jain(&[0; 8]).abs() < 1e-12);
    }
}
