//! How the program sends.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_rings::mpsc::{self, Permit, Refused};
use mqnet_sysio::clock;
use mqnet_wire::VnetHdr;

use crate::end::Error;
use crate::function::{Dock, Slot};

/// Sends frames on one channel; clone it for every thread that does. Frames of one sender stay in
/// order.
#[derive(Clone, Debug)]
pub struct Sender {
    ring: mpsc::Sender<Slot>,
    dock: Arc<Dock>,
}

impl Sender {
    pub(crate) fn new(dock: &Arc<Dock>) -> Self {
        Self { ring: dock.arrivals.sender(), dock: dock.clone() }
    }

    /// Bytes of the largest frame.
    pub fn max(&self) -> usize {
        self.dock.frame_max as usize
    }

    /// Sends a frame; waits while the queue is full.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.check(frame.len())?;
        let mut room = self.room()?;
        room[..frame.len()].copy_from_slice(frame);
        room.send(frame.len())
    }

    /// Sends a frame, or says [`Error::Full`].
    pub fn try_send(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.check(frame.len())?;
        let mut room = self.try_room()?;
        room[..frame.len()].copy_from_slice(frame);
        room.send(frame.len())
    }

    /// A place to put a frame into, for a socket to write to; waits while the queue is full.
    pub fn room(&mut self) -> Result<Room<'_>, Error> {
        match self.ring.reserve(clock::monotonic) {
            Ok(permit) => Ok(Room { permit }),
            Err(mpsc::Closed) => Err(self.dock.end.reason()),
        }
    }

    /// The same, or [`Error::Full`].
    pub fn try_room(&mut self) -> Result<Room<'_>, Error> {
        match self.ring.try_reserve() {
            Ok(permit) => Ok(Room { permit }),
            Err(Refused::Full) => Err(Error::Full),
            Err(Refused::Closed) => Err(self.dock.end.reason()),
        }
    }

    /// For a program that waits in a poll loop: asks that [`as_fd`](AsFd::as_fd) become readable
    /// when there is room. False when there is room already. All senders of a channel share the
    /// descriptor, and this call empties it.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.dock.room.drain();
        self.ring.arm().map_err(|mpsc::Closed| self.dock.end.reason())
    }

    fn check(&self, len: usize) -> Result<(), Error> {
        let max = self.max();
        if (1..=max).contains(&len) { Ok(()) } else { Err(Error::Length { len, max }) }
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dock.room.as_fd()
    }
}

/// Room for one frame of up to the largest size. Dropped, nothing is sent.
#[derive(Debug)]
pub struct Room<'a> {
    permit: Permit<'a, Slot>,
}

impl Room<'_> {
    /// Sends the first `len` bytes, a finished frame.
    pub fn send(mut self, len: usize) -> Result<(), Error> {
        let max = self.permit.bytes.len();
        if !(1..=max).contains(&len) {
            return Err(Error::Length { len, max });
        }
        self.permit.len = len as u32;
        self.permit.hdr = VnetHdr::default();
        self.permit.commit();
        Ok(())
    }
}

impl Deref for Room<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.permit.bytes
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.permit.bytes
    }
}
