//! Moves one direction of a link from one set of lanes to another, in mid-flow.
//!
//! # Why nothing is lost, doubled or reordered
//! A flow may change its queue when the number of queues changes. Its older frames then wait in one
//! place while its newer ones arrive in another, and two lanes race. So:
//!
//! 1. lanes of queues that *gain* flows stop taking: what comes now waits in the source;
//! 2. the source steers, and says when nothing can still come by the old choice;
//! 3. lanes of queues that *lose* flows go on until what waited when they were told has moved;
//! 4. all lanes of the new set begin, with sinks that *hold*: frames gather there unseen;
//! 5. what waits in disciplines of the old lanes goes out through their sinks;
//! 6. when the peer has taken everything that the old sinks published, the new ones let go.
//!
//! At step 6 every older frame has been delivered and no newer one was visible before it. The
//! source is read all the time but for steps 1 to 3, so a ring of the kernel does not overflow.
//! (Rejected: the receiver alone keeps the order, by a marker in every ring. It needs a frame in
//! every ring, and the peer's help when something fails.)

use std::sync::mpsc::Receiver;

use mqnet_netdev::{Fault, Function};

use crate::crew::Crew;
use crate::lane::{Closing, Lane, LaneId};
use crate::worker::Leave;

/// When everything has been taken that waits in the source now. A source that is never empty is
/// left after as many frames as it can hold: for longer than that, new lanes must not wait.
pub(crate) fn drained(source: &mut dyn Function) -> Leave {
    Leave::Drained { most: source.waiting_most() }
}

/// How far a switch is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Come again soon.
    Waiting,
    /// The new lanes run, and the old ones have nothing left.
    Done,
    /// The source could not steer: the old lanes run as before.
    Failed(String),
    /// A sink is broken: the link cannot go on.
    Broken(Fault),
}

enum Phase {
    Start,
    /// Lanes that gain flows are on their way home.
    Gaining(Receiver<Lane>),
    /// Lanes that lose flows are.
    Losing(Receiver<Lane>),
    /// The new lanes run and hold; old lanes with frames in their disciplines send those.
    Emptying(Receiver<Lane>, usize),
    /// The same, and all frames are in the old sinks, which are being drained.
    Draining,
}

/// One move.
pub(crate) struct Switch {
    gaining: Vec<LaneId>,
    losing: Vec<LaneId>,
    /// Queues that the source is to steer to; `None`: flows stay where they are.
    steer: Option<u16>,
    /// Frames that the new lanes could not carry may wait in the source.
    empty_all: bool,
    /// When a lane leaves that must leave nothing behind.
    drained: Leave,
    /// Lanes of the new set, until they run.
    next: Vec<Lane>,
    next_ids: Vec<LaneId>,
    /// Lanes of the old set, once they have left.
    parked: Vec<Lane>,
    phase: Phase,
}

impl Switch {
    /// From the lanes `old` to the lanes `next`. `empty_all`: frames that the new lanes could not
    /// carry may wait in the source.
    pub(crate) fn new(
        old: &[LaneId],
        next: Vec<Lane>,
        empty_all: bool,
        source: &mut dyn Function,
    ) -> Self {
        let (before, after) = (old.len(), next.len());
        let shrinks = after < before && source.steers();
        let gains = |lane: &LaneId| shrinks && usize::from(lane.channel) < after;
        let (gaining, losing) = old.iter().copied().partition(gains);
        Self {
            gaining,
            losing,
            steer: (before != after).then_some(after as u16),
            empty_all,
            // Asked while nothing waits: the answer can take a while on a busy machine.
            drained: drained(source),
            next_ids: next.iter().map(Lane::id).collect(),
            next,
            parked: Vec::new(),
            phase: Phase::Start,
        }
    }

    /// One step.
    pub(crate) fn turn(&mut self, crew: &Crew, source: &mut dyn Function) -> Progress {
        match &mut self.phase {
            Phase::Start => {
                let leave = if self.empty_all { self.drained } else { Leave::Settled };
                self.phase = Phase::Gaining(crew.detach(&self.gaining, leave));
                Progress::Waiting
            }
            Phase::Gaining(home) => {
                self.parked.extend(home.try_iter());
                if self.parked.len() < self.gaining.len() {
                    return Progress::Waiting;
                }
                self.steer(crew, source)
            }
            Phase::Losing(home) => {
                self.parked.extend(home.try_iter());
                if self.parked.len() < self.gaining.len() + self.losing.len() {
                    return Progress::Waiting;
                }
                self.begin(crew);
                self.turn(crew, source)
            }
            Phase::Emptying(home, left) => {
                let before = self.parked.len();
                self.parked.extend(home.try_iter());
                *left -= self.parked.len() - before;
                if *left > 0 {
                    return Progress::Waiting;
                }
                self.phase = Phase::Draining;
                self.look_whether_drained(crew)
            }
            Phase::Draining => self.look_whether_drained(crew),
        }
    }

    fn steer(&mut self, crew: &Crew, source: &mut dyn Function) -> Progress {
        let steered = self.steer.map_or(Ok(()), |channels| source.steer(channels));
        if let Err(e) = steered {
            self.parked.drain(..).for_each(|lane| crew.attach(lane));
            return Progress::Failed(e.to_string());
        }
        // Where every flow stays in its queue, the new lane of the queue goes on at any frame.
        let stays = self.steer.is_none() && !self.empty_all;
        let leave = if stays { Leave::Settled } else { self.drained };
        self.phase = Phase::Losing(crew.detach(&self.losing, leave));
        Progress::Waiting
    }

    fn begin(&mut self, crew: &Crew) {
        for mut lane in self.next.drain(..) {
            // Fails for a broken device only, and the lane will find that out.
            let _ = lane.hold(true);
            lane.open_source();
            crew.attach(lane);
        }
        let (waiting, parked): (Vec<Lane>, Vec<Lane>) =
            self.parked.drain(..).partition(|lane| lane.has_disciplines());
        self.parked = parked;
        let ids: Vec<LaneId> = waiting.iter().map(Lane::id).collect();
        for (mut lane, closing) in waiting.into_iter().zip(Closing::of(ids.len())) {
            lane.close_source(closing);
            crew.attach(lane);
        }
        self.phase = Phase::Emptying(crew.detach(&ids, Leave::Settled), ids.len());
    }

    fn look_whether_drained(&mut self, crew: &Crew) -> Progress {
        for lane in &mut self.parked {
            match lane.tx().is_drained() {
                Ok(true) => {}
                Ok(false) => return Progress::Waiting,
                Err(fault) => return Progress::Broken(fault),
            }
        }
        for id in &self.next_ids {
            crew.edit(*id, Box::new(|lane| lane.hold(false)));
        }
        Progress::Done
    }

    /// What does not run: the old lanes after [`Progress::Done`], the new ones after
    /// [`Progress::Failed`].
    pub(crate) fn into_idle(mut self) -> Vec<Lane> {
        if let Phase::Gaining(home) | Phase::Losing(home) | Phase::Emptying(home, _) = &self.phase {
            // The link has ended meanwhile.
            self.parked.extend(home.try_iter());
        }
        self.parked.append(&mut self.next);
        self.parked
    }
}
