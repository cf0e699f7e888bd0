//! Functions of a link: polling of their states, and replacement of a function that could not be
//! opened before or lost its device.

use std::time::Duration;

use mqnet_netdev::{FarPartner, Function, LinkStatus};

use super::{Link, LinkError, Notice};

impl Link {
    /// Polls both functions and returns their states. A function with a peer publishes its
    /// partner's state to the peer, and counts as down while the peer's partner is down. A TAP
    /// without a working other side therefore has no carrier, and no frames wait in unread rings.
    pub(super) fn poll_ends(&mut self, now: Duration) -> (LinkStatus, LinkStatus) {
        let first = usize::from(self.peer_side == Some(0));
        let early = self.poll_end(first, now);
        self.publish_state(1 - first, &early);
        let late = self.poll_end(1 - first, now);
        self.publish_state(first, &late);
        if first == 0 { (early, late) } else { (late, early) }
    }

    fn poll_end(&mut self, side: usize, now: Duration) -> LinkStatus {
        let end = &mut self.ends[side];
        let status = end.poll_link(now);
        if matches!(status, LinkStatus::Down(_)) {
            return status;
        }
        match end.peer().map(|peer| peer.far_partner()) {
            None | Some(FarPartner::Up) => status,
            Some(FarPartner::Unknown) => LinkStatus::Down("negotiating with the peer".to_owned()),
            Some(FarPartner::Down(why)) => {
                LinkStatus::Down(format!("the partner of the other end is down: {why}"))
            }
        }
    }

    /// Publishes the state of the partner function to the peer of a side. A failed start counts as
    /// down.
    fn publish_state(&mut self, side: usize, partner: &LinkStatus) {
        let Some(peer) = self.ends[side].peer() else { return };
        peer.set_partner_down(match partner {
            LinkStatus::Down(why) => Some(why),
            LinkStatus::Up { .. } => self.start_failed.as_deref(),
        });
    }

    /// Closes both functions with `reason` after a failed start, and stores `why`, which the next
    /// poll publishes to the peer. Returns the notice; `None` if `why` was already reported.
    pub(super) fn cannot_start(&mut self, why: String, reason: &str) -> Option<Notice> {
        self.ends.iter_mut().for_each(|end| end.close(reason));
        self.start_failed = Some(why.clone());
        self.report_down(why)
    }

    /// Clears the reason of a failed start, also at the peer.
    pub(super) fn has_started(&mut self) {
        if self.start_failed.take().is_some()
            && let Some(peer) = self.peer()
        {
            peer.set_partner_down(None);
        }
    }

    /// Replaces the function of a side. A running link is taken down first. The user's settings
    /// stay. Fails if flow learning requires an indirection table that the new function does not
    /// have. Counters continue if the new function has no more channels than the old one.
    pub fn replace_end(
        &mut self,
        side: usize,
        mut function: Box<dyn Function>,
        why: &str,
    ) -> Result<(), LinkError> {
        self.learning.check(side, &*function)?;
        if self.running.is_some() {
            self.take_down(why)?;
        }
        let before = self.ends[side].stats();
        if before.len() >= function.stats().len() {
            function.share_stats(before);
        }
        if self.programs.is_attached(side) {
            function.set_xdp(true);
        }
        self.ends[side] = function;
        self.peer_side = (0..2).find(|&side| self.ends[side].peer().is_some());
        self.start_failed = None;
        self.publish_request();
        Ok(())
    }
}
