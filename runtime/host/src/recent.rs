//! Recent drops of a link. The counters show only totals since the start, but a user needs to know
//! which frames are lost now.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mqnet_control_api::RecentDrops;
use mqnet_netdev::{DropReason, QueuePairStats};

/// Time between two samples.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Largest age of a sample.
const WINDOW: Duration = Duration::from_secs(10);

/// Dropped frames by reason.
type Counts = [u64; DropReason::ALL.len()];

/// Drops of each netdev: of frames that the netdev received, and of frames to be sent through the
/// netdev.
type Sample = [[Counts; 2]; 2];

/// Samples of the drop counters, one per second.
#[derive(Debug, Default)]
pub(crate) struct Recent(VecDeque<(Duration, Sample)>);

fn sample(stats: [&[Arc<QueuePairStats>]; 2]) -> Sample {
    stats.map(|side| {
        let count = |of: &dyn Fn(&QueuePairStats, DropReason) -> u64| {
            DropReason::ALL.map(|reason| side.iter().map(|stats| of(stats, reason)).sum())
        };
        [count(&|s, reason| s.rx.drops.get(reason)), count(&|s, reason| s.tx.drops.get(reason))]
    })
}

impl Recent {
    /// Stores a sample if the last one is at least a second old; deletes samples older than the
    /// window.
    pub(crate) fn sample(&mut self, now: Duration, stats: [&[Arc<QueuePairStats>]; 2]) {
        if self.0.back().is_some_and(|(last, _)| now.saturating_sub(*last) < EVERY) {
            return;
        }
        self.0.push_back((now, sample(stats)));
        while self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW) {
            self.0.pop_front();
        }
    }

    /// Frames dropped since the oldest sample, by netdev, direction and reason. `names` are the
    /// names of the netdevs.
    pub(crate) fn drops(
        &self,
        names: [&str; 2],
        stats: [&[Arc<QueuePairStats>]; 2],
    ) -> Vec<RecentDrops> {
        let before = self.0.front().map_or_else(Sample::default, |(_, sample)| *sample);
        let now = sample(stats);
        let mut drops = Vec::new();
        for (side, name) in names.into_iter().enumerate() {
            for (half, sends) in [false, true].into_iter().enumerate() {
                for (at, reason) in DropReason::ALL.into_iter().enumerate() {
                    let frames = now[side][half][at].saturating_sub(before[side][half][at]);
                    if frames > 0 {
                        let (netdev, reason) = (name.to_owned(), reason.name().to_owned());
                        drops.push(RecentDrops { netdev, sends, reason, frames });
                    }
                }
            }
        }
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: drops within the window are reported by netdev, direction and reason. Older drops are
    // not reported.
    #[test]
    fn drops_are_forgotten() {
        let stats: [Vec<Arc<QueuePairStats>>; 2] = [0, 1].map(|_| vec![Arc::default()]);
        let of = || stats.each_ref().map(Vec::as_slice);
        let (mut recent, at) = (Recent::default(), Duration::from_secs);
        stats[0][0].rx.drops.count(DropReason::TooLong, 7);
        recent.sample(at(100), of());
        assert_eq!(recent.drops(["a", "b"], of()), [], "before the first sample");
        stats[1][0].tx.drops.count(DropReason::DeviceDown, 5);
        stats[0][0].rx.drops.count(DropReason::TooLong, 1);
        let drop = |netdev: &str, sends, reason: &str, frames| RecentDrops {
            netdev: netdev.into(),
            sends,
            reason: reason.into(),
            frames,
        };
        let all = [drop("a", false, "too-long", 1), drop("b", true, "device-down", 5)];
        for second in 101..=110 {
            recent.sample(at(second), of());
            assert_eq!(recent.drops(["a", "b"], of()), all, "second {second}");
        }
        recent.sample(at(111), of());
        assert_eq!(recent.drops(["a", "b"], of()), []);
        assert!(recent.0.len() <= 11);
    }
}
