//! Queues that can be replaced inside a lane.
//!
//! The control thread puts the next queue into a hand-over cell. When the worker of the lane parks
//! the present queue, the next queue replaces it. The replacement therefore happens on the worker,
//! between two polls. Wrappers of the queue and frames held by the lane are unaffected.

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::{
    Armed, Burst, Channel, Fault, Fill, FrameMeta, HandOver, OwningRx, OwningTx, Queue, Recv, Rx,
    SyscallRx, SyscallTx, Tx, WakeSource,
};
use mqnet_shmem::Segments;

/// A queue that another queue can replace.
struct Replaceable<Q: ?Sized> {
    queue: Box<Q>,
    next: Arc<HandOver<Q>>,
}

impl<Q: Queue + ?Sized> Queue for Replaceable<Q> {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.queue.arm(need)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.queue.event()
    }

    fn park(&mut self) {
        self.queue.park();
        if let Some(next) = self.next.replace(None) {
            self.queue = next;
        }
    }

    fn prefetch(&self) {
        self.queue.prefetch();
    }

    fn hold_off(&self) -> Duration {
        self.queue.hold_off()
    }
}

// `detach` and `returner` keep their defaults, so that no frame is detached: a detached frame
// outlives its queue, and a replaced queue could not take the memory back.
impl OwningRx for Replaceable<dyn OwningRx> {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.queue.peek(burst, budget)
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.queue.release(frames)
    }
}

impl SyscallRx for Replaceable<dyn SyscallRx> {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        self.queue.recv(room)
    }
}

impl OwningTx for Replaceable<dyn OwningTx> {
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

impl SyscallTx for Replaceable<dyn SyscallTx> {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.queue.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.queue.submit(burst, from)
    }
}

enum RxCell {
    Owning(Arc<HandOver<dyn OwningRx>>),
    Syscall(Arc<HandOver<dyn SyscallRx>>),
}

enum TxCell {
    Owning(Arc<HandOver<dyn OwningTx>>),
    Syscall(Arc<HandOver<dyn SyscallTx>>),
}

/// Hand-over cells of a channel in use.
pub(crate) struct Slot {
    rx: RxCell,
    tx: TxCell,
}

impl Slot {
    /// Wraps the queues of a channel so that they can be replaced.
    pub(crate) fn around(channel: Channel) -> (Self, Channel) {
        let (rx_cell, rx) = match channel.rx {
            Rx::Owning(queue) => {
                let next = Arc::new(HandOver::empty());
                let cell = RxCell::Owning(next.clone());
                (cell, Rx::Owning(Box::new(Replaceable { queue, next })))
            }
            Rx::Syscall(queue) => {
                let next = Arc::new(HandOver::empty());
                let cell = RxCell::Syscall(next.clone());
                (cell, Rx::Syscall(Box::new(Replaceable { queue, next })))
            }
        };
        let (tx_cell, tx) = match channel.tx {
            Tx::Owning(queue) => {
                let next = Arc::new(HandOver::empty());
                let cell = TxCell::Owning(next.clone());
                (cell, Tx::Owning(Box::new(Replaceable { queue, next })))
            }
            Tx::Syscall(queue) => {
                let next = Arc::new(HandOver::empty());
                let cell = TxCell::Syscall(next.clone());
                (cell, Tx::Syscall(Box::new(Replaceable { queue, next })))
            }
        };
        (Self { rx: rx_cell, tx: tx_cell }, Channel { rx, tx })
    }

    /// True if both queues of `channel` have the same kind (owning or system call) as the queues in
    /// use. The kinds are part of the lane's type.
    pub(crate) fn fits(&self, channel: &Channel) -> bool {
        matches!(self.rx, RxCell::Owning(_)) == matches!(channel.rx, Rx::Owning(_))
            && matches!(self.tx, TxCell::Owning(_)) == matches!(channel.tx, Tx::Owning(_))
    }

    /// Puts the next channel into the cells. A channel that does not [fit](Self::fits) is dropped.
    pub(crate) fn replace(&self, channel: Channel) {
        match (&self.rx, channel.rx) {
            (RxCell::Owning(cell), Rx::Owning(queue)) => drop(cell.replace(Some(queue))),
            (RxCell::Syscall(cell), Rx::Syscall(queue)) => drop(cell.replace(Some(queue))),
            _ => {}
        }
        match (&self.tx, channel.tx) {
            (TxCell::Owning(cell), Tx::Owning(queue)) => drop(cell.replace(Some(queue))),
            (TxCell::Syscall(cell), Tx::Syscall(queue)) => drop(cell.replace(Some(queue))),
            _ => {}
        }
    }

    /// Drops the next channel if it has not replaced the present one.
    pub(crate) fn clear(&self) {
        match &self.rx {
            RxCell::Owning(cell) => drop(cell.replace(None)),
            RxCell::Syscall(cell) => drop(cell.replace(None)),
        }
        match &self.tx {
            TxCell::Owning(cell) => drop(cell.replace(None)),
            TxCell::Syscall(cell) => drop(cell.replace(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use mqnet_netdev::null::{silent_rx, swallowing_tx};
    use mqnet_netdev::probe::{hidden_by_rx, hidden_by_tx};

    use super::*;

    // Goal: replaceable queues hide no method of the queue, except that no frame can be detached.
    #[test]
    fn replaceable_queues_forward_every_default_method() {
        let rx = |rx| Slot::around(Channel { rx, tx: swallowing_tx() }).1.rx;
        let tx = |tx| Slot::around(Channel { rx: silent_rx(), tx }).1.tx;
        assert_eq!(hidden_by_rx(true, rx).unwrap(), ["detach", "returner"]);
        assert_eq!(hidden_by_rx(false, rx).unwrap(), [""; 0]);
        assert_eq!(hidden_by_tx(true, tx).unwrap(), [""; 0]);
        assert_eq!(hidden_by_tx(false, tx).unwrap(), [""; 0]);
    }
}
