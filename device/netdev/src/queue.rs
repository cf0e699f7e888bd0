//! Queues of a channel: the data-path part of the contract.

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
    /// Channel of the queue that detected the fault.
    pub channel: u16,
    /// Description, with the values.
    pub what: String,
}

/// Notification mode of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Edge-triggered: each event is reported once, even if the descriptor is not read.
    Edge,
}

/// Descriptor that a queue uses to wake its sleeping worker.
#[derive(Clone, Copy, Debug)]
pub struct WakeSource<'a> {
    /// Descriptor to watch.
    pub fd: BorrowedFd<'a>,
    /// Notification mode of the descriptor.
    pub trigger: Trigger,
}

/// Result of [`Queue::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// The queue is armed and has no work; an event reports new work.
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

/// Metadata of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// Length in bytes.
    pub len: u32,
    /// Virtio header: pending checksum and segmentation of the frame.
    pub hdr: VnetHdr,
}

/// Methods of every RX and TX queue.
pub trait Queue: Any + Send {
    /// Arms the queue. An RX queue wakes its worker when a frame arrives. A TX queue wakes its
    /// worker when it has space for a frame of `need` bytes; the queue may wait for more space to
    /// avoid wake-ups. If `need` exceeds the capacity, an empty queue suffices. The queue is
    /// checked again after it is armed, so that no event is lost.
    fn arm(&mut self, need: u32) -> Result<Armed, Fault>;

    /// Descriptor to watch while the queue is armed; `None` for a queue without events: one that
    /// always has work, or never.
    fn event(&self) -> Option<WakeSource<'_>>;

    /// Parks the queue until its next poll. Another queue of the channel may then take resources
    /// that exist once per channel, such as a guest's ring.
    fn park(&mut self) {}

    /// Prefetches the data that the next poll reads first; a hint without side effects.
    fn prefetch(&self) {}

    /// Poll hold-off: delay after a poll that found few frames and emptied the queue, so that
    /// frames accumulate. 0 means no delay. A queue behind an XDP program that passes only some
    /// frames returns 0.
    fn hold_off(&self) -> Duration {
        Duration::ZERO
    }
}

/// An RX queue with memory for its frames.
pub trait OwningRx: Queue {
    /// Appends up to `budget` waiting frames to `burst`, in order, without consuming them. No frame
    /// is a normal outcome. After a partial release, the first frame is the first one that was not
    /// released.
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault>;

    /// Consumes the first `frames` frames of the last peek that were not [detached](Self::detach),
    /// and returns their memory to the sender.
    fn release(&mut self, frames: usize) -> Result<(), Fault>;

    /// Detaches the first peeked and unreleased frame, with its memory and without a copy. The
    /// [`returner`](Self::returner) frees the memory later. Returns `None` if no frame waits,
    /// memory cannot leave this queue, or too much memory is detached already. A waiting frame can
    /// then be released, or detached later.
    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        Ok(None)
    }

    /// Creates a returner for the memory of detached frames, usable on any thread; `None` if frames
    /// cannot be detached.
    fn returner(&mut self) -> Option<Returner> {
        None
    }
}

/// Outcome of [`SyscallRx::recv`].
#[derive(Clone, Copy, Debug)]
pub enum Recv {
    /// A frame was received into the reserved space.
    Frame(FrameMeta),
    /// A frame was received and dropped, with its reason counted. The reserved space is free again,
    /// but still holds the received part of the frame, for captures.
    Dropped {
        /// Length of the frame, which may exceed the reserved space.
        len: u32,
        /// Drop reason.
        reason: DropReason,
    },
    /// No frame is waiting.
    Empty,
}

/// An RX queue that receives frames by a system call.
pub trait SyscallRx: Queue {
    /// Receives one frame into `room`, which has `limits::room_for` bytes for the largest frame of
    /// the plan.
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault>;
}

/// A TX queue with memory in which frames are placed.
pub trait OwningTx: Queue {
    /// Occupancy of the queue; `None` if the queue holds nothing or the occupancy is unknown. A
    /// cached value may be returned if it is at most `enough`, because reading the peer's index
    /// costs a cache miss. The actual occupancy is at most the returned value.
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Capacity of the queue in bytes, if known. The value is constant; the call has no side
    /// effects.
    fn capacity(&self) -> Option<u32> {
        None
    }

    /// Copies the frames from index `from` on into the queue's memory: the only payload copy of the
    /// engine. Returns the number of frames accepted, which form a prefix; fewer than given means
    /// full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;

    /// Reserves space for one frame of up to `max` bytes; `None` means full.
    /// [`commit`](Self::commit) sends the frame; a reservation without a commit has no effect.
    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault>;

    /// Sends the frame that was placed in the last reservation.
    fn commit(&mut self, frame: &FrameMeta);

    /// Publishes submitted and committed frames, and kicks the peer if the peer requests
    /// notifications; called once per burst. Publishes nothing while the queue is
    /// [held](Self::hold).
    fn flush(&mut self) -> Result<(), Fault>;

    /// Holds back frames from the peer (`true`) until the frames of an older queue are consumed;
    /// `false` publishes the held frames.
    fn hold(&mut self, on: bool) -> Result<(), Fault>;

    /// True if the peer has consumed all published frames.
    fn is_drained(&mut self) -> Result<bool, Fault>;
}

/// A TX queue that sends frames by a system call.
pub trait SyscallTx: Queue {
    /// Occupancy of the queue; see [`OwningTx::fill`].
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Sends the frames from index `from` on, directly from their memory. Returns the number of
    /// frames accepted (sent, or dropped with a counted reason), which form a prefix; fewer than
    /// given means full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;
}

/// RX queue of either kind.
pub enum Rx {
    /// The queue has memory for its frames.
    Owning(Box<dyn OwningRx>),
    /// A system call moves frames.
    Syscall(Box<dyn SyscallRx>),
}

/// TX queue of either kind.
pub enum Tx {
    /// Frames are placed in the queue's memory.
    Owning(Box<dyn OwningTx>),
    /// A system call moves frames.
    Syscall(Box<dyn SyscallTx>),
}

impl Rx {
    /// Methods that every queue has.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Owning(q) => &mut **q,
            Self::Syscall(q) => &mut **q,
        }
    }
}

impl Tx {
    /// Methods that every queue has.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Owning(q) => &mut **q,
            Self::Syscall(q) => &mut **q,
        }
    }
}

impl Tx {
    /// Occupancy of the queue; see [`OwningTx::fill`].
    pub fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        match self {
            Self::Owning(q) => q.fill(enough),
            Self::Syscall(q) => q.fill(enough),
        }
    }

    /// Sends frames; see [`OwningTx::submit`] and [`SyscallTx::submit`].
    pub fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        match self {
            Self::Owning(q) => q.submit(burst, from),
            Self::Syscall(q) => q.submit(burst, from),
        }
    }

    /// Publishes frames; see [`OwningTx::flush`]. A system-call queue has nothing to publish.
    pub fn flush(&mut self) -> Result<(), Fault> {
        match self {
            Self::Owning(q) => q.flush(),
            Self::Syscall(_) => Ok(()),
        }
    }

    /// Holds back frames; see [`OwningTx::hold`]. A system-call queue ignores the call: it sends
    /// immediately.
    pub fn hold(&mut self, on: bool) -> Result<(), Fault> {
        match self {
            Self::Owning(q) => q.hold(on),
            Self::Syscall(_) => Ok(()),
        }
    }

    /// True if the peer has consumed all published frames; always true for a system-call queue.
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
