//! The queues of a channel: the data-path half of the contract.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use mqnet_pktbuf::Returner;
use mqnet_shmem::Segments;
use mqnet_wire::VnetHdr;

use crate::{Burst, DetachedFrame, DropReason};

/// Protocol violation of a peer, or loss of the device under a queue. The function is closed.
#[derive(Debug, thiserror::Error)]
#[error("channel {channel}: {what}")]
pub struct Fault {
    /// Channel that detected the fault.
    pub channel: u16,
    /// Description, with the values.
    pub what: String,
}

/// Notification mode of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Edge-triggered: each event is reported once, whether or not the descriptor is read.
    Edge,
}

/// Descriptor that a sleeping worker watches for a queue.
#[derive(Clone, Copy, Debug)]
pub struct WakeSource<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Notification mode of the descriptor.
    pub trigger: Trigger,
}

/// Result of [`Queue::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// The queue is armed: the event reports new work.
    Sleep,
    /// Work is available already: poll again.
    MoreWork,
}

/// Occupancy of a TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that the peer has not consumed.
    pub used: u32,
    /// Capacity in bytes.
    pub size: u32,
}

/// Metadata of a received frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// Length in bytes.
    pub len: u32,
    /// Virtio header: pending checksum and segmentation of the frame.
    pub hdr: VnetHdr,
}

/// Methods of every queue: RX or TX, with or without memory.
pub trait Queue: Any + Send {
    /// Arms the queue: an RX queue wakes its worker when there is a frame, a TX queue when there is
    /// room (`need` bytes in one frame, or more, if the queue prefers fewer wake-ups). The queue is
    /// checked once more after it is armed, so that no event is lost. A TX queue has room for more
    /// than its capacity when it is empty.
    fn arm(&mut self, need: u32) -> Result<Armed, Fault>;

    /// Descriptor to watch while the queue is armed; `None` for a queue that always has work.
    fn event(&self) -> Option<WakeSource<'_>>;

    /// Parks the queue until its next poll. Resources that exist once per channel (a guest's ring)
    /// may then be taken by another queue of the channel.
    fn park(&mut self) {}

    /// Prefetches the data that the next poll reads first. A hint without side effects.
    fn prefetch(&self) {}

    /// Poll hold-off: delay after a poll that found few frames and emptied the queue, during which
    /// frames accumulate. 0 disables it, as behind an XDP program, which passes only some of the
    /// frames.
    fn gather(&self) -> Duration {
        Duration::ZERO
    }
}

/// An RX queue that owns the memory of its frames.
pub trait OwningRx: Queue {
    /// Lists up to `budget` waiting frames in order, without consuming them. An empty burst is an
    /// outcome. After a partial release, the list begins with the first frame that was not
    /// released.
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault>;

    /// Consumes the first `frames` frames of the last peek that were not [detached](Self::detach),
    /// and returns their memory to the sender.
    fn release(&mut self, frames: usize) -> Result<(), Fault>;

    /// Detaches the first peeked and unreleased frame from the queue, with its memory and without a
    /// copy. A [`returner`](Self::returner) gives the memory back later. `None` when no frame
    /// waits, memory cannot leave this queue, or too much memory is outstanding; a frame that waits
    /// can then be detached later or released.
    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        Ok(None)
    }

    /// Returner for the memory of detached frames, usable on any thread; `None` where frames cannot
    /// be detached.
    fn returner(&mut self) -> Option<Returner> {
        None
    }
}

/// Outcome of [`SyscallRx::recv`].
#[derive(Clone, Copy, Debug)]
pub enum Recv {
    /// A frame was received into the room.
    Frame(FrameMeta),
    /// A frame was taken and dropped, with its reason counted. The room is free again. The received
    /// part of the frame is still in the room, for captures.
    Dropped {
        /// Length of the frame, which may exceed the room.
        len: u32,
        /// Drop reason.
        reason: DropReason,
    },
    /// No frame is waiting.
    Empty,
}

/// An RX queue that receives frames by a system call.
pub trait SyscallRx: Queue {
    /// Receives one frame into `room`, which holds `limits::room_for` the largest frame of the
    /// plan.
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault>;
}

/// A TX queue with memory in which frames can be placed.
pub trait OwningTx: Queue {
    /// Occupancy of the queue; `None` where nothing can wait, or it is unknown. A cached value may
    /// be returned if it is not above `enough`: reading the peer's index costs a cache miss. The
    /// true occupancy is never higher.
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Constant capacity of the queue in bytes, where it is known. No side effects.
    fn capacity(&self) -> Option<u32> {
        None
    }

    /// Copies the frames from index `from` on into the queue's memory: the only payload copy of the
    /// engine. Returns the number of frames taken, which form a prefix; fewer means full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;

    /// Reserves room for one frame of up to `max` bytes; `None` means full. The frame is sent by
    /// [`commit`](Self::commit); a reservation without a commit is discarded.
    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault>;

    /// Sends the frame that was placed in the last reservation.
    fn commit(&mut self, frame: &FrameMeta);

    /// Publishes submitted and committed frames, and kicks the peer if it is armed: once per burst.
    /// Publishes nothing while the queue is [held](Self::hold).
    fn flush(&mut self) -> Result<(), Fault>;

    /// Holds frames back from the peer (`true`) until they may follow those of an older queue;
    /// `false` publishes the held frames.
    fn hold(&mut self, on: bool) -> Result<(), Fault>;

    /// True if the peer has consumed every published frame.
    fn is_drained(&mut self) -> Result<bool, Fault>;
}

/// A TX queue that sends frames by a system call.
pub trait SyscallTx: Queue {
    /// Occupancy of the queue, as in [`OwningTx::fill`].
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Sends the frames from index `from` on from their present memory. Returns the number of
    /// frames taken (sent, or dropped with a counted reason), which form a prefix; fewer means
    /// full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;
}

/// An RX queue, by the memory rule.
pub enum Rx {
    /// The queue owns the memory of its frames.
    Owning(Box<dyn OwningRx>),
    /// A system call moves frames.
    Syscall(Box<dyn SyscallRx>),
}

/// A TX queue, by the memory rule.
pub enum Tx {
    /// Frames can be placed in the queue's memory.
    Owning(Box<dyn OwningTx>),
    /// A system call moves frames.
    Syscall(Box<dyn SyscallTx>),
}

impl Rx {
    /// The methods that do not depend on memory.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Owning(q) => &mut **q,
            Self::Syscall(q) => &mut **q,
        }
    }
}

impl Tx {
    /// The methods that do not depend on memory.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Owning(q) => &mut **q,
            Self::Syscall(q) => &mut **q,
        }
    }
}

impl Tx {
    /// See [`OwningTx::fill`].
    pub fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        match self {
            Self::Owning(q) => q.fill(enough),
            Self::Syscall(q) => q.fill(enough),
        }
    }

    /// Sends frames, with a copy if the queue owns memory; see [`OwningTx::submit`].
    pub fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        match self {
            Self::Owning(q) => q.submit(burst, from),
            Self::Syscall(q) => q.submit(burst, from),
        }
    }

    /// See [`OwningTx::flush`].
    pub fn flush(&mut self) -> Result<(), Fault> {
        match self {
            Self::Owning(q) => q.flush(),
            Self::Syscall(_) => Ok(()),
        }
    }

    /// See [`OwningTx::hold`]. A system call sends immediately: no frame can be held.
    pub fn hold(&mut self, on: bool) -> Result<(), Fault> {
        match self {
            Self::Owning(q) => q.hold(on),
            Self::Syscall(_) => Ok(()),
        }
    }

    /// See [`OwningTx::is_drained`].
    pub fn is_drained(&mut self) -> Result<bool, Fault> {
        match self {
            Self::Owning(q) => q.is_drained(),
            Self::Syscall(_) => Ok(true),
        }
    }
}

impl fmt::Debug for Rx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Owning(_)) { "Rx::Owning" } else { "Rx::Syscall" })
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Owning(_)) { "Tx::Owning" } else { "Tx::Syscall" })
    }
}

/// One RX queue and one TX queue with the same number.
#[derive(Debug)]
pub struct Channel {
    /// RX queue.
    pub rx: Rx,
    /// TX queue.
    pub tx: Tx,
}
