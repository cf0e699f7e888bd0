//! What the guest receives on one queue, for all lanes that have frames for it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{ChannelStats, Fault, Queue, TxBrings};

use crate::GuestRx;
use crate::vring::{Ears, VringCell};

/// A bit for each lane that waits.
const _: () = assert!(CHANNELS_MAX as u32 <= u64::BITS);

/// See the module. Whoever has something for the queue takes it, and puts it back at once.
#[derive(Debug)]
pub(crate) struct Receiver {
    place: Mutex<Option<Box<GuestRx>>>,
    cell: Arc<VringCell>,
    ears: Arc<Ears>,
    /// Lanes that have armed it: what another one does with it then disarms it.
    waiting: AtomicU64,
}

impl Receiver {
    pub(crate) fn new(
        channel: u16,
        cell: Arc<VringCell>,
        stats: Arc<ChannelStats>,
    ) -> io::Result<Self> {
        let queue = GuestRx::new(channel, cell.clone(), stats)?;
        let (ears, waiting) = (queue.ears().clone(), AtomicU64::new(0));
        Ok(Self { place: Mutex::new(Some(Box::new(queue))), cell, ears, waiting })
    }

    pub(crate) fn ears(&self) -> &Ears {
        &self.ears
    }

    /// The queue, unless somebody else has it this moment.
    #[inline]
    pub(super) fn take(&self) -> Option<Box<GuestRx>> {
        self.place.try_lock().ok()?.take()
    }

    /// From the lane of a channel: for the next one.
    #[inline]
    pub(super) fn put(&self, channel: u16, queue: Box<GuestRx>) {
        self.put_quietly(queue);
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

    /// For a lane that has armed it: nobody's waiting is over.
    pub(super) fn put_quietly(&self, queue: Box<GuestRx>) {
        // Nothing can panic while the lock is held.
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
    }

    /// Before a lane arms it. The lock of the place orders it: whoever has the queue later sees it.
    pub(super) fn wait(&self, channel: u16) {
        self.waiting.fetch_or(1 << channel, Ordering::Relaxed);
    }

    /// Shows the guest what was sent, and puts the queue back.
    pub(super) fn finish(&self, channel: u16, mut queue: Box<GuestRx>) -> Result<(), Fault> {
        let done = queue.flush();
        self.put(channel, queue);
        done
    }

    /// The ring goes back into its cell, unless a lane has it this moment.
    pub(crate) fn give_back(&self) {
        if let Some(mut queue) = self.take() {
            queue.park();
            self.put_quietly(queue);
        }
    }
}
