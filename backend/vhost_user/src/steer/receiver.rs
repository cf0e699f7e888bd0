//! Receive queue of a guest, shared by all lanes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{Fault, HandOver, OwningTx, Queue, QueuePairStats};

use crate::GuestRx;
use crate::vring::{EpollSet, VringCell};

/// The bit map `waiting` has one bit for each lane.
const _: () = assert!(CHANNELS_MAX as u32 <= u64::BITS);

/// Shared receive queue. A lane takes the queue for each use and puts it back immediately.
#[derive(Debug)]
pub(crate) struct Receiver {
    place: HandOver<GuestRx>,
    cell: Arc<VringCell>,
    events: Arc<EpollSet>,
    /// Bit map of the lanes that have armed the queue. A use by another lane disarms the queue, so
    /// [`put`](Self::put) wakes them.
    waiting: AtomicU64,
}

impl Receiver {
    pub(crate) fn new(
        channel: u16,
        cell: Arc<VringCell>,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let queue = GuestRx::new(channel, cell.clone(), stats)?;
        let (events, waiting) = (queue.events().clone(), AtomicU64::new(0));
        Ok(Self { place: HandOver::new(queue), cell, events, waiting })
    }

    pub(crate) fn events(&self) -> &EpollSet {
        &self.events
    }

    /// Takes the queue; `None` if another lane has it.
    #[inline]
    pub(super) fn take(&self) -> Option<Box<GuestRx>> {
        self.place.take()
    }

    /// Puts the queue back, and wakes other lanes that wait for it.
    #[inline]
    pub(super) fn put(&self, channel: u16, queue: Box<GuestRx>) {
        self.put_without_wake(queue);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake_others(channel);
        }
    }

    #[cold]
    fn wake_others(&self, channel: u16) {
        if self.waiting.swap(0, Ordering::Relaxed) & !(1 << channel) != 0 {
            self.cell.wake();
        }
    }

    /// Puts the queue back without waking lanes, after arming or parking.
    pub(super) fn put_without_wake(&self, queue: Box<GuestRx>) {
        self.place.put(queue);
    }

    /// Registers a lane, before the lane arms the queue. A later user of the queue sees the
    /// registration, because it takes the lock of `place` afterwards.
    pub(super) fn wait(&self, channel: u16) {
        self.waiting.fetch_or(1 << channel, Ordering::Relaxed);
    }

    /// Publishes the sent frames and puts the queue back.
    pub(super) fn finish(&self, channel: u16, mut queue: Box<GuestRx>) -> Result<(), Fault> {
        let done = queue.flush();
        self.put(channel, queue);
        done
    }

    /// Returns the ring to its cell, unless a lane has the queue.
    pub(crate) fn return_ring(&self) {
        if let Some(mut queue) = self.take() {
            queue.park();
            self.put_without_wake(queue);
        }
    }
}
