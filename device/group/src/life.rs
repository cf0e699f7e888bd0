//! Link state of the group: down, up, or up without some members.

use std::time::Duration;

use mqnet_netdev::LinkStatus;

use crate::group::{GroupFunction, OnLoss};
use crate::member::Member;

impl GroupFunction {
    /// Polls every member.
    fn poll_members(&mut self, now: Duration) {
        for member in &mut self.members {
            member.status = member.function.poll_link(now);
            // Read the capabilities of a lost member only when it fails back.
            if !self.combined || (member.is_here() && member.is_up()) {
                member.caps = member.function.caps();
            }
        }
    }

    pub(crate) fn poll(&mut self, now: Duration) -> LinkStatus {
        self.poll_members(now);
        let status = match self.on_loss {
            OnLoss::Degrade if self.combined => self.poll_degraded(now),
            _ => self.all_or_nothing(),
        };
        self.poll_far();
        status
    }

    /// State of a group that is up only if every member is up. A new session of the group begins
    /// unless the group was up and every member is in the session in which it joined.
    fn all_or_nothing(&mut self) -> LinkStatus {
        let is_same = |member: &Member| {
            matches!((&member.status, member.joined),
            (LinkStatus::Up { session }, Some(joined)) if *session == joined)
        };
        let new = !(self.combined && self.members.iter().all(is_same));
        let why = self.missing_members().or_else(|| self.contradiction());
        if let Some(why) = why.or_else(|| new.then(|| self.far_contradiction()).flatten()) {
            self.combined = false;
            self.members.iter_mut().for_each(|member| member.joined = None);
            return LinkStatus::Down(match &self.trouble {
                Some(trouble) => format!("{why}; {trouble}"),
                None => why,
            });
        }
        for member in &mut self.members {
            let LinkStatus::Up { session } = member.status else { continue };
            (member.joined, member.trouble) = (Some(session), None);
        }
        if new {
            self.session += 1;
            self.begin_far_session();
        }
        (self.combined, self.trouble) = (true, None);
        LinkStatus::Up { session: self.session }
    }

    fn missing_members(&self) -> Option<String> {
        let missing = |member: &Member| match &member.status {
            LinkStatus::Up { .. } => None,
            LinkStatus::Down(why) => Some(format!("{} ({why})", member.function.name())),
        };
        let missing: Vec<String> = self.members.iter().filter_map(missing).collect();
        let (all, up) = (self.members.len(), self.members.len() - missing.len());
        let why = missing.join(", ");
        (!missing.is_empty()).then(|| format!("group: {up} of {all} members up: waiting for {why}"))
    }

    /// Error text if two members have different configured MTUs; otherwise `None`.
    fn contradiction(&self) -> Option<String> {
        let mut asked = self.members.iter().filter(|member| member.caps.mtu.is_some());
        let first = asked.next()?;
        let other = asked.find(|member| member.caps.mtu != first.caps.mtu)?;
        let (one, two) = (first.caps.mtu?, other.caps.mtu?);
        let (first, other) = (first.function.name(), other.function.name());
        Some(format!("group: {first} has mtu {one}, {other} has mtu {two}"))
    }

    /// True if a member that joined, or is to join in the pending change, is down or in another
    /// session than the recorded one.
    pub(crate) fn any_lost(&self) -> bool {
        let stays = |(at, session): &(usize, u64)| {
            self.members[*at].status == LinkStatus::Up { session: *session }
        };
        if self.next.as_ref().is_some_and(|next| !next.joins.iter().all(stays)) {
            return true;
        }
        let is_lost = |member: &Member| match (&member.status, member.joined) {
            (LinkStatus::Up { session }, Some(joined)) => *session != joined,
            (LinkStatus::Down(_), Some(_)) => true,
            (_, None) => false,
        };
        self.members.iter().any(is_lost)
    }

    /// State of a group that continues without lost members: up while at least one member is up.
    fn poll_degraded(&mut self, now: Duration) -> LinkStatus {
        if !self.any_lost() {
            self.fail_back(now);
            return LinkStatus::Up { session: self.session };
        }
        for member in &mut self.members {
            let is_same = matches!((&member.status, member.joined),
                (LinkStatus::Up { session }, Some(joined)) if *session == joined);
            if !is_same {
                member.joined = None;
            }
        }
        if !self.members.iter().any(Member::is_here) {
            self.combined = false;
            return self.all_or_nothing();
        }
        match self.fail_over() {
            Ok(()) => LinkStatus::Up { session: self.session },
            Err(why) => {
                self.trouble = Some(format!("no member could take over: {why}"));
                self.combined = false;
                self.all_or_nothing()
            }
        }
    }

    /// Polls the members after a lane has failed. Returns true if a member is lost and the group
    /// may continue without it.
    pub(crate) fn poll_for_loss(&mut self, now: Duration) -> bool {
        if self.on_loss == OnLoss::Destroy || !self.combined || self.in_use.is_none() {
            return false;
        }
        self.poll_members(now);
        self.any_lost()
    }
}
