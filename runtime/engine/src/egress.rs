//! What leaves through a netdev: when its sink is full, and the disciplines attached to it.
//!
//! A lane without disciplines has no egress, and pays one branch a poll for that. With disciplines
//! frames still go straight from source to sink while nothing waits and nothing has to be decided;
//! what the sink has no room for is *detached*: copied once into pool pages, where it waits.
//!
//! The disciplines of `mq` belong to one lane each. Any other root is one object for all lanes that
//! send through the netdev, by its meaning (one rate, one limit, one order), and so is everything
//! by which frames may change their channel: they are behind a lock, taken once a poll. The data
//! path has no other lock.

mod queueing;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqnet_pktbuf::{Gauge, PoolStats};
use mqnet_sysio::eventfd::EventFd;

pub(crate) use queueing::{Call, Disciplines, Queueing, allowance};

/// What a lane does while its sink is full and nothing is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// It stops taking from its source: nothing is lost here.
    #[default]
    Stop,
    /// It goes on and drops (tail drop, as the kernel's noqueue).
    Drop,
}

/// The egress of one side of a link at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressConfig {
    /// Words of the discipline attached to every channel, such as `fq_codel limit 1000`; `None`:
    /// none.
    pub qdisc: Option<String>,
    /// What happens when the sink is full.
    pub full: Full,
    /// Flows come to the channel on which whoever is behind the netdev sends their other direction.
    pub learn: bool,
}

/// Wakes the lane of each channel of a netdev when another lane has put frames into its queue.
#[derive(Debug)]
pub(crate) struct Doors(Vec<EventFd>);

impl Doors {
    pub(crate) fn new(channels: u16) -> std::io::Result<Self> {
        (0..channels).map(|_| EventFd::new()).collect::<Result<_, _>>().map(Self)
    }
}

/// Disciplines that several lanes use.
pub(crate) struct Shared {
    state: Mutex<State>,
    doors: Arc<Doors>,
}

/// What is behind the lock.
pub(crate) struct State {
    queueing: Queueing,
    /// Channels whose lanes sleep, or are about to.
    asleep: u64,
    /// Lanes that use it.
    lanes: u32,
}

impl Shared {
    pub(crate) fn new(queueing: Queueing, doors: Arc<Doors>) -> Arc<Self> {
        let state = State { queueing, asleep: 0, lanes: 0 };
        Arc::new(Self { state: Mutex::new(state), doors })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts other schedulers in the place of these.
    pub(crate) fn succeed(&self, next: Disciplines, call: &Call<'_>) {
        self.lock().queueing.succeed(next, call);
    }
}

impl State {
    /// One lane less uses it; true when that was the last.
    fn let_go(&mut self) -> bool {
        self.lanes -= 1;
        self.lanes == 0
    }
}

enum Place {
    Own(Box<Queueing>),
    Shared(Arc<Shared>),
}

/// The disciplines, locked if they are shared.
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

/// The disciplines in front of one lane's sink.
pub(crate) struct Egress {
    channel: u16,
    place: Place,
    /// Nothing new comes in; it goes when it is empty.
    pub(crate) retiring: bool,
    /// When the lane must be polled again, as it fell asleep: a token bucket lets the next frame
    /// go, or nobody tells what it waits for.
    wake_at: Option<Duration>,
}

impl Egress {
    /// Disciplines of this lane alone.
    pub(crate) fn own(channel: u16, queueing: Queueing) -> Self {
        Self::at(channel, Place::Own(Box::new(queueing)))
    }

    /// Disciplines that other lanes use too.
    pub(crate) fn shared(channel: u16, shared: &Arc<Shared>) -> Self {
        shared.lock().lanes += 1;
        Self::at(channel, Place::Shared(shared.clone()))
    }

    fn at(channel: u16, place: Place) -> Self {
        Self { channel, place, retiring: false, wake_at: None }
    }

    #[inline]
    pub(crate) fn access(&mut self) -> Access<'_> {
        match &mut self.place {
            Place::Own(queueing) => Access::Own(queueing),
            Place::Shared(shared) => Access::Shared(shared.lock()),
        }
    }

    /// See [`Queueing::can_bypass`]. Once a poll, so without a guard for what is our own.
    #[inline]
    pub(crate) fn can_bypass(&self, channel: u16) -> bool {
        match &self.place {
            Place::Own(queueing) => queueing.can_bypass(channel),
            Place::Shared(shared) => shared.lock().queueing.can_bypass(channel),
        }
    }

    /// See [`Queueing::note_bypass`].
    #[inline(always)]
    pub(crate) fn note_bypass(&self, channel: u16, packets: u64, bytes: u64) {
        match &self.place {
            Place::Own(queueing) => queueing.note_bypass(channel, packets, bytes),
            Place::Shared(shared) => shared.lock().queueing.note_bypass(channel, packets, bytes),
        }
    }

    /// Frames that wait for this lane's channel.
    pub(crate) fn waiting(&mut self) -> u32 {
        let channel = self.channel;
        self.access().waiting(channel)
    }

    /// True when other lanes may put frames into its queue.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.place, Place::Shared(_))
    }

    /// Other lanes put frames into our queue: what to watch while asleep.
    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::Own(_) => None,
            Place::Shared(shared) => shared.doors.0.get(usize::from(self.channel)).map(AsFd::as_fd),
        }
    }

    /// Wakes the lanes of these channels, if they sleep.
    #[cold]
    pub(crate) fn knock(&self, channels: u64) {
        let Place::Shared(shared) = &self.place else { return };
        let asleep = {
            let mut state = shared.lock();
            let asleep = state.asleep & channels;
            state.asleep &= !asleep;
            asleep
        };
        for (channel, door) in shared.doors.0.iter().enumerate() {
            if asleep >> channel & 1 == 1 {
                let _ = door.ring();
            }
        }
    }

    /// The lane is about to sleep, and waits for others from now on.
    pub(crate) fn say_asleep(&self) {
        if let Place::Shared(shared) = &self.place {
            shared.lock().asleep |= 1 << self.channel;
        }
    }

    /// It must be polled again by then, whatever happens.
    pub(crate) fn wake_by(&mut self, at: Duration) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The same, until the next reason.
    pub(crate) fn forget_wake(&mut self) {
        self.wake_at = None;
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Statistics of the memory; of shared memory its first lane tells.
    pub(crate) fn pool_stats(&mut self) -> Option<PoolStats> {
        let tells = self.channel == 0 || matches!(self.place, Place::Own(_));
        tells.then(|| self.access().pool_stats())
    }

    /// A gauge of the same memory.
    pub(crate) fn pool_gauge(&mut self) -> Option<Gauge> {
        let tells = self.channel == 0 || matches!(self.place, Place::Own(_));
        tells.then(|| self.access().pool_gauge())
    }

    /// Puts schedulers in the place of those of this lane; `false`: it shares them with others.
    pub(crate) fn succeed(
        &mut self,
        next: Disciplines,
        call: &Call<'_>,
    ) -> Result<(), Disciplines> {
        match &mut self.place {
            Place::Own(queueing) => {
                queueing.succeed(next, call);
                Ok(())
            }
            Place::Shared(_) => Err(next),
        }
    }

    /// Takes what waits for this lane from the disciplines that were in this place, whose lane it
    /// leaves.
    pub(crate) fn take_over(&mut self, mut old: Self, call: &Call<'_>) {
        let relabel = matches!(self.place, Place::Own(_));
        let mut next = self.access();
        match &mut old.place {
            Place::Own(queueing) => {
                next.take_over(queueing, true, relabel, call);
                queueing.close(call);
            }
            Place::Shared(shared) => {
                // At one go: of lanes that leave at the same time one has to be the last.
                let mut state = shared.lock();
                let all = state.let_go();
                next.take_over(&mut state.queueing, all, relabel, call);
                if all {
                    state.queueing.close(call);
                }
            }
        }
    }

    /// Nothing waits for this lane, which leaves its disciplines. `false`: it stays, being the
    /// last, and sends what other lanes have left behind.
    pub(crate) fn leave(&mut self, call: &Call<'_>) -> bool {
        match &mut self.place {
            Place::Own(queueing) => {
                let stays = queueing.gather_strays(call);
                if !stays {
                    queueing.close(call);
                }
                !stays
            }
            Place::Shared(shared) => {
                let mut state = shared.lock();
                if state.lanes == 1 && state.queueing.gather_strays(call) {
                    return false;
                }
                if state.let_go() {
                    state.queueing.close(call);
                }
                true
            }
        }
    }

    /// The lane is taken apart: what waits, if no other lane can send it, is dropped and counted.
    pub(crate) fn close(mut self, call: &Call<'_>) {
        match &mut self.place {
            Place::Own(queueing) => queueing.close(call),
            Place::Shared(shared) => {
                let mut state = shared.lock();
                if state.let_go() {
                    state.queueing.close(call);
                }
            }
        }
    }
}
