//! Receiver of the program.

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

/// Longest single wait for a frame. `recv` repeats the wait.
const WAIT: Duration = Duration::from_secs(60);

/// Receiver of the frames of one channel. While the program does not receive, the lane stops, and
/// no frame is lost.
///
/// On a channel that is not in use, the program can still receive the frames that were sent before.
/// No further frame arrives until the channel is in use again.
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

    /// Waits for a frame and returns it. Returns `None` if the owner closed the port and no frame
    /// is left, and the reason if the port failed.
    pub fn recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let slot = loop {
            if let Some(slot) = self.take_or_arm() {
                break slot;
            }
            if let Some(error) = self.channel.close_reason.get() {
                match self.filled.pop_one() {
                    // The lanes sent the frame between the first check and the end of the port.
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

    /// Returns the next frame, or `None` without waiting. After `None`, [`as_fd`](AsFd::as_fd)
    /// becomes readable for the next frame. Returns the reason if the port was closed and no frame
    /// is left.
    pub fn try_recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        if let Some(slot) = self.take_or_arm() {
            return Ok(Some(Packet { slot: Some(slot), receiver: self }));
        }
        let Some(error) = self.channel.close_reason.get() else { return Ok(None) };
        // The lanes may have sent a frame between the first check and the end of the port.
        let slot = self.filled.pop_one().ok_or(error)?;
        Ok(Some(Packet { slot: Some(slot), receiver: self }))
    }

    /// True if the channel is in use.
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

    /// Returns the slot of a dropped frame to the lane, and wakes a stopped lane if enough slots
    /// are free.
    fn release(&mut self, slot: Slot) {
        // Pairs with the Acquire in PortChannel::used.
        self.channel.taken.fetch_add(u64::from(slot.len), Ordering::Release);
        // The ring has as many entries as slots exist, so the push always succeeds.
        let pushed = self.empty.push_one(slot);
        debug_assert!(pushed.is_ok(), "more slots than were received");
        let channel = &self.channel;
        let free = channel.depth - self.empty.free() as u32;
        // Wake a stopped lane when half of the slots are free, or when no byte is in use. Small
        // frames occupy slots but few bytes, so slots are counted, not bytes.
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

/// Received frame in its slot. Dropping the packet returns the slot.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Slot of the frame; `None` only during the drop.
    slot: Option<Slot>,
    receiver: &'a mut Receiver,
}

impl Packet<'_> {
    /// Header with the pending offloads of the frame. The engine completes all offloads for a port.
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
