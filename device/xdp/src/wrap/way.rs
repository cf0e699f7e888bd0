//! The way back: from a program around an RX queue to the lane that sends through the same netdev.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use mqnet_netdev::{ChannelStats, DropReason};
use mqnet_rings::spsc::{Consumer, Producer, ring};

use super::Parcel;

/// Frames that can be on their way back.
const DEPTH: u32 = 256;

/// Wakes the worker of the lane that sends.
pub trait Bell: Send {
    /// Does it.
    fn ring(&self);
}

#[derive(Debug, Default)]
struct Shared {
    /// The lane that sends sleeps.
    armed: AtomicBool,
    /// It is gone.
    closed: AtomicBool,
}

/// Where a program puts what it sends.
pub struct Outlet {
    out: Producer<Parcel>,
    back: Consumer<Box<[u8]>>,
    shared: Arc<Shared>,
    bell: Box<dyn Bell>,
}

/// Whose counters count what comes by it: those of the netdev that sends.
#[derive(Debug)]
pub struct InletConfig {
    /// Statistics of the channel that sends.
    pub stats: Arc<ChannelStats>,
    /// Largest frame that may be sent.
    pub frame_max: u32,
    /// Kept while the way back is in place.
    pub joined: super::Hooked,
}

/// Where it comes out.
pub struct Return {
    taken: Consumer<Parcel>,
    empty: Producer<Box<[u8]>>,
    shared: Arc<Shared>,
    pub(super) ready: VecDeque<Parcel>,
    pub(super) config: InletConfig,
}

/// What a lane that is gone had still to send for a program; dropped and counted when nobody sends
/// it.
#[derive(Debug)]
pub struct Returned {
    parcels: Vec<Parcel>,
    stats: Arc<ChannelStats>,
}

impl Returned {
    /// True when there was nothing.
    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        let lost = self.parcels.len() as u64;
        if lost > 0 {
            self.stats.tx.xdp_tx_drops.add(lost);
            self.stats.tx.drops.count(DropReason::LinkClosed, lost);
        }
    }
}

/// A way back.
pub fn way(config: InletConfig, bell: Box<dyn Bell>) -> (Outlet, Return) {
    let (out, taken) = ring(DEPTH);
    let (empty, back) = ring(DEPTH);
    let shared = Arc::new(Shared::default());
    let ready = VecDeque::with_capacity(mqnet_netdev::limits::BURST_FRAMES);
    let inlet = Return { taken, empty, shared: shared.clone(), ready, config };
    (Outlet { out, back, shared, bell }, inlet)
}

impl Outlet {
    /// Sends a frame, or gives its page back.
    pub(super) fn send(&mut self, parcel: Parcel) -> Result<(), Box<[u8]>> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(parcel.page);
        }
        self.out.push_one(parcel).map_err(|parcel| parcel.page)
    }

    /// A page that came back.
    pub(super) fn page(&mut self) -> Option<Box<[u8]>> {
        self.back.pop_one()
    }

    /// Something was sent: its lane must not sleep.
    pub(super) fn wake(&self) {
        // Pairs with the fence in Return::arm: what was sent, and the wish to be woken.
        fence(Ordering::SeqCst);
        if self.shared.armed.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }
}

impl Return {
    /// Takes in what has come.
    pub(super) fn fill(&mut self) {
        while self.ready.len() < mqnet_netdev::limits::BURST_FRAMES {
            let Some(parcel) = self.taken.pop_one() else { break };
            self.config.stats.tx.xdp_tx.add(1);
            if parcel.len > self.config.frame_max {
                self.drop_too_long(parcel);
            } else {
                self.ready.push_back(parcel);
            }
        }
        self.note_waiting();
    }

    /// Tells the lane how many frames are still to be sent, as far as that can be known.
    pub(super) fn note_waiting(&mut self) {
        let joined = &self.config.joined;
        let more = usize::from(self.ready.is_empty() && !self.taken.is_empty());
        if self.ready.len() + more != joined.waiting() as usize {
            joined.set(self.ready.len() + more);
        }
    }

    /// Takes out all that is here, for the lane that sends in the place of this one.
    pub(super) fn take_all(&mut self) -> Returned {
        let stats = self.config.stats.clone();
        let mut parcels = Vec::from(std::mem::take(&mut self.ready));
        while let Some(parcel) = self.taken.pop_one() {
            stats.tx.xdp_tx.add(1);
            parcels.push(parcel);
        }
        self.note_waiting();
        Returned { parcels, stats }
    }

    /// Sends what another lane has left before all that comes.
    pub(super) fn adopt(&mut self, mut returned: Returned) {
        for parcel in std::mem::take(&mut returned.parcels).into_iter().rev() {
            if parcel.len > self.config.frame_max {
                self.drop_too_long(parcel);
            } else {
                self.ready.push_front(parcel);
            }
        }
        self.note_waiting();
    }

    fn drop_too_long(&mut self, parcel: Parcel) {
        self.config.stats.tx.xdp_tx_drops.add(1);
        self.config.stats.tx.drops.count(DropReason::TooLong, 1);
        self.give_back(parcel);
    }

    pub(super) fn give_back(&mut self, parcel: Parcel) {
        // When the other end is gone, the page is freed with the ring's refusal.
        let _ = self.empty.push_one(parcel.page);
    }

    /// Asks to be woken; true when there is something already.
    pub(super) fn arm(&mut self) -> bool {
        if !self.ready.is_empty() {
            return true;
        }
        self.shared.armed.store(true, Ordering::Relaxed);
        // Pairs with the fence in Outlet::wake.
        fence(Ordering::SeqCst);
        !self.taken.is_empty()
    }

    /// True when nothing waits and nothing can come.
    pub(super) fn is_over(&mut self) -> bool {
        // The other owner is the outlet.
        let alone = Arc::strong_count(&self.shared) == 1;
        // Pairs with the release in Outlet's drop of `shared`: what it put there before it went.
        fence(Ordering::Acquire);
        alone && self.ready.is_empty() && self.taken.is_empty()
    }
}

impl Drop for Return {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        drop(self.take_all());
        self.config.joined.end();
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        while self.back.pop_one().is_some() {}
    }
}
