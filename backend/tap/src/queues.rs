//! Queues of a device: attachment, and selection of the queue of each frame.
//!
//! # Retiring a queue without losing its frames
//! The kernel purges the ring of a detached queue without counting the frames. Retirement
//! therefore has three steps: steer flows away, drain the ring, detach the queue. With a steering
//! program (needs CAP_BPF), steering is a table of buckets. A frame may still be in transit to
//! the queue that the old table selected. The kernel keeps soft interrupts disabled from the
//! selection until the frame is in the ring, so running on every CPU once proves that all such
//! frames have arrived. An RCU grace period proves this too, but can take seconds on a busy
//! machine. The queues that gain flows are not polled in that time, and their rings overflow. If
//! this process may not run on every CPU, it detaches a spare queue, which waits for a grace
//! period and is faster than `membarrier`.
//!
//! Without the program, the kernel spreads flows over all attached queues. The device then drops
//! and counts all new frames while the rings are drained and the queues detached.
//!
//! Detaching a queue moves the last queue into the freed index, so queues are attached in order and
//! detached from the end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX};
use mqnet_netdev::{DropReason, QueuePairStats, SteeringRule};
use mqnet_shmem::{Segments, SpanMut, read_into};
use mqnet_sysio::namespace::NetNs;
use mqnet_sysio::nic::Nics;
use mqnet_sysio::{affinity, clock, poll, tap as sys};
use mqnet_wire::{Layer, VNET_HDR_LEN};

use crate::location::locate;
use crate::open::one_more;
use crate::steering::{BucketTable, Steering, detach, rebalance, spread};

/// Time limit for draining rings while the device drops new frames. The lanes that drain them may
/// wait for a slow peer.
const EMPTY_TIMEOUT: Duration = Duration::from_millis(500);

/// Time limit for detaching queues in one call; later calls detach the rest. Each detach waits
/// for the RTNL lock and a grace period, which takes seconds on a busy machine. The control
/// thread answers no request in that time.
const DETACH_MOST: Duration = Duration::from_millis(20);

/// Largest number of late frames that are read and counted before a queue is detached. The kernel
/// purges further ones uncounted, so that a flood cannot block the control thread.
const LATE_MOST: u32 = 10_000;

/// Attempts to open a queue while the device is being renamed or moved.
const ATTEMPTS: usize = 3;

/// Parameters for opening more queues of the same device.
pub(crate) struct Opener {
    pub(crate) flags: u32,
    /// Interface index when the device was opened. If the kernel does not report the device's
    /// namespace, an interface with another index is not the device.
    pub(crate) index: u32,
    pub(crate) netns: Option<NetNs>,
}

impl Opener {
    /// Opener for a multi-queue device; `None` for a device with a single queue.
    pub(crate) fn of(flags: u32, index: u32, netns: Option<NetNs>) -> Option<Self> {
        (flags & sys::flag::MULTI_QUEUE != 0).then_some(Self { flags, index, netns })
    }

    /// Opens one more queue of the device of queue `first`, under its present name and network
    /// namespace. `Err` if the device cannot be opened, or is renamed or moved at every attempt.
    fn open(&self, first: BorrowedFd<'_>) -> Result<OwnedFd, String> {
        let mut failed = "the device is being renamed or moved; try again".to_owned();
        for _ in 0..ATTEMPTS {
            let at = locate(first)?;
            let open = || {
                let index = Nics::open().and_then(|nics| nics.index_of(&at.name));
                let index = index.map_err(|e| format!("one more queue: {}: {e}", at.name))?;
                if !at.is_certain && index != self.index {
                    return Err(
                        "one more queue: the device is in a network namespace out of reach"
                            .to_owned(),
                    );
                }
                one_more(&at.name, index, self.flags)
            };
            let netns = if at.is_certain { &at.netns } else { &self.netns };
            let opened = match netns {
                None => open(),
                Some(netns) => {
                    netns.run(open).map_err(|e| format!("network namespace of {}: {e}", at.name))?
                }
            };
            let is_same = locate(first).is_ok_and(|now| now.is_same_as(&at));
            match opened {
                Ok(fd) if is_same && sys::identify(fd.as_fd()).is_ok_and(|(n, _)| n == at.name) => {
                    return Ok(fd);
                }
                Ok(_) => {}
                Err(why) if is_same => return Err(why),
                Err(why) => failed = why,
            }
        }
        Err(failed)
    }
}

/// Queues of a device.
pub(crate) struct Queues {
    fds: Vec<Arc<OwnedFd>>,
    /// Number of attached queues; these are the first of `fds`.
    attached: u16,
    opener: Option<Opener>,
    layer: Layer,
    steering: Option<Steering>,
    /// True if the user chose the kernel's queue selection.
    leave_to_kernel: bool,
    /// True if a user set the table.
    user_set: bool,
    /// Queue that `barrier` attaches and detaches to wait for a grace period; `None` before the
    /// first use.
    spare: Option<OwnedFd>,
    /// Number of frames dropped by the device while queues were detached.
    dropped: u64,
    /// Number of queues and table before the change in progress, for an abort; `None` without a
    /// change.
    before: Option<(u16, BucketTable)>,
    /// Number of queues that receive flows.
    steered: u16,
    /// Flow rules, which take precedence over the table, by location.
    rules: Vec<SteeringRule>,
    /// Number of queues that may have flows, while queues beyond this number must still be
    /// detached; `None` otherwise.
    retiring: Option<u16>,
}

impl Queues {
    /// Set of the queues `fds`, which are all attached. Without an opener their number is fixed.
    pub(crate) fn new(fds: Vec<OwnedFd>, layer: Layer, opener: Option<Opener>) -> Self {
        let attached = fds.len() as u16;
        let fds: Vec<Arc<OwnedFd>> = fds.into_iter().map(Arc::new).collect();
        // Detach the steering program of an earlier process: nothing updates its table any more.
        let _ = detach(fds[0].as_fd());
        Self {
            fds,
            attached,
            opener,
            layer,
            steering: None,
            leave_to_kernel: false,
            user_set: false,
            spare: None,
            dropped: 0,
            before: None,
            steered: attached,
            rules: Vec::new(),
            retiring: None,
        }
    }

    /// Copies the user's choices from the queues of the removed device.
    pub(crate) fn inherit_choices(mut self, old: &Self) -> Self {
        self.leave_to_kernel = old.leave_to_kernel;
        self
    }

    pub(crate) fn first(&self) -> BorrowedFd<'_> {
        self.fds[0].as_fd()
    }

    pub(crate) fn fd(&self, queue: u16) -> Arc<OwnedFd> {
        self.fds[usize::from(queue)].clone()
    }

    /// Largest number of queues that the device can have.
    pub(crate) fn most(&self) -> u16 {
        if self.opener.is_some() { CHANNELS_MAX } else { self.fds.len() as u16 }
    }

    /// True while the steering program of this process selects the queue.
    pub(crate) fn steers(&self) -> bool {
        self.steering.is_some()
    }

    /// Number of queues that lanes may use.
    fn usable(&self) -> u16 {
        self.retiring.unwrap_or(self.attached)
    }

    fn attach_up_to(&mut self, queues: u16) -> Result<(), String> {
        while self.attached < queues {
            let queue = self.attached;
            match (self.fds.get(usize::from(queue)), &self.opener) {
                (Some(fd), _) => sys::set_queue(fd.as_fd(), true)
                    .map_err(|e| format!("attaching queue {queue}: {e}"))?,
                (None, Some(opener)) => {
                    let fd = opener.open(self.first())?;
                    self.fds.push(Arc::new(fd));
                }
                (None, None) => return Err(format!("the device has only {queue} queues")),
            }
            self.attached += 1;
        }
        Ok(())
    }

    fn detach_down_to(&mut self, queues: u16) -> Result<(), String> {
        while self.attached > queues.max(1) {
            let queue = self.attached - 1;
            sys::set_queue(self.fds[usize::from(queue)].as_fd(), false)
                .map_err(|e| format!("detaching queue {queue}: {e}"))?;
            self.attached = queue;
        }
        Ok(())
    }

    /// Loads and attaches the steering program, with flows spread over `queues` queues. If this
    /// fails, the kernel still selects the queue.
    fn take_over_steering(&mut self, queues: u16) -> io::Result<()> {
        if self.steering.is_some() || self.leave_to_kernel {
            return Ok(());
        }
        let steering = Steering::load(&spread(queues), self.layer)?;
        steering.attach(self.first())?;
        self.steering = Some(steering);
        // If the rules cannot be set, the program steers without rules, and `rules` returns none.
        let kept = std::mem::take(&mut self.rules);
        let _ = self.set_rules(&kept);
        Ok(())
    }

    /// Flow rules; `None` while the kernel selects the queue.
    pub(crate) fn rules(&self) -> Option<&[SteeringRule]> {
        self.steers().then_some(&self.rules[..])
    }

    pub(crate) fn set_rules(&mut self, rules: &[SteeringRule]) -> Result<(), String> {
        if let Some(rule) = rules.iter().find(|rule| rule.queue >= self.usable()) {
            let (queue, most) = (rule.queue, self.usable());
            return Err(format!("queue {queue} is not attached: the device has {most}"));
        }
        let (first, Some(steering)) = (self.fds[0].clone(), &mut self.steering) else {
            return Err("the kernel chooses the queues of this device".to_owned());
        };
        steering.set_rules(rules).map_err(|e| e.to_string())?;
        steering.attach(first.as_fd()).map_err(|e| e.to_string())?;
        self.rules = rules.to_vec();
        self.barrier();
        Ok(())
    }

    /// Sets the number of queues at the start of a link, when no frame is in transit.
    pub(crate) fn use_exactly(&mut self, queues: u16) -> Result<(), String> {
        if queues > 1 {
            // Without the program the kernel selects the queue.
            let _ = self.take_over_steering(queues);
        }
        self.attach_up_to(queues)?;
        if let Some(steering) = &mut self.steering {
            steering.set(&spread(queues)).map_err(|e| e.to_string())?;
            self.user_set = false;
        }
        (self.steered, self.before) = (queues, None);
        // The steering program selects no queue from number `queues` on, so that later calls may
        // detach these queues.
        self.retiring = self.steering.is_some().then_some(queues.max(1));
        if self.retiring.is_some() { Ok(()) } else { self.detach_down_to(queues) }
    }

    /// Queue of each bucket, and true if a user set the table. `None` while the kernel selects
    /// the queue.
    pub(crate) fn table(&self) -> Option<(&BucketTable, bool)> {
        self.steering.as_ref().map(|steering| (steering.table(), self.user_set))
    }

    pub(crate) fn set_table(&mut self, table: &[u16], user_set: bool) -> Result<(), String> {
        let most = self.usable();
        let Some(steering) = &mut self.steering else {
            return Err("the kernel chooses the queues of this device".to_owned());
        };
        let table: &BucketTable = table.try_into().map_err(|_| {
            format!(
                "the table has {} entries, this one has {}",
                steering.table().len(),
                table.len()
            )
        })?;
        if let Some(queue) = table.iter().find(|&&queue| queue >= most) {
            return Err(format!("queue {queue} is not attached: the device has {most}"));
        }
        steering.set(table).map_err(|e| e.to_string())?;
        self.user_set = user_set;
        self.barrier();
        Ok(())
    }

    /// Selects the queue by the steering program (`on`), or by the kernel.
    pub(crate) fn set_steering(
        &mut self,
        on: bool,
        queues: u16,
        stats: &[Arc<QueuePairStats>],
    ) -> Result<(), String> {
        if !on {
            // Detach queues without a lane first: the kernel selects among all attached queues.
            self.retire_for(Duration::MAX, stats)?;
        }
        self.leave_to_kernel = !on;
        if on {
            return self.take_over_steering(queues).map_err(|e| e.to_string());
        }
        detach(self.first()).map_err(|e| e.to_string())?;
        (self.steering, self.user_set) = (None, false);
        self.rules.clear();
        Ok(())
    }

    /// Makes `queues` queues usable without moving a flow.
    pub(crate) fn make_ready(&mut self, queues: u16) -> Result<(), String> {
        // Queues that are to be detached, but are still attached, may be used again. The end of the
        // change detaches those that are not used.
        let retiring = self.retiring.take();
        self.make_more_ready(queues).inspect_err(|_| self.retiring = retiring)
    }

    fn make_more_ready(&mut self, queues: u16) -> Result<(), String> {
        let before = self.attached;
        if let Some((table, true)) = self.table()
            && let Some(last) = table.iter().max().filter(|&&last| last >= queues)
        {
            return Err(format!("{queues} queues are too few for the table that was set ({last})"));
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.queue >= queues) {
            let (location, queue) = (rule.location, rule.queue);
            return Err(format!("{queues} queues are too few for rule {location} (queue {queue})"));
        }
        if queues > before {
            // Without the program the kernel selects the queue.
            let _ = self.take_over_steering(before);
        }
        if self.steers() {
            let done = self.attach_up_to(queues);
            if done.is_err() {
                let _ = self.detach_down_to(before);
            }
            return done;
        }
        if self.fds.len() >= usize::from(queues) {
            return Ok(());
        }
        if self.opener.is_none() {
            return Err(format!("the device has only {} queues", self.fds.len()));
        }
        // Pause, because the kernel spreads flows over a new queue immediately, and purges the
        // queue when it is detached below.
        self.pause(true)?;
        let opened = self.open_detached(queues);
        opened.and(self.pause(false))
    }

    fn open_detached(&mut self, queues: u16) -> Result<(), String> {
        while let (true, Some(opener)) = (self.fds.len() < usize::from(queues), &self.opener) {
            let fd = opener.open(self.first())?;
            let queue = self.fds.len();
            sys::set_queue(fd.as_fd(), false)
                .map_err(|e| format!("detaching queue {queue}: {e}"))?;
            self.fds.push(Arc::new(fd));
        }
        Ok(())
    }

    /// Makes the device drop and count the frames sent to it (`on`), or resumes reception.
    fn pause(&self, on: bool) -> Result<(), String> {
        if self.layer == Layer::Ip {
            // The kernel has the filter for this only for TAPs.
            return match on {
                true => {
                    Err("a TUN cannot be paused while its queues change: run with CAP_BPF, so \
                             that flows can be steered away first"
                        .to_owned())
                }
                false => Ok(()),
            };
        }
        let what = if on { "pausing" } else { "resuming" };
        // Retry once, because a device that stayed paused would drop every frame.
        let set = || sys::set_filter(self.first(), on);
        set().or_else(|_| set()).map_err(|e| format!("{what} the device: {e}"))?;
        if on && affinity::visit_every_cpu().is_err() {
            // A frame that has passed the filter is in its ring shortly afterwards: see
            // `barrier`.
            poll::pause(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Spreads flows over the first `queues` queues.
    pub(crate) fn steer(&mut self, queues: u16) -> Result<(), String> {
        let Some(steering) = &mut self.steering else { return self.steer_by_number(queues) };
        if self.user_set {
            // Keep a user's table: it uses no new queue, and `make_ready` has refused to remove a
            // queue that the table uses.
            return Ok(());
        }
        let now = *steering.table();
        let table = match self.before.take() {
            Some((there, table)) if there == queues => table,
            _ => {
                self.before = Some((self.steered, now));
                rebalance(&now, self.steered, queues)
            }
        };
        if let Err(e) = steering.set(&table) {
            let _ = steering.set(&now);
            self.before = None;
            return Err(e.to_string());
        }
        self.steered = queues;
        self.barrier();
        Ok(())
    }

    /// Moves flows back to `queues` queues, if a change has moved them.
    pub(crate) fn steer_back(&mut self, queues: u16) -> Result<(), String> {
        if self.steers() && self.steered != queues { self.steer(queues) } else { Ok(()) }
    }

    /// Waits until no frame is in transit that an old table has assigned to a queue. Soft
    /// interrupts are disabled from the selection of the queue until the frame is in the ring.
    fn barrier(&mut self) {
        if affinity::visit_every_cpu().is_ok() {
            return;
        }
        if self.spare.is_none() {
            self.spare = self.opener.as_ref().and_then(|opener| opener.open(self.first()).ok());
        } else if let Some(spare) = &self.spare {
            let _ = sys::set_queue(spare.as_fd(), true);
        }
        match &self.spare {
            // The kernel waits for a grace period before it releases a detached queue.
            Some(spare) => drop(sys::set_queue(spare.as_fd(), false)),
            // A frame is in its ring within microseconds, unless a hypervisor preempts the CPU.
            None => poll::pause(Duration::from_millis(1)),
        }
    }

    /// Sets the number of attached queues. Nothing else can be changed while the kernel selects the
    /// queue.
    fn steer_by_number(&mut self, queues: u16) -> Result<(), String> {
        let before = self.attached;
        if queues >= before {
            let done = self.attach_up_to(queues);
            if done.is_err() {
                let _ = self.detach_down_to(before);
            }
            return done;
        }
        self.pause(true)?;
        let done = self.wait_until_empty().and_then(|()| self.detach_down_to(queues));
        let resumed = self.pause(false);
        if done.is_err() {
            let _ = self.attach_up_to(before);
        }
        done.and(resumed)
    }

    fn wait_until_empty(&self) -> Result<(), String> {
        let begin = clock::monotonic();
        let attached = &self.fds[..usize::from(self.attached)];
        while attached.iter().any(|fd| poll::is_readable(fd.as_fd()).unwrap_or(false)) {
            if clock::monotonic().saturating_sub(begin) > EMPTY_TIMEOUT {
                let limit = EMPTY_TIMEOUT.as_millis();
                return Err(format!("the queues were not empty within {limit} ms"));
            }
            poll::pause(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Adds frames that the device dropped while queues were detached, according to its counter.
    pub(crate) fn note_dropped(&mut self, frames: u64) {
        self.dropped += frames;
    }

    /// Detaches queues until `queues` are left. No flow may use the queues beyond that number any
    /// more. After the time limit, [`retire_more`](Self::retire_more) detaches the rest. `Err` also
    /// if frames were dropped.
    pub(crate) fn retire(
        &mut self,
        queues: u16,
        stats: &[Arc<QueuePairStats>],
    ) -> Result<(), String> {
        self.before = None;
        self.retiring = Some(queues.max(1));
        self.retire_more(stats)?;
        match std::mem::take(&mut self.dropped) {
            0 => Ok(()),
            n => Err(format!(
                "{n} frames were dropped while queues were detached: this user may not load the \
                 steering program (CAP_BPF)"
            )),
        }
    }

    /// Detaches the remaining retired queues; called in every iteration of the control thread. A
    /// retired queue may receive frames until it is detached: frames that a foreign XDP program
    /// redirects to the device bypass the steering program.
    pub(crate) fn retire_more(&mut self, stats: &[Arc<QueuePairStats>]) -> Result<(), String> {
        self.retire_for(DETACH_MOST, stats)
    }

    /// Detaches retired queues until the time `most` has passed, but at least one.
    fn retire_for(&mut self, most: Duration, stats: &[Arc<QueuePairStats>]) -> Result<(), String> {
        let Some(queues) = self.retiring else { return Ok(()) };
        let begin = clock::monotonic();
        while self.attached > queues {
            let queue = self.attached - 1;
            count_late_frames(self.fds[usize::from(queue)].as_fd(), &stats[usize::from(queue)]);
            self.detach_down_to(queue)?;
            if clock::monotonic().saturating_sub(begin) >= most {
                break;
            }
        }
        if self.attached <= queues {
            self.retiring = None;
        }
        Ok(())
    }
}

/// Reads, drops and counts frames that arrived after the lane's last poll, up to `LATE_MOST`. No
/// lane reads the queue any more, so this thread is the only writer of its counters.
fn count_late_frames(fd: BorrowedFd<'_>, stats: &QueuePairStats) {
    let mut header = [0u8; VNET_HDR_LEN];
    // The buffer holds the largest frame: a read returns at most the length of the buffer.
    let mut frame = vec![0; FRAME_MAX as usize];
    let mut room = Segments::new(SpanMut::of(&mut frame), SpanMut::empty());
    for _ in 0..LATE_MOST {
        let Ok(n) = read_into(fd, &mut header, &mut room, &mut []) else { return };
        stats.rx.packets.add(1);
        stats.rx.bytes.add(n.saturating_sub(VNET_HDR_LEN) as u64);
        stats.rx.drops.count(DropReason::QueueRetired, 1);
    }
}

#[cfg(test)]
mod tests;
