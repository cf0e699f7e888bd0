//! Memory, descriptors and threads of processes that live long: they must not grow.

use std::collections::BTreeMap;

use mqnet_testkit::{anonymous_kib, descriptor_kinds, resident_kib, threads};

/// Samples below which nothing can be said.
const ENOUGH: usize = 8;

/// Descriptors by what they are.
pub(crate) type Kinds = BTreeMap<String, u64>;

/// One look at a process, always in the state with which a round begins, so that samples differ
/// only by what is left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// KiB that it shares with nobody.
    pub(crate) own: u64,
    /// KiB in all, with windows and guest memory, of whose pages every round touches others.
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

/// How much a quarter may have after one that had `before`: a fixed part, because allocators keep
/// what they once had, and a part of what there is. Descriptors have a check of their own.
fn allowed(kind: &str, before: u64) -> u64 {
    match kind {
        "KiB of its own" => before + before / 20 + 4096,
        "KiB resident" => before + before / 10 + 16_384,
        _ => before + 2,
    }
}

/// Kinds of which there are more descriptors than when everything had been used once: one more is
/// one too many, because every round ends as it began.
pub(crate) fn left_open(first: &Kinds, now: &Kinds) -> Option<String> {
    let had = |kind: &str| first.get(kind).copied().unwrap_or(0);
    let more = now.iter().filter(|(kind, n)| **n > had(kind));
    let told: Vec<String> =
        more.map(|(kind, n)| format!("{n} of {kind}, not {}", had(kind))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// The lower median, so that of two samples one peak does not decide.
fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list.get(list.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Growth through the last three quarters, by their medians. The first quarter is warming up:
/// rings, pools and heaps reach their size. One step is no growth: the page pool keeps what the
/// largest backlog so far needed (tens of MiB), and that backlog may come late.
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

    // Goal: what stays flat, or warms up, or has one peak or one step passes; what grows through
    // the last three quarters does not, be it memory or threads.
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

    // Goal: one descriptor more of any kind is told, fewer are not, whatever the sum is.
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
