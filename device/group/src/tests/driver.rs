//! Substitute of the engine: keeps the link up, sends a frame on every channel after every event,
//! and checks the invariants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqnet_netdev::{
    Burst, Caps, Channel, Function, KernelInterface, LinkStatus, MemberView, Members, Plan,
    Steering,
};
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;

use super::fake::{Countdown, Fake, Handle, caps};
use crate::{GroupConfig, GroupFunction, MemberMap, OnLoss};

/// Number of channels of a fake member.
pub(super) const EACH: u16 = 16;

pub(super) struct Driver {
    pub(super) group: GroupFunction,
    pub(super) members: Vec<Handle>,
    pub(super) failures: Countdown,
    pub(super) channels: u16,
    pub(super) running: Option<(u64, Vec<Channel>)>,
    pub(super) downs: Vec<String>,
    on_loss: OnLoss,
    now: Duration,
    sums: Vec<u64>,
}

impl Driver {
    pub(super) fn new(members: usize, on_loss: OnLoss, channels: u16) -> Self {
        let failures: Countdown = Arc::new(Mutex::new(None));
        let (fakes, handles): (Vec<Fake>, Vec<Handle>) =
            (0..members).map(|number| Fake::new(number, EACH, &failures)).unzip();
        let boxed = |fake| Box::new(fake) as Box<dyn Function>;
        let group = GroupFunction::new(GroupConfig {
            name: "group".to_owned(),
            members: fakes.into_iter().map(boxed).collect(),
            on_loss,
            primary: None,
            seed: 1,
        });
        let group = group.unwrap();
        let sums = vec![0; group.stats().len()];
        let (running, downs, now) = (None, Vec::new(), Duration::ZERO);
        Self { group, members: handles, failures, channels, running, downs, on_loss, now, sums }
    }

    fn plan(&self, channels: u16) -> Plan {
        let wanted = Caps { wanted: Some(channels), ..caps(64) };
        Plan::join(&self.group.caps(), &wanted).unwrap()
    }

    pub(super) fn take_down(&mut self) {
        if self.running.take().is_some() {
            self.group.set_carrier(false);
            self.group.close("test");
        }
    }

    /// Executes one step of the link, as `Link::turn` does.
    pub(super) fn turn(&mut self) {
        // Advance by more than the retry delay of a failback.
        self.now += Duration::from_secs(1);
        match self.group.poll_link(self.now) {
            LinkStatus::Down(why) => {
                self.take_down();
                self.downs.push(why);
            }
            LinkStatus::Up { session } => {
                if self.running.as_ref().is_some_and(|(old, _)| *old != session) {
                    self.take_down();
                }
                if self.running.is_none() {
                    match self.group.open(&self.plan(self.channels)) {
                        Ok(channels) => {
                            assert_eq!(channels.len(), usize::from(self.channels));
                            self.running = Some((session, channels));
                            self.group.set_carrier(true);
                        }
                        Err(_) => self.group.close("test"),
                    }
                }
            }
        }
        if let Some((_, channels)) = &mut self.running {
            let due = self.group.refit();
            for &channel in &due {
                let Channel { rx, tx } = &mut channels[usize::from(channel)];
                rx.queue().park();
                tx.queue().park();
            }
            if !due.is_empty() {
                self.group.refitted();
            }
        }
    }

    /// Changes the number of channels. Returns false on failure; the old channels then stay in use.
    pub(super) fn resize(&mut self, to: u16) -> bool {
        let Some((session, old)) = self.running.take() else {
            self.channels = to;
            return true;
        };
        let plan = self.plan(to);
        let Ok(next) = self.group.prepare(&plan) else {
            self.running = Some((session, old));
            return false;
        };
        if to != self.channels && self.group.steer(to).is_err() {
            drop(next);
            self.group.abort();
            self.running = Some((session, old));
            return false;
        }
        drop(old);
        let _ = self.group.commit();
        self.channels = to;
        self.running = Some((session, next));
        true
    }

    /// Sets the link state of a member.
    pub(super) fn set_up(&mut self, member: usize, up: bool) {
        let mut state = self.members[member].get();
        if up && !state.up {
            state.session += 1;
        }
        state.up = up;
    }

    /// Polls until the state is stable, including retries of failed steps, then checks the
    /// invariants.
    pub(super) fn settle(&mut self) {
        let may_fail = self.failures.lock().unwrap().is_some();
        (0..if may_fail { 4 } else { 2 }).for_each(|_| self.turn());
        self.check();
    }

    fn up(&self) -> Vec<bool> {
        self.members.iter().map(|member| member.get().up).collect()
    }

    /// Checks all invariants.
    pub(super) fn check(&mut self) {
        let views = self.group.members();
        let primaries: Vec<usize> = (0..views.len()).filter(|&at| views[at].primary).collect();
        assert_eq!(primaries, [self.members.len() - 1]);
        assert_eq!(views[primaries[0]].why, format!("smallest id id-{}", 9 - primaries[0]));
        for (at, member) in self.members.iter().enumerate() {
            let state = member.get();
            assert_eq!(state.wrong, Vec::<String>::new());
            assert_eq!(state.prepared, None, "member {at}: a change was left open");
            let used = self.running.is_some() && state.up;
            assert_eq!(state.open.is_some(), used, "member {at}: {state:?}");
            assert_eq!(state.queues, 2 * i32::from(state.open.unwrap_or(0)), "member {at}");
            assert!(!used || state.carrier, "member {at}");
        }
        let up = self.up();
        if self.on_loss == OnLoss::Destroy && !up.contains(&false) {
            assert!(self.running.is_some());
        }
        self.send_everywhere(&up, &views);
    }

    fn send_everywhere(&mut self, up: &[bool], views: &[MemberView]) {
        let map = MemberMap::new(self.members.len());
        let Some((_, channels)) = &mut self.running else { return };
        for (number, channel) in (0u16..).zip(channels) {
            self.members.iter().for_each(|member| member.get().sent_on = None);
            let mut burst = Burst::new();
            burst.push(VnetHdr::default(), 60, Span::of(&[0; 60]));
            assert_eq!(channel.tx.submit(&burst, 0).unwrap(), 1, "channel {number}");
            let served = |at: usize| self.members[at].get().sent_on.map(|local| (at, local));
            let (at, local) = (0..up.len()).find_map(served).unwrap();
            let own = map.place(number);
            if up[own.member] {
                assert_eq!((at, local), (own.member, own.local), "channel {number}");
            } else {
                assert!(self.on_loss == OnLoss::Degrade && up[at], "channel {number}");
                assert!(views[at].standing_in.contains(&number), "channel {number}: {views:?}");
            }
            assert!(views[own.member].channels.contains(&number));
            // Expect the count at the queue that accepted the frame.
            let counted = map.channel(crate::MemberQueue { member: at, local }) as usize;
            self.sums[counted] += 1;
            assert!(counted < usize::from(self.group.counted()));
        }
        let counted: Vec<u64> = self.group.stats().iter().map(|s| s.tx.packets.get()).collect();
        assert_eq!(counted, self.sums);
    }

    /// Ends the link and checks that no member has an open channel or change.
    pub(super) fn end(mut self) {
        self.take_down();
        for member in &self.members {
            let state = member.get();
            assert_eq!(state.wrong, Vec::<String>::new());
            assert_eq!((state.open, state.prepared, state.queues), (None, None, 0));
        }
    }
}
