//! Opening of the ends of a link that could not be opened at first.
//!
//! A placeholder stands for the function, so that the link exists from its configuration on and is
//! down with the reason. Opening is tried again with back-off. An end waits again if its network
//! namespace was replaced or deleted.

use std::sync::Arc;
use std::time::Duration;

use mqnet_address::Endpoint;
use mqnet_engine::LinkError;
use mqnet_netdev::QueuePairStats;
use mqnet_sysio::clock;

use crate::link::HostedLink;
use crate::platform::{Opened, netns_of};
use crate::waiting::{Attempts, FIRST, absent, short};

/// Interval for checking the network namespaces of the ends.
const CHECK: Duration = Duration::from_secs(1);

impl HostedLink {
    /// Reason why an end cannot be opened; `None` if no end waits. Of two ends, the one with the
    /// earlier next attempt counts.
    pub fn waits_for(&self) -> Option<&str> {
        self.next_attempt().map(|attempts| &attempts.reason[..])
    }

    fn next_attempt(&self) -> Option<&Attempts> {
        self.waiting_ends.ends.iter().flatten().min_by_key(|attempts| attempts.due)
    }

    /// Time of the next attempt in milliseconds since the epoch; `None` if no end waits.
    pub(crate) fn next_attempt_ms(&self, now: Duration) -> Option<u64> {
        let left = self.next_attempt()?.due.saturating_sub(now);
        let at = clock::since_epoch() + left;
        Some(at.as_millis() as u64)
    }

    /// Makes the attempts of all waiting ends due, and resets their delays.
    pub(crate) fn hurry(&mut self) {
        self.waiting_ends.ends.iter_mut().flatten().for_each(|attempts| {
            (attempts.due, attempts.delay) = (Duration::ZERO, FIRST);
        });
    }

    /// Sides of the waiting ends with a due attempt. Also checks the namespaces of the open ends.
    pub(crate) fn due_ends(&mut self, now: Duration) -> Vec<usize> {
        self.check_namespaces(now);
        let is_due = |attempts: &Attempts| attempts.due <= now;
        (0..2).filter(|&side| self.waiting_ends.ends[side].as_ref().is_some_and(is_due)).collect()
    }

    /// Endpoint of a side of the link.
    pub fn endpoint(&self, side: usize) -> &Endpoint {
        [&self.checked.a, &self.checked.b][side]
    }

    /// Replaces an end by a placeholder if its network namespace was replaced, or was deleted while
    /// the link is down. Checks at most once per [`CHECK`].
    fn check_namespaces(&mut self, now: Duration) {
        if now.saturating_sub(self.waiting_ends.checked) < CHECK {
            return;
        }
        self.waiting_ends.checked = now;
        for side in 0..2 {
            let end = self.endpoint(side);
            let waits = self.waiting_ends.ends[side].is_some();
            let config = end.config();
            if waits || config.namespace().is_none() || !config.inherited().is_empty() {
                continue;
            }
            let is_gone = match netns_of(end) {
                Some(namespace) => self.waiting_ends.namespaces[side] != Some(namespace),
                // The namespace can be in use after its file was deleted, so the state of the link
                // decides.
                None => self.link.running().is_none(),
            };
            if is_gone {
                let reason = format!(
                    "{}: its network namespace was deleted",
                    short(end_address(self, side))
                );
                self.waiting_ends.ends[side] =
                    Some(Attempts { reason: reason.clone(), delay: FIRST, due: now });
                self.put_absent(side, reason);
            }
        }
    }

    /// Replaces the function of a side by a placeholder.
    fn put_absent(&mut self, side: usize, reason: String) {
        let stats: Vec<Arc<QueuePairStats>> = self.link.functions()[side].stats().to_vec();
        let address = short(end_address(self, side)).to_owned();
        let absent = absent(self.endpoint(side), &address, reason.clone(), stats);
        if let Err(e) = self.link.replace_end(side, absent.function, &reason) {
            tracing::error!("link {}: {e}", self.name);
        }
    }

    /// Handles the result of an attempt: installs the opened function, or schedules the next
    /// attempt.
    pub(crate) fn attempted(&mut self, side: usize, opened: Result<Opened, String>, now: Duration) {
        let opened = opened.and_then(|opened| {
            let Opened { function, name, ifindex, netns } = opened;
            let ready = "an end was opened again";
            self.link.replace_end(side, function, ready).map_err(|e: LinkError| e.to_string())?;
            self.waiting_ends.namespaces[side] = netns;
            let dev = &mut self.netdevs[side];
            (dev.name, dev.netns) = (name, netns);
            dev.ifindex = ifindex.unwrap_or(dev.ifindex);
            Ok(())
        });
        match opened {
            Ok(()) => {
                self.waiting_ends.ends[side] = None;
                self.link.set_ifindexes([0, 1].map(|side| self.netdevs[side].ifindex));
            }
            Err(reason) => {
                let Some(attempts) = &mut self.waiting_ends.ends[side] else { return };
                let is_news = attempts.reason != reason;
                attempts.failed(reason.clone(), now);
                self.netdevs[side].netns = netns_of(self.endpoint(side));
                if is_news {
                    self.put_absent(side, reason);
                }
            }
        }
    }
}

/// Address of an end as written.
fn end_address(entry: &HostedLink, side: usize) -> &str {
    [&entry.spec.a, &entry.spec.b][side]
}
