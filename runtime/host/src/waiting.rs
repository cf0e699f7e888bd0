//! Ends of a link that cannot be opened yet: their attempts with back-off, and their placeholder.

use std::sync::Arc;
use std::time::Duration;

use mqnet_address::Endpoint;
use mqnet_netdev::QueuePairStats;
use mqnet_netdev::absent::Absent;

use crate::platform::{Opened, netns_of};

/// Delay before the second attempt. Each further delay is twice as long, up to `LONGEST`.
pub(crate) const FIRST: Duration = Duration::from_millis(100);
/// Longest delay between two attempts.
const LONGEST: Duration = Duration::from_secs(10);

/// Failed attempts to open an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    pub(crate) reason: String,
    pub(crate) delay: Duration,
    pub(crate) due: Duration,
}

impl Attempts {
    /// State after the first failure at `now`.
    pub(crate) fn new(reason: String, now: Duration) -> Self {
        Self { reason, delay: FIRST, due: now + FIRST }
    }

    /// Records another failure, and doubles the delay up to `LONGEST`.
    pub(crate) fn failed(&mut self, reason: String, now: Duration) {
        self.delay = (self.delay * 2).min(LONGEST);
        (self.reason, self.due) = (reason, now + self.delay);
    }
}

/// Waiting ends of a link.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) ends: [Option<Attempts>; 2],
    /// Inodes of the network namespaces in which the ends were opened, because a device may move to
    /// another namespace later.
    pub(crate) namespaces: [Option<u64>; 2],
    /// Time of the last check of the namespaces.
    pub(crate) checked: Duration,
}

impl Waiting {
    pub(crate) fn new(ends: [Option<Attempts>; 2], namespaces: [Option<u64>; 2]) -> Self {
        Self { ends, namespaces, checked: Duration::ZERO }
    }
}

/// Returns an address without its options.
pub(crate) fn short(address: &str) -> &str {
    address.split(',').next().unwrap_or(address)
}

/// Creates the placeholder for a function that cannot be opened.
pub(crate) fn absent(
    end: &Endpoint,
    address: &str,
    reason: String,
    stats: Vec<Arc<QueuePairStats>>,
) -> Opened {
    Opened {
        function: Box::new(Absent::new(address.to_owned(), reason, stats)),
        name: end.config().netdev_name(),
        ifindex: None,
        netns: netns_of(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the first delay is 100 ms, each further delay is twice as long, and the limit is 10 s.
    #[test]
    fn attempts_back_off_to_ten_seconds() {
        let mut now = Duration::from_secs(5);
        let mut attempts = Attempts::new("no device".to_owned(), now);
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push((attempts.due - now).as_millis());
            now = attempts.due;
            attempts.failed("no device".to_owned(), now);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    }
}
