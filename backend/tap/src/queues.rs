//! The queues of a device: which are attached, and who decides where a frame goes.
//!
//! # Retiring a queue without losing what waits in it
//! The kernel purges a queue's ring when the queue is detached, and counts nothing. So frames must
//! be steered away first, the ring emptied, and only then the queue detached. With our own steering
//! program (needs CAP_BPF) that is a table of buckets; a frame that chose its queue by the old
//! table may still be on its way. It is there, with soft interrupts off, for a few us, so a visit
//! to every CPU proves that it has arrived: 0.1 ms. A grace period of RCU proves it too, but takes
//! 0.1 to 4 s now and then on a busy machine, while nobody reads the queues that gain flows, and
//! their rings overflow. Where CPUs are out of reach the detaching of a spare queue waits for one
//! (0.2 ms as a rule; `membarrier` takes 6 to 20 ms).
//!
//! Without the program the kernel spreads flows over whatever is attached. Then the device drops,
//! and counts, what is sent in the moment between "empty" and "detached".
//!
//! Detaching moves the last queue into the place of the one that goes, so queues are attached in
//! order and detached from the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{ChannelStats, DropReason, FlowRule};
use mqnet_shmem::{Segments, SpanMut, read_into};
use mqnet_sysio::namespace::NetNs;
use mqnet_sysio::nic::Nics;
use mqnet_sysio::{affinity, clock, poll, tap as sys};
use mqnet_wire::{Layer, VNET_HDR_LEN};

use crate::follow::locate;
use crate::open::one_more;
use crate::steering::{Steering, Table, detach, rebalance, spread};

/// How long rings may take to run empty while the device drops what comes. The lanes that empty
/// them may be waiting for a slow peer.
const EMPTY_TIMEOUT: Duration = Duration::from_millis(500);

/// How long queues may be detached at one go; the rest goes later. Each waits for the kernel's
/// network lock and a grace period: 0.2 ms as a rule, up to 4 s on a busy machine, in which nobody
/// would be answered.
const DETACH_MOST: Duration = Duration::from_millis(20);

/// Late frames that are looked at before a queue is detached: more would be a flood.
const LATE_MOST: u32 = 10_000;

/// How often a device that is renamed or moved just now is tried again.
const ATTEMPTS: usize = 3;

/// How to open more queues of the same device.
pub(crate) struct Opener {
    pub(crate) flags: u32,
    /// Index and network namespace (`None`: the process's) in which it was opened, where the kernel
    /// does not tell those of now.
    pub(crate) index: u32,
    pub(crate) netns: Option<NetNs>,
}

impl Opener {
    /// Opens more queues of a device; `None` for one that has no more.
    pub(crate) fn of(flags: u32, index: u32, netns: Option<NetNs>) -> Option<Self> {
        (flags & sys::flag::MULTI_QUEUE != 0).then_some(Self { flags, index, netns })
    }

    /// Opens one more queue of the device that `first` is a queue of, whatever it is called and
    /// wherever it is now.
    fn open(&self, first: BorrowedFd<'_>) -> Result<OwnedFd, String> {
        let mut failed = "the device is being renamed or moved; try again".to_owned();
        for _ in 0..ATTEMPTS {
            let at = locate(first)?;
            let open = || {
                let index = Nics::open().and_then(|nics| nics.index_of(&at.name));
                let index = index.map_err(|e| format!("one more queue: {}: {e}", at.name))?;
                if !at.is_certain && index != self.index {
                    return Err("one more queue: the device is out of reach".to_owned());
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
            let is_same = locate(first).is_ok_and(|now| now.is_where(&at));
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

/// The queues of a device.
pub(crate) struct Queues {
    fds: Vec<Arc<OwnedFd>>,
    /// The first so many are attached.
    attached: u16,
    opener: Option<Opener>,
    layer: Layer,
    steering: Option<Steering>,
    /// The kernel shall choose, even if we could.
    leave_to_kernel: bool,
    /// The table was set by a user.
    user_set: bool,
    /// Detached but for the moment of a barrier.
    spare: Option<OwnedFd>,
    /// Frames that the device dropped while queues were detached.
    dropped: u64,
    /// Queues and table before the change that is open: what its way back leads to.
    before: Option<(u16, Table)>,
    /// Queues that flows are steered to.
    steered: u16,
    /// What goes before the table, by location.
    rules: Vec<FlowRule>,
    /// Queues beyond so many, which no flow uses, are still to be detached.
    retiring: Option<u16>,
}

impl Queues {
    /// The queues of `fds` are attached. Without an opener there will never be more.
    pub(crate) fn new(fds: Vec<OwnedFd>, layer: Layer, opener: Option<Opener>) -> Self {
        let attached = fds.len() as u16;
        let fds: Vec<Arc<OwnedFd>> = fds.into_iter().map(Arc::new).collect();
        // A program of a process before us would go by a table that nobody changes any more.
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

    /// Takes over what a user has chosen for the queues of the device that was removed.
    pub(crate) fn succeed(mut self, old: &Self) -> Self {
        self.leave_to_kernel = old.leave_to_kernel;
        self
    }

    pub(crate) fn first(&self) -> BorrowedFd<'_> {
        self.fds[0].as_fd()
    }

    pub(crate) fn fd(&self, queue: u16) -> Arc<OwnedFd> {
        self.fds[usize::from(queue)].clone()
    }

    /// Most queues that there can be.
    pub(crate) fn most(&self) -> u16 {
        if self.opener.is_some() { CHANNELS_MAX } else { self.fds.len() as u16 }
    }

    /// True when our own program chooses the queue.
    pub(crate) fn steers(&self) -> bool {
        self.steering.is_some()
    }

    /// How many can be used.
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

    /// Takes the choice of queues over, with all flows where `queues` queues have them.
    fn take_over_steering(&mut self, queues: u16) {
        if self.steering.is_none()
            && !self.leave_to_kernel
            && let Ok(steering) = Steering::load(&spread(queues), self.layer)
            && steering.attach(self.first()).is_ok()
        {
            self.steering = Some(steering);
            // Without them it steers as before they came, and says so when it is asked.
            let kept = std::mem::take(&mut self.rules);
            let _ = self.set_rules(&kept);
        }
    }

    /// What goes before the table, while our program chooses.
    pub(crate) fn rules(&self) -> Option<&[FlowRule]> {
        self.steers().then_some(&self.rules[..])
    }

    pub(crate) fn set_rules(&mut self, rules: &[FlowRule]) -> Result<(), String> {
        if let Some(rule) = rules.iter().find(|rule| rule.queue >= self.usable()) {
            let (queue, most) = (rule.queue, self.usable());
            return Err(format!("queue {queue} is not attached, there are {most}"));
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

    /// For the start of a link, when nothing flows.
    pub(crate) fn use_exactly(&mut self, queues: u16) -> Result<(), String> {
        if queues > 1 {
            self.take_over_steering(queues);
        }
        self.attach_up_to(queues)?;
        if let Some(steering) = &mut self.steering {
            steering.set(&spread(queues)).map_err(|e| e.to_string())?;
            self.user_set = false;
        }
        (self.steered, self.before) = (queues, None);
        // Nothing comes to the rest where our program chooses; it goes in the turns that follow.
        self.retiring = self.steering.is_some().then_some(queues.max(1));
        if self.retiring.is_some() { Ok(()) } else { self.detach_down_to(queues) }
    }

    /// Queue of each bucket, and whether a user set it.
    pub(crate) fn table(&self) -> Option<(&Table, bool)> {
        self.steering.as_ref().map(|steering| (steering.table(), self.user_set))
    }

    pub(crate) fn set_table(&mut self, table: &[u16], user_set: bool) -> Result<(), String> {
        let most = self.usable();
        let Some(steering) = &mut self.steering else {
            return Err("the kernel chooses the queues of this device".to_owned());
        };
        let table: &Table = table.try_into().map_err(|_| {
            format!(
                "the table has {} entries, this one has {}",
                steering.table().len(),
                table.len()
            )
        })?;
        if let Some(queue) = table.iter().find(|&&queue| queue >= most) {
            return Err(format!("queue {queue} is not attached, there are {most}"));
        }
        steering.set(table).map_err(|e| e.to_string())?;
        self.user_set = user_set;
        self.barrier();
        Ok(())
    }

    /// Chooses queues ourselves, or leaves it to the kernel.
    pub(crate) fn set_steering(
        &mut self,
        on: bool,
        queues: u16,
        stats: &[Arc<ChannelStats>],
    ) -> Result<(), String> {
        if !on {
            // The kernel chooses among all that are attached, and some may have no lane any more.
            self.retire_for(Duration::MAX, stats)?;
        }
        self.leave_to_kernel = !on;
        if on {
            let why = Steering::load(&spread(1), self.layer).err();
            self.take_over_steering(queues);
            return why.map_or(Ok(()), |e| Err(e.to_string()));
        }
        detach(self.first()).map_err(|e| e.to_string())?;
        (self.steering, self.user_set) = (None, false);
        self.rules.clear();
        Ok(())
    }

    /// Makes sure that `queues` queues can be used, without moving a flow.
    pub(crate) fn make_ready(&mut self, queues: u16) -> Result<(), String> {
        // What is still attached may be used again; the change retires the rest when it is done.
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
            self.take_over_steering(before);
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
        // The kernel spreads flows over a new queue at once, and purges it when it is detached.
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

    /// Lets the device drop, and count, what is sent to us; or not any more.
    fn pause(&self, on: bool) -> Result<(), String> {
        if self.layer == Layer::Ip {
            // The kernel has this filter for TAPs only.
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
        // A device that stayed paused would drop everything for ever: try again.
        let set = || sys::set_filter(self.first(), on);
        set().or_else(|_| set()).map_err(|e| format!("{what} the device: {e}"))?;
        if on && affinity::visit_every_cpu().is_err() {
            // What has passed the filter before is in a ring a few us later: see barrier.
            poll::pause(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Spreads flows over the first `queues` queues.
    pub(crate) fn steer(&mut self, queues: u16) -> Result<(), String> {
        let Some(steering) = &mut self.steering else { return self.steer_by_number(queues) };
        if self.user_set {
            // It does not name the queues that come, and those that go were refused.
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

    /// Moves flows back to `queues` queues where a change has moved them.
    pub(crate) fn steer_back(&mut self, queues: u16) -> Result<(), String> {
        if self.steers() && self.steered != queues { self.steer(queues) } else { Ok(()) }
    }

    /// Returns when no frame is on its way by an old table. It is so from the choice of its queue
    /// until it is in the ring, with soft interrupts off.
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
            // The kernel waits for a grace period before it lets go of a queue.
            Some(spare) => drop(sys::set_queue(spare.as_fd(), false)),
            // A few us, unless the CPU itself is taken away.
            None => poll::pause(Duration::from_millis(1)),
        }
    }

    /// Where the kernel chooses among the attached queues, their number is all that we can set.
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
                return Err(format!("the queues did not run empty within {limit} ms"));
            }
            poll::pause(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Frames that the device dropped while queues were detached, by its own count.
    pub(crate) fn note_dropped(&mut self, frames: u64) {
        self.dropped += frames;
    }

    /// Detaches all but the first `queues` queues, which no flow uses any more; those that take too
    /// long by [`retire_more`](Self::retire_more).
    pub(crate) fn retire(
        &mut self,
        queues: u16,
        stats: &[Arc<ChannelStats>],
    ) -> Result<(), String> {
        self.before = None;
        self.retiring = Some(queues.max(1));
        self.retire_more(stats)?;
        match std::mem::take(&mut self.dropped) {
            0 => Ok(()),
            n => Err(format!(
                "{n} frames were dropped while queues were detached, because this user may load no \
                 steering program (CAP_BPF)"
            )),
        }
    }

    /// Goes on with what is left of it. Call it at every turn. (What an XDP program of somebody's
    /// redirects to the device passes our steering by, and may lie there until then.)
    pub(crate) fn retire_more(&mut self, stats: &[Arc<ChannelStats>]) -> Result<(), String> {
        self.retire_for(DETACH_MOST, stats)
    }

    /// At least one, even without time.
    fn retire_for(&mut self, most: Duration, stats: &[Arc<ChannelStats>]) -> Result<(), String> {
        let Some(queues) = self.retiring else { return Ok(()) };
        let begin = clock::monotonic();
        while self.attached > queues {
            let queue = self.attached - 1;
            self.count_late_frames(queue, &stats[usize::from(queue)]);
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

    /// A frame can wait in the discipline of its queue while the lane leaves. Nobody reads the
    /// queue any more, so the counters are ours.
    fn count_late_frames(&self, queue: u16, stats: &ChannelStats) {
        let fd = self.fds[usize::from(queue)].as_fd();
        let (head, tail) = (SpanMut::empty(), SpanMut::empty());
        let mut room = Segments::new(head, tail);
        let mut header = [0u8; VNET_HDR_LEN];
        for _ in 0..LATE_MOST {
            let Ok(n) = read_into(fd, &mut header, &mut room, &mut []) else { return };
            stats.rx.packets.add(1);
            stats.rx.bytes.add(n.saturating_sub(VNET_HDR_LEN) as u64);
            stats.rx.drops.count(DropReason::QueueRetired, 1);
        }
    }
}

#[cfg(test)]
mod tests;
