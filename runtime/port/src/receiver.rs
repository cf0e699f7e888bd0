//! Receiving half of the program.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_rings::spsc::{SpscConsumer, SpscProducer};
use mqnet_rings::{Ringer, Waiter};
use mqnet_sysio::poll;
use mqnet_wire::VnetHdr;

use crate::channel::{PortChannel, ReceiverRings, Slot};
use crate::error::Error;

/// Longest single wait for a frame; `recv` repeats it.
const WAIT: Duration = Duration::from_secs(60);

/// Receives the frames of one channel. While the program does not receive, the lane stops, and no
/// frame is lost.
///
/// On a channel that is not in use, frames that were sent before can still be received; then none
/// follows until the channel is in use again.
#[derive(Debug)]
pub struct Receiver {
    filled: SpscConsumer<Slot>,
    empty: SpscProducer<Slot>,
    waiter: Waiter,
    ringer: Ringer,
    channel: Arc<PortChannel>,
}

impl Receiver {
    pub(crate) fn new(channel: Arc<PortChannel>, rings: ReceiverRings) -> Self {
        let ReceiverRings { filled, empty, waiter, ringer } = rings;
        Self { filled, empty, waiter, ringer, channel }
    }

    /// Next frame; waits for one. `None` when the port was closed by its owner and every frame has
    /// been received.
    pub fn recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let slot = loop {
            if let Some(slot) = self.take_or_arm() {
                break slot;
            }
            if let Some(error) = self.channel.close_reason.get() {
                match self.filled.pop_one() {
                    // The lanes sent it between the first check and the end of the port.
                    Some(slot) => break slot,
                    None if error == Error::Closed => return Ok(None),
                    None => return Err(error),
                }
            }
            poll::wait_readable(&[self.channel.data_event.as_fd()], WAIT)
                .map_err(|e| Error::System(e.to_string()))?;
        };
        Ok(Some(Packet { slot: Some(slot), receiver: self }))
    }

    /// Next frame, if there is one. If there is none, [`as_fd`](AsFd::as_fd) becomes readable for
    /// the next one.
    pub fn try_recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        if let Some(slot) = self.take_or_arm() {
            return Ok(Some(Packet { slot: Some(slot), receiver: self }));
        }
        let Some(error) = self.channel.close_reason.get() else { return Ok(None) };
        // The lanes may have sent a frame between the first check and the end of the port.
        let slot = self.filled.pop_one().ok_or(error)?;
        Ok(Some(Packet { slot: Some(slot), receiver: self }))
    }

    /// True while the channel is in use.
    pub fn is_in_use(&self) -> bool {
        self.channel.is_in_use()
    }

    fn take_or_arm(&mut self) -> Option<Slot> {
        if let Some(slot) = self.filled.pop_one() {
            return Some(slot);
        }
        self.channel.data_event.drain();
        self.waiter.arm(&self.channel.data_word, 1);
        self.filled.pop_one()
    }

    /// Returns the slot of a frame that the program has dropped.
    fn release(&mut self, slot: Slot) {
        // Pairs with the Acquire in PortChannel::used.
        self.channel.taken.fetch_add(u64::from(slot.len), Ordering::Release);
        // The ring has as many entries as there are slots: one always fits.
        let pushed = self.empty.push_one(slot);
        debug_assert!(pushed.is_ok(), "more slots than there were");
        let channel = &self.channel;
        let free = channel.depth - self.empty.free() as u32;
        // A stopped lane continues when half of the slots are free. Small frames may then use few
        // bytes, so the lane waits for slots, not for bytes.
        let (size, used) = (channel.size(), channel.used());
        let have = if free * 2 >= channel.depth || used == 0 { size - used } else { 0 };
        if self.ringer.due(&channel.room_word, have) {
            channel.wake_worker();
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.data_event.as_fd()
    }
}

/// Received frame in its slot. Dropping it returns the slot.
#[derive(Debug)]
pub struct Packet<'a> {
    /// `None` only in the drop.
    slot: Option<Slot>,
    receiver: &'a mut Receiver,
}

impl Packet<'_> {
    /// Pending offloads of the frame: none, unless the port was opened for such frames.
    pub fn header(&self) -> VnetHdr {
        self.slot.as_ref().map(|slot| slot.hdr).unwrap_or_default()
    }
}

impl Deref for Packet<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.slot.as_ref().map_or(&[], |slot| &slot.bytes[..slot.len as usize])
    }
}

impl Drop for Packet<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.receiver.release(slot);
        }
    }
}
