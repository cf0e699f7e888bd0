//! Sender of the program.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_rings::mpsc::{self, Permit, ReserveError};
use mqnet_sysio::clock;
use mqnet_wire::VnetHdr;

use crate::channel::{PortChannel, Slot};
use crate::error::Error;

/// Sender of frames on one channel. Each sending thread uses its own clone. The frames of one
/// sender stay in order.
///
/// On a channel that is not in use, every send fails with [`Error::NotInUse`], also a send that was
/// waiting for space. A frame that was accepted during the change is kept, and sent when the
/// channel is in use again.
#[derive(Clone, Debug)]
pub struct Sender {
    ring: mpsc::MpscSender<Slot>,
    channel: Arc<PortChannel>,
}

impl Sender {
    pub(crate) fn new(channel: &Arc<PortChannel>) -> Self {
        Self { ring: channel.arrivals.sender(), channel: channel.clone() }
    }

    /// Length of the longest allowed frame in bytes. The value follows the MTU of the link.
    pub fn max(&self) -> usize {
        self.channel.frame_max() as usize
    }

    /// True if the channel is in use.
    pub fn is_in_use(&self) -> bool {
        self.channel.is_in_use()
    }

    /// Sends a frame. Waits while the queue is full. Fails if the length is not allowed, the
    /// channel is not in use, or the port is closed.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        check(frame.len(), self.max())?;
        self.room()?.fill(frame)
    }

    /// Sends a frame. Returns [`Error::Full`] if the queue is full.
    pub fn try_send(&mut self, frame: &[u8]) -> Result<(), Error> {
        check(frame.len(), self.max())?;
        self.try_room()?.fill(frame)
    }

    /// Reserves space for one frame, which the caller may fill directly, for example from a socket.
    /// Waits while the queue is full. Fails if the channel is not in use, or the port is closed.
    pub fn room(&mut self) -> Result<Room<'_>, Error> {
        let Self { ring, channel } = self;
        if !channel.is_in_use() {
            return Err(channel.not_in_use());
        }
        match ring.reserve_unless(clock::monotonic, || !channel.is_in_use()) {
            Ok(permit) => Ok(Room::new(permit, channel)),
            Err(ReserveError::Full) => Err(channel.not_in_use()),
            Err(ReserveError::Closed) => Err(channel.close_reason.reason()),
        }
    }

    /// Reserves space for one frame. Returns [`Error::Full`] if the queue is full.
    pub fn try_room(&mut self) -> Result<Room<'_>, Error> {
        let Self { ring, channel } = self;
        if !channel.is_in_use() {
            return Err(channel.not_in_use());
        }
        match ring.try_reserve() {
            Ok(permit) => Ok(Room::new(permit, channel)),
            Err(ReserveError::Full) => Err(Error::Full),
            Err(ReserveError::Closed) => Err(channel.close_reason.reason()),
        }
    }

    /// Arms [`as_fd`](AsFd::as_fd) for a program with a poll loop: the descriptor becomes readable
    /// when the queue has space. On a channel that is not in use, it becomes readable when the
    /// channel is in use again. Returns false if the queue has space already. All senders of a
    /// channel share the descriptor, and this call drains it.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.channel.room_event.drain();
        // There is nothing to arm: every change of the channel's use signals the descriptor.
        if !self.channel.is_in_use() {
            return self.channel.close_reason.get().map_or(Ok(true), Err);
        }
        self.ring.arm().map_err(|mpsc::Closed| self.channel.close_reason.reason())
    }
}

fn check(len: usize, max: usize) -> Result<(), Error> {
    if (1..=max).contains(&len) { Ok(()) } else { Err(Error::Length { len, max }) }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.room_event.as_fd()
    }
}

/// Reserved space for one frame. Dropping the reservation sends nothing.
#[derive(Debug)]
pub struct Room<'a> {
    permit: Permit<'a, Slot>,
    channel: &'a PortChannel,
    /// Length of the longest allowed frame when the space was reserved.
    max: usize,
}

impl<'a> Room<'a> {
    fn new(permit: Permit<'a, Slot>, channel: &'a PortChannel) -> Self {
        Self { permit, channel, max: channel.frame_max() as usize }
    }

    fn fill(mut self, frame: &[u8]) -> Result<(), Error> {
        // Check again: the MTU may have decreased since the caller checked the length.
        check(frame.len(), self.max)?;
        self[..frame.len()].copy_from_slice(frame);
        self.send(frame.len())
    }

    /// Sends the first `len` bytes as a complete frame. Fails with [`Error::Length`] if `len` is 0
    /// or exceeds the current limit, and with [`Error::NotInUse`] or the close reason if the
    /// channel is not in use.
    pub fn send(mut self, len: usize) -> Result<(), Error> {
        check(len, self.max.min(self.channel.frame_max() as usize))?;
        if !self.channel.is_in_use() {
            return Err(self.channel.not_in_use());
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
        &self.permit.bytes[..self.max]
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.permit.bytes[..self.max]
    }
}
