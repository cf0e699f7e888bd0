//! Switch of one direction of a running link from one set of lanes to another.
//!
//! # Order of frames
//! A flow may change its queue when the number of queues changes. Its older frames then wait in one
//! queue while its newer frames arrive in another, and two lanes race. These steps ensure that no
//! frame is lost, duplicated or reordered:
//!
//! 1. Lanes of queues that *gain* flows stop receiving; new frames wait in the source.
//! 2. The source changes its steering. The call returns when no frame can arrive by the old
//!    steering.
//! 3. Lanes of queues that *lose* flows continue until the frames that waited at step 2 have moved.
//! 4. All lanes of the new set start with sinks that *hold*: frames collect there, unpublished.
//! 5. Frames in disciplines of the old lanes are sent through the old sinks.
//! 6. When the peer has taken all frames that the old sinks published, the new sinks are released.
//!
//! At step 6 every older frame has been delivered, and no newer frame was visible before. The
//! source is read at all times except in steps 1 to 3, so a kernel ring does not overflow.
//! (Rejected: ordering by the receiver alone, with a marker in every ring. That needs a frame in
//! every ring, and the peer's cooperation after a failure.)

use std::sync::mpsc::Receiver;

use mqnet_netdev::{Fault, Function};

use crate::lane::{Closing, Lane, LaneId};
use crate::worker::Leave;
use crate::worker_pool::WorkerPool;

/// Leave condition of a lane: all frames that wait in the source at the request have been received.
/// If the source is never empty, the number of frames that the source can hold is the limit.
pub(crate) fn drained(source: &mut dyn Function) -> Leave {
    Leave::Drained { most: source.waiting_most() }
}

/// Progress of a switch.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The switch is not complete; the next call continues it.
    Waiting,
    /// The new lanes run, and the old lanes are drained.
    Done,
    /// The source could not change its steering, and the old lanes run as before. The string is the
    /// reason.
    Failed(String),
    /// A sink has failed, so the link must be closed.
    Broken(Fault),
}

enum Phase {
    Start,
    /// Lanes that gain flows are leaving their workers.
    Gaining(Receiver<Lane>),
    /// Lanes that lose flows are leaving their workers.
    Losing(Receiver<Lane>),
    /// The new lanes run and hold. Old lanes with disciplines are attached again to send their
    /// waiting frames.
    Emptying(Receiver<Lane>, usize),
    /// The new lanes hold, and the old sinks, which have all older frames, are being drained.
    Draining,
}

/// Switch of one direction.
pub(crate) struct Switch {
    gaining: Vec<LaneId>,
    losing: Vec<LaneId>,
    /// Number of queues to steer to; `None`: flows keep their queues.
    steer: Option<u16>,
    /// True if frames that are too large for the new lanes may wait in the source.
    empty_all: bool,
    /// Condition for lanes that must first receive all frames that wait in their source.
    drained: Leave,
    /// Lanes of the new set that are not attached yet.
    next: Vec<Lane>,
    next_ids: Vec<LaneId>,
    /// Lanes of the old set that have left their workers.
    parked: Vec<Lane>,
    phase: Phase,
}

impl Switch {
    /// Creates a switch from the lanes `old` to the lanes `next`. `empty_all` is true if frames
    /// that are too large for the new lanes may wait in the source.
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
            // Query the condition before any lane stops, because the query can take long on a busy
            // machine.
            drained: drained(source),
            next_ids: next.iter().map(Lane::id).collect(),
            next,
            parked: Vec::new(),
            phase: Phase::Start,
        }
    }

    /// Performs one step of the switch.
    pub(crate) fn turn(&mut self, workers: &WorkerPool, source: &mut dyn Function) -> Progress {
        match &mut self.phase {
            Phase::Start => {
                let leave = if self.empty_all { self.drained } else { Leave::Settled };
                self.phase = Phase::Gaining(workers.detach(&self.gaining, leave));
                Progress::Waiting
            }
            Phase::Gaining(detached) => {
                self.parked.extend(detached.try_iter());
                if self.parked.len() < self.gaining.len() {
                    return Progress::Waiting;
                }
                self.steer(workers, source)
            }
            Phase::Losing(detached) => {
                self.parked.extend(detached.try_iter());
                if self.parked.len() < self.gaining.len() + self.losing.len() {
                    return Progress::Waiting;
                }
                self.begin(workers);
                self.turn(workers, source)
            }
            Phase::Emptying(detached, left) => {
                let before = self.parked.len();
                self.parked.extend(detached.try_iter());
                *left -= self.parked.len() - before;
                if *left > 0 {
                    return Progress::Waiting;
                }
                self.phase = Phase::Draining;
                self.check_drained(workers)
            }
            Phase::Draining => self.check_drained(workers),
        }
    }

    fn steer(&mut self, workers: &WorkerPool, source: &mut dyn Function) -> Progress {
        let steered = self.steer.map_or(Ok(()), |channels| source.steer(channels));
        if let Err(e) = steered {
            self.parked.drain(..).for_each(|lane| workers.attach(lane));
            return Progress::Failed(e.to_string());
        }
        // If every flow keeps its queue, the old lane need not drain its source: the new lane of
        // that queue continues with the next frame.
        let stays = self.steer.is_none() && !self.empty_all;
        let leave = if stays { Leave::Settled } else { self.drained };
        self.phase = Phase::Losing(workers.detach(&self.losing, leave));
        Progress::Waiting
    }

    fn begin(&mut self, workers: &WorkerPool) {
        for mut lane in self.next.drain(..) {
            // Ignore the error of a failed device, which the lane detects at its next poll.
            let _ = lane.hold(true);
            lane.open_source();
            workers.attach(lane);
        }
        let (waiting, parked): (Vec<Lane>, Vec<Lane>) =
            self.parked.drain(..).partition(|lane| lane.has_disciplines());
        self.parked = parked;
        let ids: Vec<LaneId> = waiting.iter().map(Lane::id).collect();
        for (mut lane, closing) in waiting.into_iter().zip(Closing::of(ids.len())) {
            lane.close_source(closing);
            workers.attach(lane);
        }
        self.phase = Phase::Emptying(workers.detach(&ids, Leave::Settled), ids.len());
    }

    fn check_drained(&mut self, workers: &WorkerPool) -> Progress {
        for lane in &mut self.parked {
            match lane.tx().is_drained() {
                Ok(true) => {}
                Ok(false) => return Progress::Waiting,
                Err(fault) => return Progress::Broken(fault),
            }
        }
        for id in &self.next_ids {
            workers.edit(*id, Box::new(|lane| lane.hold(false)));
        }
        Progress::Done
    }

    /// Returns the lanes that are not attached: the old lanes after [`Progress::Done`], the new
    /// lanes after [`Progress::Failed`].
    pub(crate) fn into_idle(mut self) -> Vec<Lane> {
        if let Phase::Gaining(detached) | Phase::Losing(detached) | Phase::Emptying(detached, _) =
            &self.phase
        {
            // The link was closed during the switch, so collect the lanes that have left since the
            // last step.
            self.parked.extend(detached.try_iter());
        }
        self.parked.append(&mut self.next);
        self.parked
    }
}
