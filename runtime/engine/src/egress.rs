//! Egress of a netdev: its disciplines, and the behaviour while its sink is full.
//!
//! A lane without disciplines has no egress; the check costs one branch per poll. With disciplines,
//! frames still move directly from source to sink (bypass) while no frame waits and no filter
//! selects a class or channel. Frames for which the sink has no space are *detached*: copied once
//! into pool pages, where they wait.
//!
//! The children of `mq` belong to one lane each. Any other root is one object for all lanes that
//! send through the netdev, because its rate, limit and order apply to all of them. Disciplines are
//! also shared if frames may change their channel. Shared objects have a lock, which a poll takes a
//! few times. The data path has no other lock.

mod queueing;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqnet_pktbuf::{Gauge, PoolStats};
use mqnet_sysio::eventfd::EventFd;

pub(crate) use queueing::{Call, Disciplines, Queueing, allowance};

/// Behaviour of a lane while its sink is full and no discipline is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// Stop receiving from the source. No frame is lost.
    #[default]
    Stop,
    /// Continue to receive, and drop the frames (tail drop, as the kernel's noqueue).
    Drop,
}

/// Initial egress configuration of one side of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressConfig {
    /// tc arguments of the discipline for every channel, such as `fq_codel limit 1000`; `None`: no
    /// discipline.
    pub qdisc: Option<String>,
    /// Behaviour while the sink is full.
    pub full: Full,
    /// True for flow learning: frames of a flow leave through the channel on which the peer behind
    /// the netdev sends the opposite direction of the flow.
    pub learn: bool,
}

/// Eventfds, one per channel of a netdev. Each wakes the lane of its channel when another lane has
/// added frames to that lane's queue.
#[derive(Debug)]
pub(crate) struct LaneWakers(Vec<EventFd>);

impl LaneWakers {
    pub(crate) fn new(channels: u16) -> std::io::Result<Self> {
        (0..channels).map(|_| EventFd::new()).collect::<Result<_, _>>().map(Self)
    }
}

/// Disciplines that several lanes share.
pub(crate) struct Shared {
    state: Mutex<State>,
    wakers: Arc<LaneWakers>,
}

/// State of shared disciplines behind the lock.
pub(crate) struct State {
    queueing: Queueing,
    /// Bit mask of the channels with a lane that sleeps or is about to sleep.
    asleep: u64,
    /// Number of lanes that use the disciplines.
    lanes: u32,
}

impl Shared {
    pub(crate) fn new(queueing: Queueing, wakers: Arc<LaneWakers>) -> Arc<Self> {
        let state = State { queueing, asleep: 0, lanes: 0 };
        Arc::new(Self { state: Mutex::new(state), wakers })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the schedulers. Waiting frames move to the new schedulers.
    pub(crate) fn succeed(&self, next: Disciplines, call: &Call<'_>) {
        self.lock().queueing.succeed(next, call);
    }
}

impl State {
    /// Removes one lane from the count. Returns true if that lane was the last.
    fn remove_lane(&mut self) -> bool {
        self.lanes -= 1;
        self.lanes == 0
    }
}

enum Ownership {
    Own(Box<Queueing>),
    Shared(Arc<Shared>),
}

/// Access to the disciplines, with the lock if they are shared.
pub(crate) enum Access<'a> {
    Own(&'a mut Queueing),
    Shared(MutexGuard<'a, State>),
}

impl Deref for Access<'_> {
    type Target = Queueing;

    #[inline]
    fn deref(&self) -> &Queueing {
        match self {
            Self::Own(queueing) => queueing,
            Self::Shared(state) => &state.queueing,
        }
    }
}

impl DerefMut for Access<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Queueing {
        match self {
            Self::Own(queueing) => queueing,
            Self::Shared(state) => &mut state.queueing,
        }
    }
}

/// Disciplines of one lane's sink.
pub(crate) struct Egress {
    channel: u16,
    ownership: Ownership,
    /// True if no frame is added any more; the egress is removed once it is empty.
    pub(crate) retiring: bool,
    /// Latest time of the next poll, set when the lane goes to sleep; `None`: no limit. At that
    /// time a token bucket releases a frame, or the lane checks a condition that has no
    /// notification.
    wake_at: Option<Duration>,
}

impl Egress {
    /// Creates an egress with disciplines that only this lane uses.
    pub(crate) fn own(channel: u16, queueing: Queueing) -> Self {
        Self::at(channel, Ownership::Own(Box::new(queueing)))
    }

    /// Creates an egress with disciplines that other lanes use too, and counts the lane there.
    pub(crate) fn shared(channel: u16, shared: &Arc<Shared>) -> Self {
        shared.lock().lanes += 1;
        Self::at(channel, Ownership::Shared(shared.clone()))
    }

    fn at(channel: u16, ownership: Ownership) -> Self {
        Self { channel, ownership, retiring: false, wake_at: None }
    }

    #[inline]
    pub(crate) fn access(&mut self) -> Access<'_> {
        match &mut self.ownership {
            Ownership::Own(queueing) => Access::Own(queueing),
            Ownership::Shared(shared) => Access::Shared(shared.lock()),
        }
    }

    /// Returns [`Queueing::can_bypass`]. The function runs once per poll, so it creates no
    /// [`Access`] guard for disciplines of one lane.
    #[inline]
    pub(crate) fn can_bypass(&self, channel: u16) -> bool {
        match &self.ownership {
            Ownership::Own(queueing) => queueing.can_bypass(channel),
            Ownership::Shared(shared) => shared.lock().queueing.can_bypass(channel),
        }
    }

    /// Calls [`Queueing::note_bypass`].
    #[inline(always)]
    pub(crate) fn note_bypass(&self, channel: u16, packets: u64, bytes: u64) {
        match &self.ownership {
            Ownership::Own(queueing) => queueing.note_bypass(channel, packets, bytes),
            Ownership::Shared(shared) => {
                shared.lock().queueing.note_bypass(channel, packets, bytes)
            }
        }
    }

    /// Number of frames that wait for this lane's channel.
    pub(crate) fn waiting(&mut self) -> u32 {
        let channel = self.channel;
        self.access().waiting(channel)
    }

    /// True if other lanes may add frames to this lane's queue.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.ownership, Ownership::Shared(_))
    }

    /// Eventfd that wakes the sleeping lane when other lanes add frames to its queue. `None` if the
    /// disciplines are not shared.
    pub(crate) fn waker(&self) -> Option<BorrowedFd<'_>> {
        match &self.ownership {
            Ownership::Own(_) => None,
            Ownership::Shared(shared) => {
                shared.wakers.0.get(usize::from(self.channel)).map(AsFd::as_fd)
            }
        }
    }

    /// Wakes the sleeping lanes of the channels in the bit mask.
    #[cold]
    pub(crate) fn wake_lanes(&self, channels: u64) {
        let Ownership::Shared(shared) = &self.ownership else { return };
        let asleep = {
            let mut state = shared.lock();
            let asleep = state.asleep & channels;
            state.asleep &= !asleep;
            asleep
        };
        for (channel, waker) in shared.wakers.0.iter().enumerate() {
            if asleep >> channel & 1 == 1 {
                let _ = waker.ring();
            }
        }
    }

    /// Marks the lane as asleep. Lanes that add frames to this lane's queue then wake it.
    pub(crate) fn mark_asleep(&self) {
        if let Ownership::Shared(shared) = &self.ownership {
            shared.lock().asleep |= 1 << self.channel;
        }
    }

    /// Limits the sleep: the lane is polled again at `at` at the latest. The earliest of several
    /// limits counts.
    pub(crate) fn wake_by(&mut self, at: Duration) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Clears the limits set by [`Self::wake_by`].
    pub(crate) fn clear_wake(&mut self) {
        self.wake_at = None;
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Statistics of the page pool. Only channel 0 reports the pool of shared disciplines; other
    /// channels return `None`.
    pub(crate) fn pool_stats(&mut self) -> Option<PoolStats> {
        let tells = self.channel == 0 || matches!(self.ownership, Ownership::Own(_));
        tells.then(|| self.access().pool_stats())
    }

    /// Gauge of the page pool, for the same channels as [`Self::pool_stats`].
    pub(crate) fn pool_gauge(&mut self) -> Option<Gauge> {
        let tells = self.channel == 0 || matches!(self.ownership, Ownership::Own(_));
        tells.then(|| self.access().pool_gauge())
    }

    /// Replaces the schedulers. Returns `next` as an error if other lanes share them.
    pub(crate) fn succeed(
        &mut self,
        next: Disciplines,
        call: &Call<'_>,
    ) -> Result<(), Disciplines> {
        match &mut self.ownership {
            Ownership::Own(queueing) => {
                queueing.succeed(next, call);
                Ok(())
            }
            Ownership::Shared(_) => Err(next),
        }
    }

    /// Moves the frames that wait for this lane out of `old`, the lane's previous disciplines. The
    /// lane leaves `old`.
    pub(crate) fn take_over(&mut self, mut old: Self, call: &Call<'_>) {
        let relabel = matches!(self.ownership, Ownership::Own(_));
        let mut next = self.access();
        match &mut old.ownership {
            Ownership::Own(queueing) => {
                next.take_over(queueing, true, relabel, call);
                queueing.close(call);
            }
            Ownership::Shared(shared) => {
                // The lock covers the count and the move, so that exactly one of several lanes that
                // leave concurrently is the last.
                let mut state = shared.lock();
                let all = state.remove_lane();
                next.take_over(&mut state.queueing, all, relabel, call);
                if all {
                    state.queueing.close(call);
                }
            }
        }
    }

    /// Leaves the disciplines, in which no frame may wait for this lane. Returns false if the lane
    /// is the last one while frames of other channels wait. These frames then move to this lane's
    /// channel, and the lane must stay.
    pub(crate) fn leave(&mut self, call: &Call<'_>) -> bool {
        match &mut self.ownership {
            Ownership::Own(queueing) => {
                let stays = queueing.gather_strays(call);
                if !stays {
                    queueing.close(call);
                }
                !stays
            }
            Ownership::Shared(shared) => {
                let mut state = shared.lock();
                if state.lanes == 1 && state.queueing.gather_strays(call) {
                    return false;
                }
                if state.remove_lane() {
                    state.queueing.close(call);
                }
                true
            }
        }
    }

    /// Closes the egress with its lane. The last lane drops and counts the waiting frames.
    pub(crate) fn close(mut self, call: &Call<'_>) {
        match &mut self.ownership {
            Ownership::Own(queueing) => queueing.close(call),
            Ownership::Shared(shared) => {
                let mut state = shared.lock();
                if state.remove_lane() {
                    state.queueing.close(call);
                }
            }
        }
    }
}
