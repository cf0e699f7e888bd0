//! Statistics of series of samples: order statistics, overall and by distance class.
//!
//! A hypervisor may move two virtual CPUs under one cache or apart many times per second. Every
//! result across CPUs then changes by a large factor. Therefore each sample contains the distance
//! measured around it, and samples are compared within their class, near or far.

use serde::Serialize;

/// Nanoseconds of a one-way cache-line transfer below which two CPUs are *near*: they share a
/// last-level cache.
pub(super) const NEAR_NS: f64 = 100.0;

/// Distance class of the two CPUs around a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    /// The CPUs shared a last-level cache in all measurements.
    Near,
    /// The CPUs shared no cache in any measurement.
    Far,
    /// The distance changed during the sample.
    Mixed,
    /// Only one CPU took part.
    Single,
}

impl Class {
    /// Class of the distances measured around one sample; an empty slice means one CPU.
    pub(super) fn of(distances_ns: &[f64]) -> Self {
        let near = distances_ns.iter().filter(|&&ns| ns < NEAR_NS).count();
        match near {
            _ if distances_ns.is_empty() => Self::Single,
            0 => Self::Far,
            n if n == distances_ns.len() => Self::Near,
            _ => Self::Mixed,
        }
    }

    /// Class of a sample that is computed from samples of these two classes.
    pub(super) fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Mixed }
    }

    /// Class of a round of many slices: the class of at least three quarters of the distances,
    /// otherwise `Mixed`. An empty slice means one CPU.
    pub(super) fn of_round(distances_ns: &[f64]) -> Self {
        let near = distances_ns.iter().filter(|&&ns| ns < NEAR_NS).count();
        match (near * 4, distances_ns.len()) {
            (_, 0) => Self::Single,
            (near, all) if near >= all * 3 => Self::Near,
            (near, all) if near <= all => Self::Far,
            _ => Self::Mixed,
        }
    }
}

/// One measured value.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) value: f64,
    pub(super) class: Class,
}

/// Median; the mean of the two middle values for an even number of values. `None` for an empty
/// slice.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Samples of one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) samples: usize,
    pub(super) median: f64,
}

/// Summary of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) samples: usize,
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
    pub(super) near: Option<Part>,
    pub(super) far: Option<Part>,
}

impl Summary {
    /// Summarizes samples; `None` for an empty slice.
    pub(super) fn of(samples: &[Sample]) -> Option<Self> {
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let part = |class: Class| {
            let own = samples.iter().filter(|sample| sample.class == class);
            let own: Vec<f64> = own.map(|sample| sample.value).collect();
            median(&own).map(|median| Part { samples: own.len(), median })
        };
        Some(Self {
            samples: values.len(),
            min: values.iter().copied().reduce(f64::min)?,
            median: median(&values)?,
            max: values.iter().copied().reduce(f64::max)?,
            near: part(Class::Near),
            far: part(Class::Far),
        })
    }
}

/// Ratios `ours / theirs`, sample by sample; ratios that are not finite are omitted. The ratio of
/// samples of different classes is `Mixed`.
pub(super) fn ratios(ours: &[Sample], theirs: &[Sample]) -> Vec<Sample> {
    let ratio = |(a, b): (&Sample, &Sample)| Sample {
        value: a.value / b.value,
        class: a.class.join(b.class),
    };
    ours.iter().zip(theirs).map(ratio).filter(|sample| sample.value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(f64, Class)]) -> Vec<Sample> {
        values.iter().map(|&(value, class)| Sample { value, class }).collect()
    }

    // Goal: the median is the middle value in any order of the input, or the mean of two middle
    // values.
    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
    }

    // Goal: a sample during which the distance changed is neither near nor far.
    #[test]
    fn classes_need_agreement() {
        assert_eq!(Class::of(&[]), Class::Single);
        assert_eq!(Class::of(&[40.0, 99.9]), Class::Near);
        assert_eq!(Class::of(&[100.0, 250.0]), Class::Far);
        assert_eq!(Class::of(&[40.0, 250.0]), Class::Mixed);
        assert_eq!(Class::Near.join(Class::Near), Class::Near);
        assert_eq!(Class::Near.join(Class::Far), Class::Mixed);
    }

    // Goal: the class of a round is that of at least three quarters of its slices, otherwise mixed.
    #[test]
    fn rounds_forgive_exceptions() {
        assert_eq!(Class::of_round(&[]), Class::Single);
        assert_eq!(Class::of_round(&[40.0, 40.0, 40.0, 250.0]), Class::Near);
        assert_eq!(Class::of_round(&[40.0, 250.0, 250.0, 250.0]), Class::Far);
        assert_eq!(Class::of_round(&[40.0, 40.0, 250.0, 250.0]), Class::Mixed);
    }

    // Goal: ratios are computed pair by pair, so that a drift of both sides cancels. A peer that
    // moved no frames gives no ratio instead of an infinite one.
    #[test]
    fn ratios_are_pairwise() {
        use Class::{Far, Mixed, Near};
        let ours = series(&[(10.0, Near), (100.0, Far), (6.0, Near), (1.0, Far)]);
        let theirs = series(&[(5.0, Near), (50.0, Far), (2.0, Far), (0.0, Far)]);
        let ratios = ratios(&ours, &theirs);
        let values: Vec<f64> = ratios.iter().map(|sample| sample.value).collect();
        assert_eq!(values, [2.0, 2.0, 3.0]);
        assert_eq!(ratios[2].class, Mixed);
    }

    // Goal: the summary has the extremes of all samples and a median for each class.
    #[test]
    fn summary_splits_by_class() {
        use Class::{Far, Mixed, Near};
        let samples = series(&[(4.0, Near), (1.0, Far), (6.0, Near), (9.0, Mixed)]);
        let summary = Summary::of(&samples).unwrap();
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 5.0, 9.0));
        assert_eq!(summary.near, Some(Part { samples: 2, median: 5.0 }));
        assert_eq!(summary.far, Some(Part { samples: 1, median: 1.0 }));
        assert_eq!(Summary::of(&[]), None);
    }
}
