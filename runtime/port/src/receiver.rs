//! How the program receives.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_rings::spsc::{Consumer, Producer};
use mqnet_rings::{Ringer, Waiter};
use mqnet_sysio::poll;
use mqnet_wire::VnetHdr;

use crate::end::Error;
use crate::function::{Dock, Slot};

/// How long one sleep may take; the next one follows.
const NAP: Duration = Duration::from_secs(60);

/// Receives the frames of one channel. While it does not, its lane stops, and nothing is lost.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) filled: Consumer<Slot>,
    pub(crate) empty: Producer<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
    pub(crate) dock: Arc<Dock>,
}

impl Receiver {
    /// The next frame; waits for one. `None` when the port was closed by its owner and everything
    /// has been received.
    pub fn recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let slot = loop {
            if let Some(slot) = self.take_or_arm() {
                break slot;
            }
            match self.dock.end.get() {
                None => {}
                Some(Error::Closed) => return Ok(None),
                Some(error) => return Err(error),
            }
            poll::wait_readable(&[self.dock.data.as_fd()], NAP)
                .map_err(|e| Error::System(e.to_string()))?;
        };
        Ok(Some(Packet { slot: Some(slot), receiver: self }))
    }

    /// The next frame, if there is one. When there is none, [`as_fd`](AsFd::as_fd) will become
    /// readable for the next one.
    pub fn try_recv(&mut self) -> Result<Option<Packet<'_>>, Error> {
        match self.take_or_arm() {
            Some(slot) => Ok(Some(Packet { slot: Some(slot), receiver: self })),
            None => self.dock.end.get().map_or(Ok(None), Err),
        }
    }

    fn take_or_arm(&mut self) -> Option<Slot> {
        if let Some(slot) = self.filled.pop_one() {
            return Some(slot);
        }
        self.dock.data.drain();
        self.waiter.arm(&self.dock.data_word, 1);
        self.filled.pop_one()
    }

    /// A frame has been dealt with.
    fn give_back(&mut self, slot: Slot) {
        self.dock.taken.fetch_add(u64::from(slot.len), Ordering::Release);
        // The ring has as many entries as there are buffers: one always fits.
        let pushed = self.empty.push_one(slot);
        debug_assert!(pushed.is_ok(), "more buffers than there were");
        let home = self.dock.depth - self.empty.free() as u32;
        // A lane that stopped goes on when half is free: by then, its bytes may be worth less.
        let (size, used) = (self.dock.size(), self.dock.used());
        let have = if home * 2 >= self.dock.depth || used == 0 { size - used } else { 0 };
        if self.ringer.due(&self.dock.room_word, have) {
            self.dock.ring_worker();
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dock.data.as_fd()
    }
}

/// A received frame, where it lies. Its buffer goes back when it is dropped.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Always there until the drop.
    slot: Option<Slot>,
    receiver: &'a mut Receiver,
}

impl Packet<'_> {
    /// What is unfinished about it: nothing, unless the port was opened for such frames.
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
            self.receiver.give_back(slot);
        }
    }
}
