//! The way back: from a program around an RX queue to the lane that sends through the same netdev.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use mqnet_netdev::wrap::insert::Insert;
use mqnet_netdev::{ChannelStats, DropReason, Offloads};
use mqnet_rings::spsc::{Consumer, Producer, ring};

use super::Parcel;
use super::hook::needed;

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
    /// How it may be unfinished.
    pub tx_offloads: Offloads,
    /// Kept while the way back is in place.
    pub joined: super::Hooked,
}

/// Where it comes out.
pub struct Return {
    taken: Consumer<Parcel>,
    empty: Producer<Box<[u8]>>,
    shared: Arc<Shared>,
    pub(super) ready: VecDeque<Parcel>,
    /// Where those stand among the frames of the queue.
    pub(super) insert: Insert,
    /// Frames that are still taken in before the lane leaves.
    left: Option<u32>,
    pub(super) config: InletConfig,
}

/// What a lane that is gone had still to send for a program; dropped and counted when nobody sends
/// it.
#[derive(Debug)]
pub struct Returned {
    parcels: Vec<Parcel>,
    /// Those of them that no counter has yet.
    uncounted: u64,
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
            self.stats.tx.xdp_tx.add(self.uncounted);
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
    let (insert, left) = (Insert::default(), None);
    let inlet = Return { taken, empty, shared: shared.clone(), ready, insert, left, config };
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
        if !self.config.joined.is_closing() {
            self.left = None;
        } else if self.left.is_none() {
            // What waits now is still sent; what comes for longer goes to the lane in its place.
            self.left = Some(DEPTH);
        }
        while self.ready.len() < mqnet_netdev::limits::BURST_FRAMES && self.left != Some(0) {
            let Some(parcel) = self.taken.pop_one() else { break };
            self.left = self.left.map(|left| left - 1);
            self.config.stats.tx.xdp_tx.add(1);
            if parcel.len > self.config.frame_max {
                self.refuse(parcel, DropReason::TooLong);
            } else {
                self.ready.push_back(parcel);
            }
        }
        self.note_waiting();
    }

    /// Tells the lane how many frames are its own to send, as far as that can be known.
    pub(super) fn note_waiting(&mut self) {
        let more = self.ready.is_empty() && self.left != Some(0) && !self.taken.is_empty();
        self.config.joined.set(self.ready.len() + usize::from(more));
    }

    /// The first frame that was shown and not taken came by it, not from the queue.
    pub fn own_waits(&self) -> bool {
        self.insert.own_waits()
    }

    /// Takes out all that is here, for the lane that sends in the place of this one.
    pub(super) fn take_all(&mut self) -> Returned {
        let mut parcels = Vec::from(std::mem::take(&mut self.ready));
        let counted = parcels.len();
        parcels.extend(std::iter::from_fn(|| self.taken.pop_one()));
        let uncounted = (parcels.len() - counted) as u64;
        self.note_waiting();
        Returned { parcels, uncounted, stats: self.config.stats.clone() }
    }

    /// Frames of the queue were shown and not taken before this was put in front of it.
    pub fn queue_waits(&mut self, frames: usize) {
        if !self.insert.own_waits() && self.insert.lead() < frames {
            self.insert.show(0, 0, frames);
        }
    }

    /// Takes the place of another one on the same queue, by which nothing comes any more.
    pub(super) fn succeed(&mut self, mut left: Self) {
        self.adopt(left.take_all());
        self.insert = std::mem::take(&mut left.insert);
    }

    /// Sends what another lane has left before all that comes.
    pub(super) fn adopt(&mut self, mut returned: Returned) {
        // By one writer: the lane that is gone may have counted in the same place.
        self.config.stats.tx.xdp_tx.add(std::mem::take(&mut returned.uncounted));
        // Some segments of the first may be sent.
        let mut at = usize::from(self.insert.own_waits()).min(self.ready.len());
        for parcel in std::mem::take(&mut returned.parcels) {
            if parcel.len > self.config.frame_max {
                self.refuse(parcel, DropReason::TooLong);
            } else if !self.config.tx_offloads.has(needed(parcel.hdr)) {
                self.refuse(parcel, DropReason::XdpUnsent);
            } else {
                self.ready.insert(at, parcel);
                at += 1;
            }
        }
        self.note_waiting();
    }

    fn refuse(&mut self, parcel: Parcel, reason: DropReason) {
        self.config.stats.tx.xdp_tx_drops.add(1);
        self.config.stats.tx.drops.count(reason, 1);
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
