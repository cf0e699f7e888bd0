//! Queues that other queues can take over from, in their lane.
//!
//! The control thread leaves the next queue in a drawer; the queue in use looks there when its
//! worker parks it. So the change happens between two polls, on the worker, and whatever the lane
//! has around the queue, or holds for it, stays.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mqnet_netdev::{
    Armed, Burst, Channel, Event, Fault, Fill, FrameMeta, Queue, Recv, Rx, RxBorrows, RxBrings, Tx,
    TxBorrows, TxBrings,
};
use mqnet_shmem::Segments;

type Drawer<Q> = Arc<Mutex<Option<Box<Q>>>>;

fn put<Q: ?Sized>(drawer: &Drawer<Q>, queue: Option<Box<Q>>) -> Option<Box<Q>> {
    std::mem::replace(&mut *drawer.lock().unwrap_or_else(PoisonError::into_inner), queue)
}

/// A queue that can be replaced.
struct Replaceable<Q: ?Sized> {
    queue: Box<Q>,
    next: Drawer<Q>,
}

impl<Q: Queue + ?Sized> Queue for Replaceable<Q> {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.queue.arm(need)
    }

    fn event(&self) -> Option<Event<'_>> {
        self.queue.event()
    }

    fn park(&mut self) {
        self.queue.park();
        if let Some(next) = put(&self.next, None) {
            self.queue = next;
        }
    }

    fn gather(&self) -> Duration {
        self.queue.gather()
    }
}

// Memory that is kept outlives its queue, and would go back to another: none leaves (`keep`,
// `returner`).
impl RxBrings for Replaceable<dyn RxBrings> {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.queue.peek(burst, budget)
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.queue.release(frames)
    }
}

impl RxBorrows for Replaceable<dyn RxBorrows> {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        self.queue.recv(room)
    }
}

impl TxBrings for Replaceable<dyn TxBrings> {
    fn capacity(&self) -> Option<u32> {
        self.queue.capacity()
    }

    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.queue.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.queue.submit(burst, from)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        self.queue.reserve(max)
    }

    fn commit(&mut self, frame: &FrameMeta) {
        self.queue.commit(frame);
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.queue.flush()
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.queue.hold(on)
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.queue.is_drained()
    }
}

impl TxBorrows for Replaceable<dyn TxBorrows> {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.queue.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.queue.submit(burst, from)
    }
}

enum RxDrawer {
    Brings(Drawer<dyn RxBrings>),
    Borrows(Drawer<dyn RxBorrows>),
}

enum TxDrawer {
    Brings(Drawer<dyn TxBrings>),
    Borrows(Drawer<dyn TxBorrows>),
}

/// The drawers of a channel in use.
pub(crate) struct Slot {
    rx: RxDrawer,
    tx: TxDrawer,
}

impl Slot {
    /// The channel, such that it can be replaced.
    pub(crate) fn around(channel: Channel) -> (Self, Channel) {
        let (rx_drawer, rx) = match channel.rx {
            Rx::Brings(queue) => {
                let next = Drawer::default();
                let drawer = RxDrawer::Brings(next.clone());
                (drawer, Rx::Brings(Box::new(Replaceable { queue, next })))
            }
            Rx::Borrows(queue) => {
                let next = Drawer::default();
                let drawer = RxDrawer::Borrows(next.clone());
                (drawer, Rx::Borrows(Box::new(Replaceable { queue, next })))
            }
        };
        let (tx_drawer, tx) = match channel.tx {
            Tx::Brings(queue) => {
                let next = Drawer::default();
                let drawer = TxDrawer::Brings(next.clone());
                (drawer, Tx::Brings(Box::new(Replaceable { queue, next })))
            }
            Tx::Borrows(queue) => {
                let next = Drawer::default();
                let drawer = TxDrawer::Borrows(next.clone());
                (drawer, Tx::Borrows(Box::new(Replaceable { queue, next })))
            }
        };
        (Self { rx: rx_drawer, tx: tx_drawer }, Channel { rx, tx })
    }

    /// True when this channel follows the same memory rule: a lane has it in its type.
    pub(crate) fn fits(&self, channel: &Channel) -> bool {
        matches!(self.rx, RxDrawer::Brings(_)) == matches!(channel.rx, Rx::Brings(_))
            && matches!(self.tx, TxDrawer::Brings(_)) == matches!(channel.tx, Tx::Brings(_))
    }

    /// Leaves the next channel, which [fits](Self::fits).
    pub(crate) fn replace(&self, channel: Channel) {
        match (&self.rx, channel.rx) {
            (RxDrawer::Brings(drawer), Rx::Brings(queue)) => drop(put(drawer, Some(queue))),
            (RxDrawer::Borrows(drawer), Rx::Borrows(queue)) => drop(put(drawer, Some(queue))),
            _ => {}
        }
        match (&self.tx, channel.tx) {
            (TxDrawer::Brings(drawer), Tx::Brings(queue)) => drop(put(drawer, Some(queue))),
            (TxDrawer::Borrows(drawer), Tx::Borrows(queue)) => drop(put(drawer, Some(queue))),
            _ => {}
        }
    }

    /// Throws away what nobody has taken out.
    pub(crate) fn clear(&self) {
        match &self.rx {
            RxDrawer::Brings(drawer) => drop(put(drawer, None)),
            RxDrawer::Borrows(drawer) => drop(put(drawer, None)),
        }
        match &self.tx {
            TxDrawer::Brings(drawer) => drop(put(drawer, None)),
            TxDrawer::Borrows(drawer) => drop(put(drawer, None)),
        }
    }
}
