//! The queues of a channel: the hot half of the contract.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use mqnet_pktbuf::Returner;
use mqnet_shmem::Segments;
use mqnet_wire::VnetHdr;

use crate::{Burst, DropReason, Kept};

/// A peer broke the protocol, or the device under a queue is gone. The function is closed.
#[derive(Debug, thiserror::Error)]
#[error("channel {channel}: {what}")]
pub struct Fault {
    /// Which channel saw it.
    pub channel: u16,
    /// What happened, with the numbers.
    pub what: String,
}

/// How a descriptor tells that there is work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Each arrival is reported once, whether or not the descriptor is read.
    Edge,
}

/// What a sleeping worker watches for a queue.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// How it reports.
    pub trigger: Trigger,
}

/// Answer of a queue that was asked to wake its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// Nothing to do: the event will tell.
    Sleep,
    /// There is work already: poll again.
    MoreWork,
}

/// How full a TX queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that the peer has not taken.
    pub used: u32,
    /// Bytes that there is room for in all.
    pub size: u32,
}

/// A frame that has arrived in borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// Length in bytes.
    pub len: u32,
    /// What is unfinished about it.
    pub hdr: VnetHdr,
}

/// What every queue, RX or TX, brings or borrows, can be asked.
pub trait Queue: Any + Send {
    /// Asks to be woken: an RX queue when there is a frame, a TX queue when there is room (`need`
    /// bytes in one frame, or more, as the queue thinks worth a wake-up). Looks once more
    /// after asking, so that nothing that happened meanwhile is missed. A TX queue that is asked
    /// for more than it can ever hold has it when it is empty.
    fn arm(&mut self, need: u32) -> Result<Armed, Fault>;

    /// What to watch while armed; `None` for a queue that is never without work.
    fn event(&self) -> Option<Event<'_>>;

    /// It is not used from now on, until it is polled again: another queue of the same channel may
    /// take over what there is only one of, such as a guest's ring.
    fn park(&mut self) {}

    /// A hint: it is polled soon, so that what is looked at first may be fetched meanwhile. Changes
    /// nothing.
    fn prefetch(&self) {}

    /// After a poll that found few frames and no more, so long the next ones may gather before
    /// anybody looks again; 0: not at all, as behind a program, which shows some of what is there.
    fn gather(&self) -> Duration {
        Duration::ZERO
    }
}

/// An RX queue whose frames lie in memory that it owns.
pub trait RxBrings: Queue {
    /// Shows up to `budget` waiting frames in order, without taking them. An empty burst is an
    /// outcome. What is shown again after a partial release begins with the first frame that was
    /// not released.
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault>;

    /// Takes the first `frames` of the last peek that were not [kept](Self::keep), and gives their
    /// memory back to the sender.
    fn release(&mut self, frames: usize) -> Result<(), Fault>;

    /// Takes the first frame that was peeked and not released, with its memory: nothing is copied,
    /// and it goes back by a [`returner`](Self::returner) whenever its new owner likes. `None`
    /// when no frame waits, memory cannot leave this queue, or too much of it has not come back:
    /// the frame still waits then, to be kept later or to be released.
    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        Ok(None)
    }

    /// Gives back what was kept, on any thread; `None` where nothing can be.
    fn returner(&mut self) -> Option<Returner> {
        None
    }
}

/// Outcome of [`RxBorrows::recv`].
#[derive(Clone, Copy, Debug)]
pub enum Recv {
    /// A frame lies in the room now.
    Frame(FrameMeta),
    /// A frame was taken and dropped, with its reason counted. The room is free again; what was
    /// received of the frame still lies in it, for whoever watches.
    Dropped {
        /// Its length, which may be more than the room has.
        len: u32,
        /// Why.
        reason: DropReason,
    },
    /// Nothing is waiting.
    Empty,
}

/// An RX queue that moves its frames by a system call.
pub trait RxBorrows: Queue {
    /// Receives one frame into `room`, which holds `limits::room_for` the largest frame of the
    /// plan.
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault>;
}

/// A TX queue that has memory in which frames can be placed.
pub trait TxBrings: Queue {
    /// How full it is; `None` where nothing can wait, or nothing is known of it. What is said may
    /// be older and too much, as long as it is not above `enough`: to look at what the peer says
    /// costs a cache line.
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Bytes that may lie in it, where that is known and stays as it is; asking changes nothing.
    fn capacity(&self) -> Option<u32> {
        None
    }

    /// Copies the frames from number `from` on into its memory: the one payload copy of the
    /// engine. Returns how many were taken, a prefix; fewer means full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;

    /// Room for one frame of up to `max` bytes; `None` means full. Nothing is sent before
    /// [`commit`](Self::commit); a reservation that is not committed is forgotten.
    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault>;

    /// Sends the frame that was placed in the last reservation.
    fn commit(&mut self, frame: &FrameMeta);

    /// Publishes what was submitted or committed and rings the doorbell if the peer armed it: once
    /// a burst. While the queue is [held](Self::hold) it publishes nothing.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Keeps frames from the peer (`true`) until they may follow those of an older queue; letting
    /// go publishes what has gathered.
    fn hold(&mut self, on: bool) -> Result<(), Fault>;

    /// True when the peer has taken everything that was published.
    fn is_drained(&mut self) -> Result<bool, Fault>;
}

/// A TX queue that moves its frames by a system call.
pub trait TxBorrows: Queue {
    /// How full it is; `None` where nothing can wait, or nothing is known of it. What is said may
    /// be older and too much, as long as it is not above `enough`: to look at what the peer says
    /// costs a cache line.
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(None)
    }

    /// Sends the frames from number `from` on straight from where they lie. Returns how many were
    /// taken, a prefix (sent, or dropped with a counted reason); fewer means full.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault>;
}

/// An RX queue, by the memory rule.
pub enum Rx {
    /// Frames lie in its memory.
    Brings(Box<dyn RxBrings>),
    /// A system call moves them.
    Borrows(Box<dyn RxBorrows>),
}

/// A TX queue, by the memory rule.
pub enum Tx {
    /// Frames can be placed in its memory.
    Brings(Box<dyn TxBrings>),
    /// A system call moves them.
    Borrows(Box<dyn TxBorrows>),
}

impl Rx {
    /// The part that does not depend on memory.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Brings(q) => &mut **q,
            Self::Borrows(q) => &mut **q,
        }
    }
}

impl Tx {
    /// The part that does not depend on memory.
    pub fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Brings(q) => &mut **q,
            Self::Borrows(q) => &mut **q,
        }
    }
}

impl Tx {
    /// See [`TxBrings::fill`].
    pub fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        match self {
            Self::Brings(q) => q.fill(enough),
            Self::Borrows(q) => q.fill(enough),
        }
    }

    /// Sends frames, copying them where it brings memory; see [`TxBrings::submit`].
    pub fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        match self {
            Self::Brings(q) => q.submit(burst, from),
            Self::Borrows(q) => q.submit(burst, from),
        }
    }

    /// See [`TxBrings::flush`].
    pub fn flush(&mut self) -> Result<(), Fault> {
        match self {
            Self::Brings(q) => q.flush(),
            Self::Borrows(_) => Ok(()),
        }
    }

    /// See [`TxBrings::hold`]. A system call sends at once: there is nothing to hold.
    pub fn hold(&mut self, on: bool) -> Result<(), Fault> {
        match self {
            Self::Brings(q) => q.hold(on),
            Self::Borrows(_) => Ok(()),
        }
    }

    /// See [`TxBrings::is_drained`].
    pub fn is_drained(&mut self) -> Result<bool, Fault> {
        match self {
            Self::Brings(q) => q.is_drained(),
            Self::Borrows(_) => Ok(true),
        }
    }
}

impl fmt::Debug for Rx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Brings(_)) { "Rx::Brings" } else { "Rx::Borrows" })
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Brings(_)) { "Tx::Brings" } else { "Tx::Borrows" })
    }
}

/// One RX queue and one TX queue with the same number.
#[derive(Debug)]
pub struct Channel {
    /// What arrives.
    pub rx: Rx,
    /// What leaves.
    pub tx: Tx,
}
