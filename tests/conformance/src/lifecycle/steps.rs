//! Steps of a life-cycle run.

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{OpenChannelsError, Plan};

use super::{End, Injection, Life, Open};
use crate::resources::{Resources, with_descriptors};
use crate::setups::partner;

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Prepare,
    Steer,
    Commit,
    Abort,
    /// Commit or abort without a prepared change.
    Stray,
    Exchange,
    Close,
    Kill,
    Unplug,
    Look,
}

/// Steps and their weights.
const STEPS: [(Step, u64); 11] = [
    (Step::Open, 40),
    (Step::Prepare, 40),
    (Step::Steer, 40),
    (Step::Commit, 30),
    (Step::Abort, 10),
    (Step::Stray, 6),
    (Step::Exchange, 6),
    (Step::Close, 4),
    (Step::Kill, 2),
    (Step::Unplug, 2),
    (Step::Look, 1),
];

/// Runs a call with an injected failure.
fn inject<T>(injection: Injection, call: impl FnOnce() -> T) -> T {
    match injection {
        Injection::Descriptors(more) => with_descriptors(more, call),
        Injection::None | Injection::TooMany => call(),
    }
}

impl Life {
    /// True if the contract allows the step in the current state.
    fn is_possible(&self, step: Step) -> bool {
        let is_open = self.ends.iter().all(|end| end.open.is_some());
        let is_changing = self.ends.iter().any(|end| end.next.is_some());
        let is_steered = self.ends.iter().any(|end| end.steered);
        match step {
            Step::Open => !is_open,
            Step::Prepare => is_open && !is_changing && self.setup.can_change(),
            Step::Steer => is_changing && !is_steered,
            Step::Commit => is_steered,
            Step::Abort => is_changing,
            Step::Stray => !is_changing,
            Step::Unplug => self.plugged,
            Step::Exchange | Step::Close | Step::Kill | Step::Look => true,
        }
    }

    /// Runs one random step that is allowed in the current state.
    pub(super) fn step(&mut self) {
        let possible: Vec<(Step, u64)> =
            STEPS.into_iter().filter(|(step, _)| self.is_possible(*step)).collect();
        let all: u64 = possible.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random(all);
        let chosen = possible.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        match chosen.map_or(Step::Exchange, |(step, _)| *step) {
            Step::Open => {
                let channels = self.any_channels();
                self.open_all(channels, true);
            }
            Step::Prepare => self.prepare_all(),
            Step::Steer => self.steer_all(),
            Step::Commit => self.commit_all(),
            Step::Abort => self.abort_all(),
            Step::Stray => self.stray(),
            Step::Close => {
                let end = self.any_end();
                if self.ends[end].function.is_some() {
                    self.close(end, "as the test wants");
                }
            }
            Step::Kill => {
                let end = self.any_end();
                self.kill(end);
            }
            Step::Unplug => self.unplug(),
            Step::Look => self.check_closed(),
            Step::Exchange => {}
        }
        self.check_up();
        self.exchange();
    }

    fn any_end(&mut self) -> usize {
        let count = self.ends.len() as u64;
        self.random(count) as usize
    }

    fn any_channels(&mut self) -> u16 {
        let (least, most) = self.setup.channels().into_inner();
        least + self.random(u64::from(most - least) + 1) as u16
    }

    fn any_injection(&mut self) -> Injection {
        match self.random(12) {
            0..=8 => Injection::None,
            9 => Injection::TooMany,
            _ => Injection::Descriptors(self.random(6) as usize),
        }
    }

    /// Random failure for a call without a plan: a limit of no further descriptors, or no failure.
    fn any_shortage(&mut self) -> Injection {
        if self.chance(4) { Injection::Descriptors(0) } else { Injection::None }
    }

    /// Tries once to open every closed end. With `failures`, calls may fail, and such ends stay
    /// closed.
    pub(super) fn open_all(&mut self, channels: u16, failures: bool) {
        if !self.plugged {
            self.setup.plug();
            self.plugged = true;
            self.note("plug");
        }
        for at in 0..self.ends.len() {
            if self.ends[at].function.is_none() {
                self.ends[at].function = Some(self.setup.make(at));
            }
        }
        let in_use = self.ends.iter().find_map(|end| end.open.as_ref());
        let channels = in_use.map_or(channels, |open| open.plan.channels);
        for end in self.ends.iter_mut().filter(|end| end.open.is_none()) {
            end.function().set_partner(&partner(channels));
        }
        let mut order = self.shuffled();
        order.sort_by_key(|at| self.setup.follows(*at).is_some());
        for at in order {
            let waits = self.setup.follows(at).is_some_and(|first| self.ends[first].open.is_none());
            if self.ends[at].open.is_none() && !waits {
                let injection = if failures { self.any_injection() } else { Injection::None };
                self.open_one(at, channels, injection);
            }
        }
    }

    fn open_one(&mut self, at: usize, channels: u16, injection: Injection) {
        let session = self.until_up(at);
        let plan = self.plan(at, channels);
        let channels = plan.channels;
        let opened = self.make(at, &plan, injection, |end, plan| end.function().open(plan));
        self.note(format!("open {at}, {channels} channels, {injection:?}: {:?}", opened.1));
        match opened.0 {
            Some(open) => {
                (self.ends[at].open, self.ends[at].session) = (Some(open), session);
                self.setup.opened(at, self.ends[at].function());
            }
            None => {
                self.failures += 1;
                self.close(at, "it could not be opened");
            }
        }
    }

    /// Creates channels with `call` under an injected failure. Returns the channels, or `None` if
    /// the call failed, and a text for the log.
    fn make(
        &mut self,
        at: usize,
        plan: &Plan,
        injection: Injection,
        call: impl FnOnce(&mut End, &Plan) -> Result<Vec<mqnet_netdev::Channel>, OpenChannelsError>,
    ) -> (Option<Open>, String) {
        let plan = match injection {
            Injection::TooMany => Plan { channels: CHANNELS_MAX + 1, ..plan.clone() },
            _ => plan.clone(),
        };
        match inject(injection, || call(&mut self.ends[at], &plan)) {
            Ok(channels) if channels.len() == usize::from(plan.channels) => {
                if injection == Injection::TooMany {
                    self.fail(&format!("end {at} has made {} channels", plan.channels));
                }
                (Some(Open { plan, channels }), "done".to_owned())
            }
            Ok(channels) => {
                let (made, wanted) = (channels.len(), plan.channels);
                self.fail(&format!("end {at} has made {made} channels of {wanted}"))
            }
            Err(e) if injection == Injection::None => self.fail(&format!("end {at}: {e}")),
            Err(e) => (None, e.to_string()),
        }
    }

    /// Counts a failed call, and asserts that all its resources are released unless the setup keeps
    /// descriptors.
    fn failed(&mut self, before: Resources) {
        self.failures += 1;
        if self.setup.keeps_descriptors() {
            return;
        }
        self.until("a failed call gives everything back", |_| {
            (Resources::now() == before).then_some(())
        });
    }

    fn prepare_all(&mut self) {
        let (least, most) = self.setup.channels().into_inner();
        let now = self.ends[0].open.as_ref().map_or(1, |open| open.plan.channels);
        // Select a number of channels that differs from the current one.
        let further = 1 + self.random(u64::from(most - least)) as u16;
        let channels = least + (now - least + further) % (most - least + 1);
        let pending = if self.chance(2) { self.launch() } else { Vec::new() };
        let mut all = true;
        for at in self.shuffled() {
            let injection = self.any_injection();
            let plan = self.next_plan(at, channels);
            let before = Resources::now();
            let made = self.make(at, &plan, injection, |end, plan| end.function().prepare(plan));
            self.note(format!("prepare {at}, {channels} channels, {injection:?}: {}", made.1));
            self.ends[at].next = made.0;
            if self.ends[at].next.is_none() {
                self.failed(before);
                all = false;
                break;
            }
        }
        self.land(pending);
        if !all {
            self.abort_all();
        }
    }

    fn abort_all(&mut self) {
        let pending = if self.chance(2) { self.launch() } else { Vec::new() };
        for at in self.shuffled() {
            self.abort_one(at);
        }
        self.land(pending);
    }

    fn steer_all(&mut self) {
        for at in self.shuffled() {
            let Some(next) = &self.ends[at].next else { continue };
            let channels = next.plan.channels;
            let injection = self.any_shortage();
            let done = inject(injection, || self.ends[at].function().steer(channels));
            self.note(format!("steer {at} to {channels}, {injection:?}: {done:?}"));
            self.ends[at].steered = true;
            if let Err(e) = done {
                if injection == Injection::None {
                    self.fail(&format!("end {at}: {e}"));
                }
                self.failures += 1;
                self.abort_all();
                return;
            }
        }
    }

    fn commit_all(&mut self) {
        self.changes += 1;
        for at in self.shuffled() {
            let end = &mut self.ends[at];
            let Some(next) = end.next.take() else { continue };
            (end.open, end.steered) = (Some(next), false);
            let injection = self.any_shortage();
            let done = inject(injection, || self.ends[at].function().commit());
            self.note(format!("commit {at}, {injection:?}: {done:?}"));
        }
    }

    /// Commits or aborts without a prepared change; both calls succeed and have no effect.
    fn stray(&mut self) {
        let at = self.any_end();
        let pending = self.launch();
        let is_commit = self.chance(2);
        if let Some(function) = &mut self.ends[at].function {
            if is_commit {
                let done = function.commit();
                assert!(done.is_ok(), "a commit of nothing: {done:?}");
            } else {
                function.abort();
            }
            self.note(format!("stray, commit {is_commit}, {at}"));
        }
        self.land(pending);
    }

    fn unplug(&mut self) {
        let lost = self.setup.unplug();
        if lost.is_empty() {
            return;
        }
        self.plugged = false;
        self.note("unplug");
        // An end that has not yet detected the loss may prepare a change. The call may fail, and
        // has no other effect.
        for at in self.shuffled() {
            if self.ends[at].open.is_some() && self.ends[at].next.is_none() && self.chance(2) {
                let plan = self.ends[at].open.as_ref().expect("it is open").plan.clone();
                let made = self.ends[at].function().prepare(&plan);
                self.note(format!("blind prepare {at}: {:?}", made.as_ref().map(Vec::len)));
                if made.is_ok() {
                    drop(made);
                    self.ends[at].function().abort();
                }
            }
        }
        for at in 0..self.ends.len() {
            if lost.contains(&at) && self.ends[at].open.is_some() {
                self.end_lost(at);
            } else if self.ends[at].function.is_some() {
                self.abort_one(at);
            }
        }
    }
}
