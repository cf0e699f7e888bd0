//! A worker: a pinned thread that polls lanes, and sleeps when none has work.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_counters::{Counter, Padded};
use mqnet_netdev::{Armed, Fault};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{affinity, clock};

use crate::idle::{IdlePolicy, Pause};
use crate::lane::{Lane, Polled};

/// How many busy passes may go by before sleeping lanes are looked at.
const PASSES_PER_LOOK: u32 = 32;

/// How many poll windows a lane may be idle while other lanes of its worker are not.
const PATIENCE: u32 = 64;

/// Key of the command event in the worker's epoll.
const COMMAND: u64 = u64::MAX;

/// How a worker spends its time.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Passes over the lanes.
    pub passes: Counter,
    /// Times that it slept.
    pub sleeps: Counter,
}

/// Orders for a worker.
enum Command {
    Attach(Box<Lane>),
    /// Give every lane back, in the order of attachment.
    Detach(Sender<Vec<Lane>>),
    Stop,
}

/// What a worker tells the control thread.
pub(crate) struct LaneFault {
    pub(crate) fault: Fault,
}

struct Shared {
    pending: AtomicBool,
    wake: EventFd,
    stats: Padded<WorkerStats>,
}

/// The control thread's end of a worker.
pub(crate) struct Worker {
    pub(crate) cpu: Option<usize>,
    commands: Sender<Command>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    stuck: std::cell::Cell<bool>,
}

/// How faults reach the control thread.
#[derive(Clone)]
pub(crate) struct FaultLine {
    pub(crate) sender: Sender<LaneFault>,
    pub(crate) wake: Arc<EventFd>,
}

impl Worker {
    pub(crate) fn spawn(
        number: usize,
        cpu: Option<usize>,
        policy: IdlePolicy,
        faults: FaultLine,
    ) -> io::Result<Self> {
        let (commands, receiver) = channel();
        let shared = Arc::new(Shared {
            pending: AtomicBool::new(false),
            wake: EventFd::new()?,
            stats: Padded::default(),
        });
        let epoll = Epoll::new()?;
        epoll.add(shared.wake.as_fd(), Interest::ReadableEdge, COMMAND)?;
        let body = Body {
            receiver,
            shared: shared.clone(),
            epoll,
            policy,
            faults,
            slots: Vec::new(),
            watches: Vec::new(),
            active: 0,
            now: clock::monotonic(),
        };
        let name = format!("mqnet-worker{number}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if let Some(cpu) = cpu {
                // Refused when the cpuset shrank since we read it: the worker floats then.
                let _ = affinity::pin_current_thread(cpu);
            }
            body.run();
        })?;
        Ok(Self { cpu, commands, shared, thread: Some(thread), stuck: false.into() })
    }

    fn send(&self, command: Command) {
        // A worker that is gone has nothing to be told.
        let _ = self.commands.send(command);
        // Pairs with the Acquire swap in Body::obey: the command in the queue.
        self.shared.pending.store(true, Ordering::Release);
        let _ = self.shared.wake.ring();
    }

    pub(crate) fn attach(&self, lane: Lane) {
        self.send(Command::Attach(Box::new(lane)));
    }

    /// Takes every lane back; `None` when the worker does not answer.
    pub(crate) fn detach_all(&self) -> Option<Vec<Lane>> {
        let (reply, lanes) = channel();
        self.send(Command::Detach(reply));
        let lanes = lanes.recv_timeout(Duration::from_secs(5)).ok();
        self.stuck.set(lanes.is_none());
        lanes
    }

    pub(crate) fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::Stop);
        // A worker that did not answer before would not end either: the process's end is its end.
        if let (Some(thread), false) = (self.thread.take(), self.stuck.get()) {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// Polled in every pass.
    Active,
    /// Asleep: its queue was asked to wake us.
    Armed,
    /// It has failed; the control thread knows.
    Faulty,
}

struct Slot {
    lane: Lane,
    state: LaneState,
    /// Polls in a row that moved nothing.
    empty: u32,
    /// When the worker first had time to notice that.
    idle_since: Duration,
}

impl Slot {
    fn pause(&mut self, policy: &IdlePolicy, window: Duration, now: Duration) -> Pause {
        // Time in which the worker did not look (others had the CPU) is not idle time of the lane.
        if self.empty <= policy.spins {
            self.idle_since = now;
        }
        policy.pause(self.empty, window, now.saturating_sub(self.idle_since))
    }
}

/// One descriptor and the lanes that it wakes (both lanes of a queue pair share a doorbell).
struct Watch {
    fd: OwnedFd,
    raw: i32,
    slots: Vec<usize>,
}

struct Body {
    receiver: Receiver<Command>,
    shared: Arc<Shared>,
    epoll: Epoll,
    policy: IdlePolicy,
    faults: FaultLine,
    slots: Vec<Slot>,
    watches: Vec<Watch>,
    active: usize,
    now: Duration,
}

impl Body {
    fn run(mut self) {
        let mut passes = 0u32;
        let mut empty = 0u32;
        loop {
            if self.shared.pending.load(Ordering::Relaxed) && self.obey() {
                return;
            }
            passes = passes.wrapping_add(1);
            self.shared.stats.passes.add(1);
            let moved = self.pass();
            if moved > 0 {
                empty = 0;
                if passes.is_multiple_of(PASSES_PER_LOOK) {
                    self.now = clock::monotonic();
                    self.put_to_sleep(self.policy.window * PATIENCE);
                    self.look_if_any_sleeps();
                }
                continue;
            }
            empty += 1;
            self.rest(empty);
        }
    }

    /// Polls every active lane once; returns the frames moved.
    #[inline]
    fn pass(&mut self) -> usize {
        let mut moved = 0;
        for slot in &mut self.slots {
            if slot.state != LaneState::Active {
                continue;
            }
            match slot.lane.poll(clock::monotonic) {
                Ok(Polled { frames: 0, .. }) => slot.empty = slot.empty.saturating_add(1),
                Ok(Polled { frames, .. }) => {
                    moved += frames;
                    slot.empty = 0;
                }
                Err(fault) => fail(slot, &mut self.active, &self.faults, fault),
            }
        }
        moved
    }

    /// A pass moved nothing.
    #[cold]
    fn rest(&mut self, empty: u32) {
        if empty < self.policy.spins && self.active > 0 {
            std::hint::spin_loop();
            return;
        }
        self.now = clock::monotonic();
        self.put_to_sleep(self.policy.window * PATIENCE);
        let idle = |s: &mut Slot| {
            s.state != LaneState::Active
                || s.pause(&self.policy, self.policy.window, self.now) == Pause::Sleep
        };
        if self.slots.iter_mut().all(idle) {
            self.put_to_sleep(self.policy.window);
        }
        if self.active > 0 {
            affinity::yield_now();
            self.look_if_any_sleeps();
        } else {
            self.shared.stats.sleeps.add(1);
            self.look(None);
            self.now = clock::monotonic();
        }
    }

    /// Arms the lanes that have been idle for `window`. Polling one lane more costs a waking
    /// worker little, and its peer a doorbell less: a lane sleeps alone only after a long time.
    fn put_to_sleep(&mut self, window: Duration) {
        for slot in &mut self.slots {
            if slot.state != LaneState::Active
                || slot.pause(&self.policy, window, self.now) != Pause::Sleep
            {
                continue;
            }
            match slot.lane.arm() {
                Ok(Armed::MoreWork) => {}
                Ok(Armed::Sleep) => {
                    slot.state = LaneState::Armed;
                    self.active -= 1;
                }
                Err(fault) => fail(slot, &mut self.active, &self.faults, fault),
            }
        }
    }

    fn look_if_any_sleeps(&mut self) {
        if self.active < self.slots.len() {
            self.look(Some(Duration::ZERO));
        }
    }

    /// Looks at the events, or waits for one.
    fn look(&mut self, timeout: Option<Duration>) {
        let Self { epoll, watches, slots, active, now, .. } = self;
        // The wait fails only for a descriptor of ours that is no epoll: a bug.
        let _ = epoll.wait(timeout, |ready| {
            let Some(watch) = watches.get(ready.key as usize) else { return };
            for &i in &watch.slots {
                if slots[i].state == LaneState::Armed {
                    slots[i].state = LaneState::Active;
                    slots[i].empty = 0;
                    slots[i].idle_since = *now;
                    *active += 1;
                }
            }
        });
    }

    /// Carries out what was ordered; true to stop.
    #[cold]
    fn obey(&mut self) -> bool {
        // Pairs with the Release store in Worker::send: the command in the queue.
        self.shared.pending.swap(false, Ordering::Acquire);
        while let Ok(command) = self.receiver.try_recv() {
            match command {
                Command::Attach(lane) => self.attach(*lane),
                Command::Detach(reply) => {
                    let _ = reply.send(self.detach_all());
                }
                Command::Stop => return true,
            }
        }
        false
    }

    fn attach(&mut self, mut lane: Lane) {
        let number = self.slots.len();
        let (rx, tx) = lane.queues();
        let rx = rx.queue().event().map(|e| self.watch(e.fd, number));
        let tx = tx.queue().event().map(|e| self.watch(e.fd, number));
        self.now = clock::monotonic();
        let idle_since = self.now;
        let mut slot = Slot { lane, state: LaneState::Active, empty: 0, idle_since };
        self.active += 1;
        if let Some(Err(e)) = rx.into_iter().chain(tx).find(Result::is_err) {
            let fault = Fault { channel: 0, what: format!("cannot watch a queue: {e}") };
            fail(&mut slot, &mut self.active, &self.faults, fault);
        }
        self.slots.push(slot);
    }

    fn watch(&mut self, fd: BorrowedFd<'_>, slot: usize) -> io::Result<()> {
        let raw = fd.as_raw_fd();
        if let Some(watch) = self.watches.iter_mut().find(|w| w.raw == raw) {
            watch.slots.push(slot);
            return Ok(());
        }
        // A descriptor of our own, so that it can be removed even if the queue closes its own.
        let own = fd.try_clone_to_owned()?;
        self.epoll.add(own.as_fd(), Interest::ReadableEdge, self.watches.len() as u64)?;
        self.watches.push(Watch { fd: own, raw, slots: vec![slot] });
        Ok(())
    }

    fn detach_all(&mut self) -> Vec<Lane> {
        for watch in self.watches.drain(..) {
            let _ = self.epoll.remove(watch.fd.as_fd());
        }
        self.active = 0;
        self.slots.drain(..).map(|slot| slot.lane).collect()
    }
}

/// Takes a lane out of service and tells the control thread.
#[cold]
fn fail(slot: &mut Slot, active: &mut usize, faults: &FaultLine, fault: Fault) {
    slot.state = LaneState::Faulty;
    *active -= 1;
    let _ = faults.sender.send(LaneFault { fault });
    let _ = faults.wake.ring();
}
