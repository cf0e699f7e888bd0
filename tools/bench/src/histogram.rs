//! Latency histogram with a relative error of about 3 % over the whole range of the clock, and a
//! compact text form for transfer between processes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::Line;
use super::stats::{Class, Sample};

/// Classes per octave. Each value below this number has a separate class.
const PARTS: u64 = 32;
/// Minimum number of values above a percentile; with a single value the percentile is random.
const ABOVE: f64 = 2.0;

/// Number of values per class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    counts: BTreeMap<u64, u64>,
}

/// Smallest value of the class of `value`.
fn floor(value: u64) -> u64 {
    let shift = value.max(PARTS).ilog2() - PARTS.ilog2();
    value >> shift << shift
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        *self.counts.entry(floor(value)).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (&value, count) in &other.counts {
            *self.counts.entry(value).or_default() += count;
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Smallest value that at least `share` of all values do not exceed; `None` for an empty
    /// histogram.
    pub(super) fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((self.len() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(&value, count)| {
            seen += count;
            (seen >= rank).then_some(value)
        })
    }

    /// Text form on one line.
    pub(super) fn tell(&self) -> String {
        let mut line = String::new();
        for (value, count) in &self.counts {
            let _ = write!(line, "{value}:{count} ");
        }
        line
    }

    /// Parses the text form of [`tell`](Self::tell); none if it is invalid.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let pair = |word: &str| {
            let (value, count) = word.split_once(':')?;
            Some((value.parse().ok()?, count.parse().ok()?))
        };
        let counts: Option<BTreeMap<u64, u64>> = line.split_whitespace().map(pair).collect();
        Some(Self { counts: counts? })
    }
}

/// Percentile of each round. A round with too few values is merged with the following rounds.
pub(super) fn line(who: &str, rounds: &[(Histogram, Class)], share: f64) -> Line {
    let enough = (ABOVE / (1.0 - share)).round() as u64;
    let (mut samples, mut joined): (Vec<Sample>, _) = (Vec::new(), None::<(Histogram, Class)>);
    let mut seen = 0;
    for (round, class) in rounds {
        seen += round.len();
        let (mut all, old) = joined.take().unwrap_or((Histogram::default(), *class));
        all.merge(round);
        let class = old.join(*class);
        match all.percentile(share) {
            Some(value) if all.len() >= enough => {
                samples.push(Sample { value: value as f64, class });
            }
            _ => joined = Some((all, class)),
        }
    }
    if samples.is_empty() {
        return Line::skipped(who, format!("{seen} values are too few: {enough} are needed"));
    }
    Line::of(who, samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Goal: a percentile equals that of the sorted list within 1/32, and the text form is
        // parsed to the same histogram.
        #[test]
        fn percentiles_are_those_of_a_sorted_list(
            mut values in prop::collection::vec(0u64..1 << 40, 1..300), share in 0.01f64..1.0,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            let (exact, found) = (values[rank - 1], histogram.percentile(share).unwrap());
            prop_assert!(found <= exact && exact - found <= exact / 32, "{found} {exact}");
            prop_assert_eq!(Histogram::parse(&histogram.tell()), Some(histogram));
        }

        // Goal: a merged histogram is the histogram of all values.
        #[test]
        fn merging_adds(values in prop::collection::vec(0u64..1 << 30, 0..100), at in 0usize..100) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|&value| histogram.add(value));
                histogram
            };
            let (a, b) = values.split_at(at.min(values.len()));
            let mut merged = of(a);
            merged.merge(&of(b));
            prop_assert_eq!(merged, of(&values));
        }
    }

    // Goal: rounds with too few values for a percentile are merged. If all rounds together have too
    // few values, the text states the required number.
    #[test]
    fn short_rounds_are_joined() {
        let mut round = Histogram::default();
        (0..10).for_each(|value| round.add(value));
        let rounds = vec![(round, Class::Near); 5];
        assert_eq!(line("x", &rounds, 0.5).samples.len(), 5);
        assert_eq!(line("x", &rounds, 0.9).samples.len(), 2);
        let none = line("x", &rounds, 0.99).skipped.unwrap();
        assert!(none.contains("50 values") && none.contains("200"), "{none}");
        assert!(Histogram::parse("1:2 x").is_none());
    }
}
