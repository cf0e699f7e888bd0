//! Life cycle of a function: random sequences of the contract's calls, with injected failures,
//! checked against a model.
//!
//! The model contains the channels in use. The contract requires after each step:
//! - A failed call and an aborted change leave the previous state.
//! - Frames cross the channels in use and no others.
//! - The link is down exactly if the other end, or the medium that joins the ends, was removed.
//! - When all ends are closed, the numbers of descriptors, mappings and threads are the same as
//!   before.

mod steps;
mod traffic;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mqnet_netdev::{Channel, Function, LinkStatus, NextPlan, Plan, RequestedRings};
use mqnet_sysio::clock;

use crate::resources::Resources;
use crate::setups::{Loss, Setup, partner};
use crate::world::random;

/// Time limit of any operation, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Simulated time between two polls.
const POLL: Duration = Duration::from_millis(7);

/// Open channels and their plan.
struct Open {
    plan: Plan,
    channels: Vec<Channel>,
}

/// One end with its expected state.
#[derive(Default)]
struct End {
    /// Function of the end; `None` if the process of the end has ended.
    function: Option<Box<dyn Function>>,
    open: Option<Open>,
    /// Channels and plan of the prepared change.
    next: Option<Open>,
    steered: bool,
    /// Session in which the channels were opened.
    session: u64,
}

impl End {
    fn function(&mut self) -> &mut dyn Function {
        &mut **self.function.as_mut().expect("it lives")
    }

    fn drop_channels(&mut self) {
        (self.open, self.next, self.steered) = (None, None, false);
    }
}

/// Failure injected into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injection {
    None,
    /// The process can open only this number of further descriptors.
    Descriptors(usize),
    /// The plan has more channels than the function supports.
    TooMany,
}

/// Life-cycle run of one setup.
pub struct Life {
    setup: Box<dyn Setup>,
    ends: Vec<End>,
    dice: u64,
    /// Simulated time added to the monotonic clock.
    skew: Duration,
    plugged: bool,
    /// Steps so far, for failure messages.
    log: Vec<String>,
    /// Number of test frames sent, and numbers of the received ones.
    sent: u32,
    arrived: HashSet<u32>,
    /// Number of injections that made a call fail.
    failures: u32,
    /// Number of committed changes.
    changes: u32,
    /// Resources in use when all ends are closed; `None` before the first count.
    closed: Option<Resources>,
}

/// Counts of one life-cycle run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Number of calls that failed because of an injection.
    pub failures: u32,
    /// Number of committed changes.
    pub changes: u32,
}

/// Runs `steps` random steps, and checks that no resource remains in use at the end.
pub fn live(make: &mut dyn FnMut() -> Box<dyn Setup>, seed: u64, steps: u32) -> Seen {
    let before = Resources::now();
    let mut life = Life::new(make(), seed);
    life.check_closed();
    for _ in 0..steps {
        life.step();
    }
    life.check_closed();
    let seen = Seen { failures: life.failures, changes: life.changes };
    let log = std::mem::take(&mut life.log);
    drop(life);
    let begin = Instant::now();
    while Resources::now() != before {
        let now = Resources::now();
        assert!(begin.elapsed() < PATIENCE, "left behind: {before:?}, {now:?}: {log:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("steps: {:#?}", self.log);
        }
    }
}

impl Life {
    fn new(mut setup: Box<dyn Setup>, seed: u64) -> Self {
        let count = setup.ends();
        let make = |end| End { function: Some(setup.make(end)), ..End::default() };
        let ends = (0..count).map(make).collect();
        let log = vec![format!("{}, seed {seed}", setup.name())];
        // Mix the setup's name into the seed (FNV-1a), so that each setup runs another sequence.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let dice = setup.name().bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, mix) | 1;
        Self {
            setup,
            ends,
            dice,
            skew: Duration::ZERO,
            plugged: true,
            log,
            sent: 0,
            arrived: HashSet::new(),
            failures: 0,
            changes: 0,
            closed: None,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        random(&mut self.dice) % below
    }

    fn chance(&mut self, of: u64) -> bool {
        self.random(of) == 0
    }

    /// All ends in random order.
    fn shuffled(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.ends.len()).collect();
        if self.chance(2) {
            order.reverse();
        }
        order
    }

    fn note(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}")
    }

    /// Advances the simulated time and polls all ends; returns their states.
    fn turn(&mut self) -> Vec<LinkStatus> {
        self.skew += POLL;
        let now = clock::monotonic() + self.skew;
        self.setup.turn(now);
        let dead = || LinkStatus::Down("dead".to_owned());
        let poll = |end: &mut End| end.function.as_mut().map_or_else(dead, |f| f.poll_link(now));
        self.ends.iter_mut().map(poll).collect()
    }

    /// Polls until `attempt` returns a result; returns this result.
    #[track_caller]
    fn until<T>(&mut self, what: &str, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            let statuses = self.turn();
            if let Some(found) = attempt(self) {
                return found;
            }
            if begin.elapsed() > PATIENCE {
                self.fail(&format!("{what}: not within {PATIENCE:?}: {statuses:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Polls until an end is up; returns its session.
    fn until_up(&mut self, end: usize) -> u64 {
        let begin = Instant::now();
        loop {
            match self.turn().swap_remove(end) {
                LinkStatus::Up { session } => return session,
                LinkStatus::Down(why) if begin.elapsed() > PATIENCE => {
                    self.fail(&format!("end {end} is not up: {why}"))
                }
                LinkStatus::Down(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// True if an end is down or in another session, so that its channels must be closed.
    fn is_lost(&mut self, end: usize) -> bool {
        let session = self.ends[end].session;
        self.turn().swap_remove(end) != LinkStatus::Up { session }
    }

    /// Asserts that every open end stays up in the session in which it was opened.
    fn check_up(&mut self) {
        for _ in 0..3 {
            let statuses = self.turn();
            for (at, (end, status)) in self.ends.iter().zip(statuses).enumerate() {
                let expected = LinkStatus::Up { session: end.session };
                if end.open.is_some() && status != expected {
                    self.fail(&format!("end {at} is {status:?}, expected {expected:?}"));
                }
            }
        }
    }

    /// Plan for opening an end: the plan agreed with the peer, or without a peer a plan with
    /// `channels` channels.
    fn plan(&mut self, end: usize, channels: u16) -> Plan {
        let there = partner(channels);
        let function = self.ends[end].function();
        let agreed = function.peer().map(|peer| peer.plan().expect("an agreement").mirrored());
        agreed.unwrap_or_else(|| Plan::join(&function.caps(), &there).expect("a plan"))
    }

    /// Plan of a change to `channels` channels. Ends with a peer first agree on the plan.
    fn next_plan(&mut self, end: usize, channels: u16) -> Plan {
        if self.ends[end].function().peer().is_none() {
            return self.plan(end, channels);
        }
        for end in &mut self.ends {
            let peer = end.function().peer().expect("both ends have one");
            peer.publish_request(&partner(channels), RequestedRings::default());
        }
        let outlook = |life: &mut Self| match life.ends[end].function().peer()?.next_plan() {
            NextPlan::Change(plan) if plan.channels == channels => Some(plan.mirrored()),
            _ => None,
        };
        self.until("both ends want the same", outlook)
    }

    /// Closes an end and updates the other end according to its setup.
    fn close(&mut self, end: usize, why: &str) {
        self.note(format!("close {end}: {why}"));
        self.ends[end].drop_channels();
        self.ends[end].function().close(why);
        self.lose_others(end, Loss::Closed);
    }

    /// Drops an end without a close, as if its process had been killed.
    fn kill(&mut self, end: usize) {
        self.note(format!("kill {end}"));
        self.ends[end].drop_channels();
        self.ends[end].function = None;
        self.lose_others(end, Loss::Killed);
    }

    /// Updates the ends other than `lost`. An open end goes down if [`Setup::notices`] is true for
    /// it; otherwise its prepared change is aborted.
    fn lose_others(&mut self, lost: usize, loss: Loss) {
        for other in (0..self.ends.len()).filter(|other| *other != lost) {
            if self.ends[other].function.is_none() {
                continue;
            }
            if self.ends[other].open.is_some() && self.setup.notices(other, loss) {
                self.end_lost(other);
            } else {
                self.abort_one(other);
            }
        }
        self.check_up();
    }

    /// Waits until an open end is down or in another session, then closes the end.
    fn end_lost(&mut self, end: usize) {
        self.until("a lost link is seen", |life| life.is_lost(end).then_some(()));
        self.ends[end].drop_channels();
        self.ends[end].function().close("the link is down");
        self.note(format!("end {end} was lost"));
    }

    /// Aborts the prepared change of an end, if any. A steered end may first steer back to its
    /// current channels.
    fn abort_one(&mut self, at: usize) {
        let steers_back = self.chance(2);
        let end = &mut self.ends[at];
        if end.next.take().is_none() {
            return;
        }
        if let (true, Some(open)) = (end.steered && steers_back, &end.open) {
            let channels = open.plan.channels;
            let back = end.function().steer(channels);
            self.note(format!("steer {at} back to {channels}: {back:?}"));
        }
        self.ends[at].steered = false;
        self.ends[at].function().abort();
        self.note(format!("abort {at}"));
    }

    fn close_all(&mut self) {
        for end in self.shuffled() {
            if self.ends[end].open.is_some() {
                self.close(end, "the test checks");
            }
        }
    }

    /// Closes all ends, and opens and closes them with the most and the fewest channels. Asserts
    /// that the resources in use are those of the previous check.
    fn check_closed(&mut self) {
        self.close_all();
        let (least, most) = self.setup.channels().into_inner();
        for channels in [most, least] {
            self.open_all(channels, false);
            self.exchange();
            self.close_all();
        }
        self.until("ends that can be up are", |life| {
            let statuses = life.turn();
            let free = |at: &usize| life.setup.follows(*at).is_none();
            let is_up = |at: usize| matches!(statuses[at], LinkStatus::Up { .. });
            (0..statuses.len()).filter(free).all(is_up).then_some(())
        });
        match self.closed {
            None => self.closed = Some(self.still()),
            Some(before) => {
                let begin = Instant::now();
                while Resources::now() != before {
                    self.turn();
                    if begin.elapsed() > PATIENCE {
                        let now = Resources::now();
                        let open = crate::resources::descriptors();
                        self.fail(&format!("not given back: {before:?}, {now:?}: {open:?}"));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        self.note("closed");
    }

    /// Polls until the resources in use have not changed for 20 polls; returns them.
    fn still(&mut self) -> Resources {
        let (mut last, mut since) = (Resources::now(), 0);
        while since < 20 {
            self.turn();
            std::thread::sleep(Duration::from_millis(5));
            let now = Resources::now();
            since = if now == last { since + 1 } else { 0 };
            last = now;
        }
        last
    }
}
