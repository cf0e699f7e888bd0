//! Memory, descriptors and threads of processes that live long: they must not grow.

use mqnet_testkit::{anonymous_kib, descriptors, resident_kib, threads};

/// Samples below which nothing can be said.
const ENOUGH: usize = 8;

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
            descriptors: descriptors(pid) as u64,
            threads: threads(pid),
        }
    }
}

/// How much the last quarter may have: what the third had, or the first half at its highest, and a
/// fixed part, because allocators keep what they once had and a burst may still be the largest so
/// far, and a part of what there is. Descriptors come and go by dozens with sessions, each of which
/// keeps what its largest set of channels once had; a leak of one a reconnect is soon beyond that.
fn allowed(kind: &str, before: u64) -> u64 {
    match kind {
        "KiB of its own" => before + before / 20 + 4096,
        "KiB resident" => before + before / 10 + 16_384,
        // Disciplines that all lanes share are given a door for each possible channel and a pool
        // when a side has the first of them, which may be at any time; both are kept.
        "descriptors" => before + before / 4 + 16 + 2 * 66,
        _ => before + 2,
    }
}

fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list.get(list.len() / 2).copied().unwrap_or(0)
}

/// What grew in the second half: the median of the last quarter against that of the third. The
/// first half is warming up: rings, pools and heaps reach their size.
pub(crate) fn growth(samples: &[Sample]) -> Option<String> {
    if samples.len() < ENOUGH {
        return None;
    }
    let quarter = samples.len() / 4;
    let (third, last) = samples[samples.len() - 2 * quarter..].split_at(quarter);
    type Pick = fn(&Sample) -> u64;
    let kinds: [(&str, Pick); 4] = [
        ("KiB of its own", |s| s.own),
        ("KiB resident", |s| s.all),
        ("descriptors", |s| s.descriptors),
        ("threads", |s| s.threads),
    ];
    kinds.into_iter().find_map(|(kind, pick)| {
        let [before, after] = [third, last].map(|part| median(part.iter().map(pick).collect()));
        let most = samples[..samples.len() / 2].iter().map(pick).max().unwrap_or(0);
        let before = before.max(most);
        (after > allowed(kind, before)).then(|| format!("{before} {kind}, and then {after}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(f: impl Fn(u64) -> Sample) -> Option<String> {
        growth(&(0..40).map(f).collect::<Vec<_>>())
    }

    // Goal: what stays flat, or warms up, or has one peak passes; what grows in the second half
    // does not, be it memory, descriptors or threads.
    #[test]
    fn growth_is_found() {
        let flat = Sample { own: 10_000, all: 60_000, descriptors: 50, threads: 4 };
        assert_eq!(series(|_| flat), None);
        assert_eq!(series(|n| Sample { own: 10_000 + 500 * n.min(20), ..flat }), None);
        assert_eq!(series(|n| Sample { own: if n == 33 { 90_000 } else { 10_000 }, ..flat }), None);
        assert!(series(|n| Sample { own: 10_000 + 1000 * n, ..flat }).is_some());
        assert!(series(|n| Sample { all: 60_000 + 4000 * n, ..flat }).is_some());
        assert!(series(|n| Sample { descriptors: 50 + 60 * n, ..flat }).is_some());
        assert!(series(|n| Sample { threads: 4 + n / 3, ..flat }).is_some());
        assert_eq!(growth(&[flat; 3]), None);
    }
}
