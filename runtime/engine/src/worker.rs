//! Worker: a pinned thread that polls lanes, and sleeps while no lane has work.

mod hold_off;
mod leaving;
mod slot;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arrayvec::ArrayVec;
use mqnet_counters::Padded;
use mqnet_netdev::limits::BUDGET;
use mqnet_netdev::stats::WorkerStats;
use mqnet_netdev::{Armed, Fault};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{affinity, clock, process};

use crate::idle::{IdlePolicy, Pause};
use crate::lane::{Lane, LaneId, Polled};

pub(crate) use leaving::Leave;
use leaving::Leaving;
use slot::{LaneState, Slot};

/// Number of busy iterations between two checks of sleeping lanes. An iteration in which a lane
/// moved several budgets counts as that many.
const PASSES_PER_CHECK: usize = 32;

/// Number of poll windows after which an idle lane sleeps while other lanes of its worker are busy.
const PATIENCE: u32 = 64;

/// Epoll key of the command eventfd.
const COMMAND: u64 = u64::MAX;

/// Time limit for a worker's reply.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Edit of a lane, which runs on the lane's worker.
pub(crate) type Edit = Box<dyn FnOnce(&mut Lane) -> Result<(), Fault> + Send>;

/// Command to a worker.
enum Command {
    Attach(Box<Lane>),
    /// Sends each of these lanes to `reply` when the condition `leave` holds for the lane.
    Detach {
        lanes: Vec<LaneId>,
        leave: Leave,
        reply: Sender<Lane>,
    },
    /// Cancels the detach of the given lanes that have not left yet, then sends a confirmation.
    Stay(Vec<LaneId>, Sender<()>),
    /// Returns all lanes immediately.
    DetachAll(Sender<Vec<Lane>>),
    Edit(LaneId, Edit),
    Policy(IdlePolicy),
    Stop,
}

/// Fault report of a worker to the control thread.
pub(crate) struct LaneFault {
    /// Channel of the link. The channel in `fault` is numbered by the queue's function.
    pub(crate) channel: u16,
    pub(crate) fault: Fault,
}

struct Shared {
    pending: AtomicBool,
    wake: EventFd,
    /// Thread id; 0 until the thread runs.
    thread: AtomicU32,
    stats: Padded<WorkerStats>,
}

/// Control thread's handle of a worker.
pub(crate) struct Worker {
    pub(crate) cpu: Option<usize>,
    commands: Sender<Command>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    stuck: std::cell::Cell<bool>,
}

/// Channel for fault reports to the control thread.
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
            thread: AtomicU32::new(0),
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
            leaving: 0,
            now: clock::monotonic(),
        };
        let name = format!("mqnet-worker{number}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if let Some(cpu) = cpu {
                // Ignore errors: the cpuset may have shrunk since it was read. The worker then runs
                // unpinned.
                let _ = affinity::pin_current_thread(cpu);
            }
            // The restriction is possible now, because all descriptors that the worker needs are
            // open.
            if let Err(e) = process::restrict_thread(&[]) {
                tracing::warn!("a worker could not drop its privileges: {e}");
            }
            body.shared.thread.store(affinity::thread_id(), Ordering::Relaxed);
            body.run();
        })?;
        Ok(Self { cpu, commands, shared, thread: Some(thread), stuck: false.into() })
    }

    fn send(&self, command: Command) {
        // Ignore errors: a worker that has ended needs no command.
        let _ = self.commands.send(command);
        // Pairs with the Acquire swap in Body::run_commands, which makes the command visible.
        self.shared.pending.store(true, Ordering::Release);
        let _ = self.shared.wake.ring();
    }

    pub(crate) fn attach(&self, lane: Lane) {
        self.send(Command::Attach(Box::new(lane)));
    }

    /// Requests lanes back. Each lane is sent to `reply` when it may leave.
    pub(crate) fn detach(&self, lanes: Vec<LaneId>, leave: Leave, reply: &Sender<Lane>) {
        self.send(Command::Detach { lanes, leave, reply: reply.clone() });
    }

    /// Cancels the detach of those lanes that have not left yet, and sends a confirmation to
    /// `answer`.
    pub(crate) fn stay(&self, lanes: Vec<LaneId>, answer: &Sender<()>) {
        self.send(Command::Stay(lanes, answer.clone()));
    }

    /// Runs an edit on a lane. Nothing happens if the worker does not have the lane, or if the lane
    /// has failed.
    pub(crate) fn edit(&self, lane: LaneId, edit: Edit) {
        self.send(Command::Edit(lane, edit));
    }

    /// Changes the idle policy.
    pub(crate) fn set_policy(&self, policy: IdlePolicy) {
        self.send(Command::Policy(policy));
    }

    /// Takes all lanes back. Returns `None` if the worker does not reply in time.
    pub(crate) fn detach_all(&self) -> Option<Vec<Lane>> {
        let (reply, lanes) = channel();
        self.send(Command::DetachAll(reply));
        let lanes = lanes.recv_timeout(REPLY_TIMEOUT).ok();
        self.stuck.set(lanes.is_none());
        lanes
    }

    pub(crate) fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }

    /// Thread id of the worker; `None` until the thread runs.
    pub(crate) fn thread_id(&self) -> Option<u32> {
        Some(self.shared.thread.load(Ordering::Relaxed)).filter(|&id| id != 0)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::Stop);
        // Do not wait for a worker that did not reply earlier; it ends with the process.
        if let (Some(thread), false) = (self.thread.take(), self.stuck.get()) {
            let _ = thread.join();
        }
    }
}

/// Watched descriptor and the lanes that it wakes. Both lanes of a queue pair may share a
/// descriptor.
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
    /// Watches by epoll key. An unused entry remains until it is reused.
    watches: Vec<Option<Watch>>,
    active: usize,
    /// Number of lanes that are being detached.
    leaving: usize,
    now: Duration,
}

impl Body {
    fn run(mut self) {
        let mut passes = 0;
        let mut empty = 0u32;
        loop {
            if self.shared.pending.load(Ordering::Relaxed) && self.run_commands() {
                return;
            }
            self.shared.stats.passes.add(1);
            let most = if self.leaving == 0 { self.pass() } else { self.pass_with_leaving() };
            if most > 0 {
                empty = 0;
                passes += (most / BUDGET).max(1);
                if passes >= PASSES_PER_CHECK {
                    passes = 0;
                    self.now = clock::monotonic();
                    self.put_to_sleep(self.policy.window * PATIENCE);
                    self.poll_events_if_armed();
                }
                continue;
            }
            empty += 1;
            self.rest(empty);
        }
    }

    /// Polls every active lane once, except lanes in a hold-off. Returns the largest number of
    /// frames that one lane moved.
    #[inline]
    fn pass(&mut self) -> usize {
        let mut most = 0;
        for at in 0..self.slots.len() {
            if let Some(next) = self.slots.get(at + 1) {
                next.lane.prefetch();
            }
            let slot = &mut self.slots[at];
            if slot.state != LaneState::Active || slot.is_held_off(clock::monotonic) {
                continue;
            }
            match slot.lane.poll(clock::monotonic) {
                Ok(polled) if polled.moved() == 0 => slot.empty = slot.empty.saturating_add(1),
                Ok(polled) => {
                    most = most.max(polled.moved());
                    slot.moved(&polled, clock::monotonic);
                }
                Err(fault) => fail(slot, &mut self.active, &self.faults, fault),
            }
        }
        most
    }

    /// Polls every active lane once, and removes lanes that may leave. Returns the largest number
    /// of frames that one lane moved.
    #[cold]
    fn pass_with_leaving(&mut self) -> usize {
        let (mut most, mut number) = (0, 0);
        while number < self.slots.len() {
            let slot = &mut self.slots[number];
            let polled = match slot.state {
                LaneState::Active => slot.lane.poll(clock::monotonic),
                _ => Ok(Polled { frames: 0, sent: 0, rest: slot.lane.rest() }),
            };
            let (frames, sent) = match polled {
                Ok(polled) => (polled.frames, polled.sent),
                Err(fault) => {
                    fail(slot, &mut self.active, &self.faults, fault);
                    (0, 0)
                }
            };
            most = most.max(frames + sent);
            slot.empty = if frames + sent > 0 { 0 } else { slot.empty.saturating_add(1) };
            let lane = &mut slot.lane;
            // A faulty lane leaves without further conditions, because the link will be closed.
            let go = |l: &mut Leaving| slot.state == LaneState::Faulty || l.may_go(lane, frames);
            if slot.leaving.as_mut().is_some_and(go) {
                self.remove_lane(number);
            } else {
                number += 1;
            }
        }
        most
    }

    /// Removes a lane from the worker, and sends it to the control thread if it is being detached.
    fn remove_lane(&mut self, number: usize) {
        let mut slot = self.slots.swap_remove(number);
        let last = self.slots.len();
        if slot.state == LaneState::Active {
            self.active -= 1;
        }
        for hole in &mut self.watches {
            let Some(watch) = hole else { continue };
            watch.slots.retain(|&i| i != number);
            // The last slot has moved to the position of the removed slot.
            watch.slots.iter_mut().filter(|i| **i == last).for_each(|i| *i = number);
            if watch.slots.is_empty() {
                let _ = self.epoll.remove(watch.fd.as_fd());
                *hole = None;
            }
        }
        slot.lane.park(clock::monotonic());
        if let Some(leaving) = slot.leaving.take() {
            self.leaving -= 1;
            let _ = leaving.reply.send(slot.lane);
            let _ = self.faults.wake.ring();
        }
    }

    /// Handles an iteration without frames: spins, yields or sleeps.
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
            // The poll hold-off is shorter than a time slice of another thread, so the worker does
            // not yield during a hold-off.
            let now = self.now;
            if !self.slots.iter_mut().any(|slot| slot.is_held_off(|| now)) {
                affinity::yield_now();
            }
            self.poll_events_if_armed();
        } else {
            self.shared.stats.sleeps.add(1);
            let armed = self.slots.iter().filter(|slot| slot.state == LaneState::Armed);
            let wake_at = armed.filter_map(|slot| slot.lane.wake_at()).min();
            self.poll_events(wake_at.map(|at| at.saturating_sub(self.now)));
            self.now = clock::monotonic();
            self.wake_due();
        }
    }

    /// Arms the lanes that have been idle for `window`. A further polled lane costs a busy worker
    /// little and saves its peer a notification, so the window is long while other lanes are busy.
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

    fn poll_events_if_armed(&mut self) {
        if self.active < self.slots.len() {
            self.poll_events(Some(Duration::ZERO));
            self.wake_due();
        }
    }

    /// Activates armed lanes with a wake time in the past, for example because a token bucket
    /// releases a frame.
    fn wake_due(&mut self) {
        for slot in &mut self.slots {
            if slot.state == LaneState::Armed
                && slot.lane.wake_at().is_some_and(|at| at <= self.now)
            {
                slot.state = LaneState::Active;
                slot.empty = 0;
                slot.idle_since = self.now;
                self.active += 1;
            }
        }
    }

    /// Activates the lanes of ready descriptors. Waits for a ready descriptor until the timeout, or
    /// without a limit (`None`).
    fn poll_events(&mut self, timeout: Option<Duration>) {
        let Self { epoll, watches, slots, active, now, .. } = self;
        // Ignore the error: `wait` fails only for a descriptor that is no epoll instance, which
        // would be a bug.
        let _ = epoll.wait(timeout, |ready| {
            let Some(Some(watch)) = watches.get(ready.key as usize) else { return };
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

    /// Executes the pending commands. Returns true after the command to stop.
    #[cold]
    fn run_commands(&mut self) -> bool {
        // Pairs with the Release store in Worker::send, which makes the command visible.
        self.shared.pending.swap(false, Ordering::Acquire);
        while let Ok(command) = self.receiver.try_recv() {
            match command {
                Command::Attach(lane) => self.attach(*lane),
                Command::Detach { lanes, leave, reply } => {
                    self.begin_leaving(&lanes, leave, &reply)
                }
                Command::Stay(lanes, answer) => {
                    for slot in &mut self.slots {
                        if lanes.contains(&slot.lane.id()) && slot.leaving.take().is_some() {
                            slot.lane.close_intake(false);
                            self.leaving -= 1;
                        }
                    }
                    let _ = answer.send(());
                }
                Command::DetachAll(reply) => {
                    let _ = reply.send(self.detach_all());
                }
                Command::Edit(lane, edit) => self.edit(lane, edit),
                Command::Policy(policy) => self.policy = policy,
                Command::Stop => return true,
            }
        }
        false
    }

    fn begin_leaving(&mut self, lanes: &[LaneId], leave: Leave, reply: &Sender<Lane>) {
        let mut number = 0;
        while number < self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.leaving.is_some() || !lanes.contains(&slot.lane.id()) {
                number += 1;
                continue;
            }
            slot.leaving = Some(Leaving::begin(&slot.lane, leave, reply.clone()));
            self.leaving += 1;
            if slot.state == LaneState::Armed {
                // An armed lane must be polled once more before it leaves.
                slot.state = LaneState::Active;
                slot.empty = 0;
                self.active += 1;
            }
            let settled = leave == Leave::Settled && slot.lane.is_settled();
            if leave == Leave::Immediately || settled {
                self.remove_lane(number);
            } else {
                number += 1;
            }
        }
    }

    fn edit(&mut self, lane: LaneId, edit: Edit) {
        let Some(number) = self.slots.iter().position(|slot| slot.lane.id() == lane) else {
            return;
        };
        let slot = &mut self.slots[number];
        if slot.state == LaneState::Faulty {
            return;
        }
        let before: ArrayVec<i32, 2> = slot.lane.wakers().map(|fd| fd.as_raw_fd()).collect();
        if let Err(fault) = edit(&mut slot.lane) {
            if slot.state == LaneState::Armed {
                self.active += 1;
            }
            return fail(slot, &mut self.active, &self.faults, fault);
        }
        if slot.state == LaneState::Armed {
            slot.state = LaneState::Active;
            slot.empty = 0;
            self.active += 1;
        }
        // The edit may have added or removed eventfds through which other lanes wake this lane, so
        // update the watches.
        let own = |fd: BorrowedFd<'_>| (fd.as_raw_fd(), fd.try_clone_to_owned());
        let wakers: ArrayVec<_, 2> = slot.lane.wakers().map(own).collect();
        for raw in before.into_iter().filter(|raw| wakers.iter().all(|(now, _)| now != raw)) {
            self.unwatch(raw, number);
        }
        let watched = wakers.into_iter().map(|(raw, own)| self.watch_own(raw, own?, number));
        let watched = watched.reduce(Result::and);
        if let Some(Err(e)) = watched {
            let slot = &mut self.slots[number];
            let fault = unwatched(slot.lane.id(), &e);
            fail(slot, &mut self.active, &self.faults, fault);
        }
    }

    fn attach(&mut self, mut lane: Lane) {
        let number = self.slots.len();
        let (rx, tx) = lane.queues();
        let rx = rx.queue().event().map(|e| self.watch(e.fd, number));
        let tx = tx.queue().event().map(|e| self.watch(e.fd, number));
        let wakers = lane.wakers().map(|fd| self.watch(fd, number)).reduce(Result::and);
        self.now = clock::monotonic();
        let mut slot = Slot::new(lane, self.now);
        self.active += 1;
        if let Some(Err(e)) = rx.into_iter().chain(tx).chain(wakers).find(Result::is_err) {
            let fault = unwatched(slot.lane.id(), &e);
            fail(&mut slot, &mut self.active, &self.faults, fault);
        }
        self.slots.push(slot);
    }

    fn watch(&mut self, fd: BorrowedFd<'_>, slot: usize) -> io::Result<()> {
        // Watch a duplicate, which can be removed even if the queue closes its own descriptor.
        self.watch_own(fd.as_raw_fd(), fd.try_clone_to_owned()?, slot)
    }

    /// Watches `own`, a duplicate of the descriptor with the number `raw`.
    fn watch_own(&mut self, raw: i32, own: OwnedFd, slot: usize) -> io::Result<()> {
        if let Some(watch) = self.watches.iter_mut().flatten().find(|w| w.raw == raw) {
            if !watch.slots.contains(&slot) {
                watch.slots.push(slot);
            }
            return Ok(());
        }
        let hole = self.watches.iter().position(Option::is_none).unwrap_or_else(|| {
            self.watches.push(None);
            self.watches.len() - 1
        });
        self.epoll.add(own.as_fd(), Interest::ReadableEdge, hole as u64)?;
        self.watches[hole] = Some(Watch { fd: own, raw, slots: vec![slot] });
        Ok(())
    }

    /// Stops watching a descriptor for a slot. The descriptor may be closed and its number reused.
    fn unwatch(&mut self, raw: i32, slot: usize) {
        for hole in &mut self.watches {
            let Some(watch) = hole.as_mut().filter(|watch| watch.raw == raw) else { continue };
            watch.slots.retain(|&i| i != slot);
            if watch.slots.is_empty() {
                let _ = self.epoll.remove(watch.fd.as_fd());
                *hole = None;
            }
        }
    }

    fn detach_all(&mut self) -> Vec<Lane> {
        for watch in self.watches.drain(..).flatten() {
            let _ = self.epoll.remove(watch.fd.as_fd());
        }
        (self.active, self.leaving) = (0, 0);
        self.slots.drain(..).map(|slot| slot.lane).collect()
    }
}

/// Creates the fault of a lane with a descriptor that cannot be watched.
#[cold]
fn unwatched(lane: LaneId, error: &io::Error) -> Fault {
    Fault { channel: lane.channel, what: format!("cannot watch a queue: {error}") }
}

/// Marks a lane as faulty and reports the fault to the control thread.
#[cold]
fn fail(slot: &mut Slot, active: &mut usize, faults: &FaultLine, fault: Fault) {
    slot.state = LaneState::Faulty;
    *active -= 1;
    let _ = faults.sender.send(LaneFault { channel: slot.lane.id().channel, fault });
    let _ = faults.wake.ring();
}
