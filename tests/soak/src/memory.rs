//! Checks that memory, descriptors and threads of long-running processes do not grow.

use std::collections::BTreeMap;

use mqnet_testkit::{anonymous_kib, descriptor_kinds, resident_kib, threads};

/// Minimum number of samples for a verdict.
const ENOUGH: usize = 8;

/// Number of descriptors by kind.
pub(crate) type Kinds = BTreeMap<String, u64>;

/// Sample of a process, always taken in the state in which a round begins, so that samples differ
/// only by leaked resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Anonymous memory in KiB.
    pub(crate) own: u64,
    /// Resident memory in KiB, with windows and guest memory. This value varies, because each round
    /// touches other pages of windows and guest memory.
    pub(crate) all: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Sample {
    pub(crate) fn take(pid: u32) -> Self {
        Self {
            own: anonymous_kib(pid),
            all: resident_kib(pid),
            descriptors: descriptor_kinds(pid).values().sum(),
            threads: threads(pid),
        }
    }
}

/// Upper limit of a quarter's median after a maximum of `before`. Memory has a relative and a fixed
/// allowance, because allocators keep freed memory; other kinds may grow by 2.
fn allowed(kind: &str, before: u64) -> u64 {
    match kind {
        "KiB of its own" => before + before / 20 + 4096,
        "KiB resident" => before + before / 10 + 16_384,
        _ => before + 2,
    }
}

/// Text with the kinds that have more descriptors than at the first count; `None` if there is none.
/// Every round ends in its initial state, so one additional descriptor is a leak.
pub(crate) fn left_open(first: &Kinds, now: &Kinds) -> Option<String> {
    let had = |kind: &str| first.get(kind).copied().unwrap_or(0);
    let more = now.iter().filter(|(kind, n)| **n > had(kind));
    let told: Vec<String> =
        more.map(|(kind, n)| format!("{n} of {kind}, not {}", had(kind))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Lower median, so that a single peak among two samples has no effect.
fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list.get(list.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Text that describes growth over the last three quarters, by their medians; `None` without
/// growth. Rings, pools and heaps reach their size in the first quarter. A single step is not
/// growth, because the page pool keeps the memory of the largest backlog, which may occur late.
pub(crate) fn growth(samples: &[Sample]) -> Option<String> {
    if samples.len() < ENOUGH {
        return None;
    }
    let quarter = samples.len() / 4;
    type Pick = fn(&Sample) -> u64;
    let kinds: [(&str, Pick); 3] =
        [("KiB of its own", |s| s.own), ("KiB resident", |s| s.all), ("threads", |s| s.threads)];
    kinds.into_iter().find_map(|(kind, pick)| {
        let from = samples.len() - 3 * quarter;
        let quarters = samples[from..].chunks_exact(quarter);
        let medians: Vec<u64> =
            quarters.map(|part| median(part.iter().map(pick).collect())).collect();
        let most = samples[..from].iter().map(pick).max().unwrap_or(0);
        let grows = medians.windows(2).all(|pair| pair[1] > allowed(kind, pair[0].max(most)));
        grows.then(|| format!("{medians:?} {kind}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(f: impl Fn(u64) -> Sample) -> Option<String> {
        growth(&(0..40).map(f).collect::<Vec<_>>())
    }

    // Goal: constant values, growth in the first quarter, one peak and one step are accepted.
    // Memory or threads that grow through the last three quarters are reported.
    #[test]
    fn growth_is_found() {
        let flat = Sample { own: 10_000, all: 60_000, descriptors: 50, threads: 4 };
        assert_eq!(series(|_| flat), None);
        assert_eq!(series(|n| Sample { own: 10_000 + 500 * n.min(20), ..flat }), None);
        assert_eq!(series(|n| Sample { own: if n == 33 { 90_000 } else { 10_000 }, ..flat }), None);
        assert_eq!(series(|n| Sample { own: if n < 30 { 4000 } else { 37_000 }, ..flat }), None);
        assert!(series(|n| Sample { own: 10_000 + 1000 * n, ..flat }).is_some());
        assert!(series(|n| Sample { all: 60_000 + 4000 * n, ..flat }).is_some());
        assert!(series(|n| Sample { threads: 4 + n / 3, ..flat }).is_some());
        assert_eq!(growth(&[flat; 3]), None);
    }

    // Goal: one additional descriptor of any kind is reported, even if another kind has fewer.
    // Fewer descriptors of a kind are not reported.
    #[test]
    fn one_descriptor_too_many_is_found() {
        let kinds = |list: &[(&str, u64)]| -> Kinds {
            list.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect()
        };
        let first = kinds(&[("eventfd", 70), ("socket", 5)]);
        assert_eq!(left_open(&first, &first), None);
        assert_eq!(left_open(&first, &kinds(&[("eventfd", 60)])), None);
        let more = left_open(&first, &kinds(&[("eventfd", 60), ("socket", 6)]));
        assert_eq!(more.as_deref(), Some("6 of socket, not 5"));
        let other = left_open(&first, &kinds(&[("eventfd", 70), ("socket", 5), ("memfd", 1)]));
        assert_eq!(other.as_deref(), Some("1 of memfd, not 0"));
    }
}
