//! Sending half of the program.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_rings::mpsc::{self, Permit, ReserveError};
use mqnet_sysio::clock;
use mqnet_wire::VnetHdr;

use crate::channel::{PortChannel, Slot};
use crate::error::Error;

/// Sends frames on one channel; clone it for every sending thread. Frames of one sender stay in
/// order.
///
/// On a channel that is not in use, every send is [`Error::NotInUse`], and a thread that waits for
/// room returns with it. A frame that was accepted at the moment of the change is kept, and sent
/// when the channel is in use again.
#[derive(Clone, Debug)]
pub struct Sender {
    ring: mpsc::MpscSender<Slot>,
    channel: Arc<PortChannel>,
}

impl Sender {
    pub(crate) fn new(channel: &Arc<PortChannel>) -> Self {
        Self { ring: channel.arrivals.sender(), channel: channel.clone() }
    }

    /// Length of the largest frame in bytes, which follows the MTU of the device.
    pub fn max(&self) -> usize {
        self.channel.frame_max() as usize
    }

    /// True while the channel is in use.
    pub fn is_in_use(&self) -> bool {
        self.channel.is_in_use()
    }

    /// Sends a frame; waits while the queue is full.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        check(frame.len(), self.max())?;
        self.room()?.fill(frame)
    }

    /// Sends a frame, or returns [`Error::Full`].
    pub fn try_send(&mut self, frame: &[u8]) -> Result<(), Error> {
        check(frame.len(), self.max())?;
        self.try_room()?.fill(frame)
    }

    /// Room for one frame, for example for a socket to write to; waits while the queue is full.
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

    /// Room for one frame, or [`Error::Full`].
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

    /// Requests that [`as_fd`](AsFd::as_fd) becomes readable when there is room, for a program that
    /// waits in a poll loop; on a channel that is not in use, when the channel is in use again.
    /// Returns false when there is room already. All senders of a channel share the descriptor, and
    /// this call drains it.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.channel.room_event.drain();
        // A later change signals the descriptor again, also while the channel is not in use.
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

/// Room for one frame of up to the largest size. Nothing is sent if it is dropped.
#[derive(Debug)]
pub struct Room<'a> {
    permit: Permit<'a, Slot>,
    channel: &'a PortChannel,
    /// Length of the largest frame when the room was reserved.
    max: usize,
}

impl<'a> Room<'a> {
    fn new(permit: Permit<'a, Slot>, channel: &'a PortChannel) -> Self {
        Self { permit, channel, max: channel.frame_max() as usize }
    }

    fn fill(mut self, frame: &[u8]) -> Result<(), Error> {
        // The MTU may have become smaller since the caller checked the length.
        check(frame.len(), self.max)?;
        self[..frame.len()].copy_from_slice(frame);
        self.send(frame.len())
    }

    /// Sends the first `len` bytes, a complete frame. Fails with [`Error::Length`] if the MTU has
    /// become too small since the room was reserved, and with [`Error::NotInUse`] if the channel is
    /// no longer in use.
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
