//! XDP_TX reinjection path: from a program on an RX queue to the lane that sends through the same
//! netdev.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use mqnet_netdev::wrap::insert::Insert;
use mqnet_netdev::{DropReason, Offloads, QueuePairStats};
use mqnet_rings::spsc::{SpscConsumer, SpscProducer, ring};

use super::OwnedFrame;
use super::prepare::needed;

/// Capacity of a reinjection path in frames.
const DEPTH: u32 = 256;

/// Waker of the worker that runs the sending lane.
pub trait ReinjectWaker: Send {
    /// Wakes the worker.
    fn ring(&self);
}

#[derive(Debug, Default)]
struct Shared {
    /// True if the sending lane sleeps and requests a wake.
    armed: AtomicBool,
    /// True if the receiving end was dropped.
    closed: AtomicBool,
}

/// Sending end of a reinjection path, used by the hook.
pub struct ReinjectTx {
    out: SpscProducer<OwnedFrame>,
    back: SpscConsumer<Box<[u8]>>,
    shared: Arc<Shared>,
    waker: Box<dyn ReinjectWaker>,
}

/// Configuration of the receiving end.
#[derive(Debug)]
pub struct ReinjectConfig {
    /// Statistics of the channel that sends the frames.
    pub stats: Arc<QueuePairStats>,
    /// Largest frame that may be sent.
    pub frame_max: u32,
    /// Offloads of the netdev that sends the frames.
    pub tx_offloads: Offloads,
    /// State of the path, shared with the control thread.
    pub joined: super::Hooked,
}

/// Receiving end of a reinjection path, in the sending lane.
pub struct ReinjectRx {
    taken: SpscConsumer<OwnedFrame>,
    empty: SpscProducer<Box<[u8]>>,
    shared: Arc<Shared>,
    pub(super) ready: VecDeque<OwnedFrame>,
    /// Position of the reinjected frames among the frames of the queue.
    pub(super) insert: Insert,
    /// Number of frames that a closing lane still accepts; `None` if the lane is not closing.
    left: Option<u32>,
    pub(super) config: ReinjectConfig,
}

/// Reinjected frames that a removed lane had not sent. If no other lane adopts them, they are
/// dropped and counted.
#[derive(Debug)]
pub struct UnsentReinjected {
    unsent: Vec<OwnedFrame>,
    /// Number of frames in `unsent` that are not counted as reinjected.
    uncounted: u64,
    stats: Arc<QueuePairStats>,
}

impl UnsentReinjected {
    /// True if there are no frames.
    pub fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }
}

impl Drop for UnsentReinjected {
    fn drop(&mut self) {
        let lost = self.unsent.len() as u64;
        if lost > 0 {
            self.stats.tx.xdp_tx.add(self.uncounted);
            self.stats.tx.xdp_tx_drops.add(lost);
            self.stats.tx.drops.count(DropReason::LinkClosed, lost);
        }
    }
}

/// Creates a reinjection path: its sending and its receiving end.
pub fn way(config: ReinjectConfig, waker: Box<dyn ReinjectWaker>) -> (ReinjectTx, ReinjectRx) {
    let (out, taken) = ring(DEPTH);
    let (empty, back) = ring(DEPTH);
    let shared = Arc::new(Shared::default());
    let ready = VecDeque::with_capacity(mqnet_netdev::limits::BURST_FRAMES);
    let (insert, left) = (Insert::default(), None);
    let inlet = ReinjectRx { taken, empty, shared: shared.clone(), ready, insert, left, config };
    (ReinjectTx { out, back, shared, waker }, inlet)
}

impl ReinjectTx {
    /// Sends a frame. Returns its page if the path is full or the receiving end was dropped.
    pub(super) fn send(&mut self, owned: OwnedFrame) -> Result<(), Box<[u8]>> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(owned.page);
        }
        self.out.push_one(owned).map_err(|owned| owned.page)
    }

    /// Takes a page that the receiving end returned; `None` if there is none.
    pub(super) fn page(&mut self) -> Option<Box<[u8]>> {
        self.back.pop_one()
    }

    /// Wakes the sending lane after frames were sent, if the lane requests that.
    pub(super) fn wake(&self) {
        // Pairs with the fence in `ReinjectRx::arm`: orders the sent frames before the read of
        // `armed`.
        fence(Ordering::SeqCst);
        if self.shared.armed.swap(false, Ordering::Relaxed) {
            self.waker.ring();
        }
    }
}

impl ReinjectRx {
    /// Accepts the frames that have arrived. A closing lane accepts a bounded number.
    pub(super) fn fill(&mut self) {
        if !self.config.joined.is_closing() {
            self.left = None;
        } else if self.left.is_none() {
            // Accept at most as many frames as the path can hold; later frames go to the replacing
            // lane.
            self.left = Some(DEPTH);
        }
        while self.ready.len() < mqnet_netdev::limits::BURST_FRAMES && self.left != Some(0) {
            let Some(owned) = self.taken.pop_one() else { break };
            self.left = self.left.map(|left| left - 1);
            self.config.stats.tx.xdp_tx.add(1);
            if owned.len > self.config.frame_max {
                self.drop_frame(owned, DropReason::TooLong);
            } else {
                self.ready.push_back(owned);
            }
        }
        self.publish_waiting();
    }

    /// Publishes the number of frames that the lane must still send: those in `ready`, or 1 if only
    /// the path has frames.
    pub(super) fn publish_waiting(&mut self) {
        let more = self.ready.is_empty() && self.left != Some(0) && !self.taken.is_empty();
        self.config.joined.set(self.ready.len() + usize::from(more));
    }

    /// True if the first peeked and unreleased frame is a reinjected one.
    pub fn own_waits(&self) -> bool {
        self.insert.own_waits()
    }

    /// Removes all frames, so that the lane that replaces this one can adopt them.
    pub(super) fn drain_unsent(&mut self) -> UnsentReinjected {
        let mut unsent = Vec::from(std::mem::take(&mut self.ready));
        let counted = unsent.len();
        unsent.extend(std::iter::from_fn(|| self.taken.pop_one()));
        let uncounted = (unsent.len() - counted) as u64;
        self.publish_waiting();
        UnsentReinjected { unsent, uncounted, stats: self.config.stats.clone() }
    }

    /// Records that `frames` frames of the queue were peeked and not released before this end was
    /// attached.
    pub fn queue_waits(&mut self, frames: usize) {
        if !self.insert.own_waits() && self.insert.lead() < frames {
            self.insert.show(0, 0, frames);
        }
    }

    /// Takes over the frames and the position of `left`, an earlier receiving end of the same
    /// queue.
    pub(super) fn replace(&mut self, mut left: Self) {
        self.adopt(left.drain_unsent());
        self.insert = std::mem::take(&mut left.insert);
    }

    /// Queues frames of a removed lane before other reinjected frames.
    pub(super) fn adopt(&mut self, mut returned: UnsentReinjected) {
        // Count in this lane, not in the removed one: the counter has a single writer.
        self.config.stats.tx.xdp_tx.add(std::mem::take(&mut returned.uncounted));
        // Keep a peeked first frame first: some of its segments may be sent.
        let mut at = usize::from(self.insert.own_waits()).min(self.ready.len());
        for owned in std::mem::take(&mut returned.unsent) {
            if owned.len > self.config.frame_max {
                self.drop_frame(owned, DropReason::TooLong);
            } else if !self.config.tx_offloads.has(needed(owned.hdr)) {
                self.drop_frame(owned, DropReason::XdpUnsent);
            } else {
                self.ready.insert(at, owned);
                at += 1;
            }
        }
        self.publish_waiting();
    }

    fn drop_frame(&mut self, owned: OwnedFrame, reason: DropReason) {
        self.config.stats.tx.xdp_tx_drops.add(1);
        self.config.stats.tx.drops.count(reason, 1);
        self.return_page(owned);
    }

    pub(super) fn return_page(&mut self, owned: OwnedFrame) {
        // Ignore an error: if the ring rejects the page, the page is freed.
        let _ = self.empty.push_one(owned.page);
    }

    /// Requests a wake. Returns true if frames are present already.
    pub(super) fn arm(&mut self) -> bool {
        if !self.ready.is_empty() {
            return true;
        }
        self.shared.armed.store(true, Ordering::Relaxed);
        // Pairs with the fence in `ReinjectTx::wake`: orders the write of `armed` before the read
        // of the ring.
        fence(Ordering::SeqCst);
        !self.taken.is_empty()
    }

    /// True if no frame waits and none can arrive any more.
    pub(super) fn is_finished(&mut self) -> bool {
        // Check if the sending end, the only other owner, was dropped.
        let alone = Arc::strong_count(&self.shared) == 1;
        // Pairs with the release when the sending end drops `shared`: orders the frames that it
        // sent before the reads below.
        fence(Ordering::Acquire);
        alone && self.ready.is_empty() && self.taken.is_empty()
    }
}

impl Drop for ReinjectRx {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        drop(self.drain_unsent());
        self.config.joined.end();
    }
}

impl Drop for ReinjectTx {
    fn drop(&mut self) {
        while self.back.pop_one().is_some() {}
    }
}
