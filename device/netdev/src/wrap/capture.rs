//! Captures of the frames of a queue.
//!
//! Every frame of a lane passes the RX queue, so that a tap on the RX queue captures all frames and
//! the drops of that queue. A tap on the TX queue captures the drops of that queue. A full capture
//! therefore wraps only the RX queue; a capture of drops wraps both.
//!
//! A tap never blocks and never allocates memory. A frame that does not fit the capture ring is
//! counted as missed, and forwarded.

mod ring;
mod rx;
mod tx;

use std::any::Any;
use std::sync::Arc;

pub use ring::{
    CaptureConfig, CaptureDirection, CaptureReader, CaptureTap, Captured, take_all, tap,
};

use crate::{QueuePairStats, Rx, Tx};
use tx::Watch;

/// Adds a tap to an RX queue. A tap for drops is discarded if the queue is an owning queue, because
/// an owning RX queue drops no frames.
pub fn wrap_rx(rx: Rx, tap: CaptureTap) -> Rx {
    match rx {
        Rx::Owning(inner) if tap.drops_only() => Rx::Owning(inner),
        Rx::Owning(inner) => Rx::Owning(Box::new(rx::OwningQueue { inner, tap })),
        Rx::Syscall(inner) => Rx::Syscall(Box::new(rx::SyscallQueue { inner, tap })),
    }
}

/// Adds a tap for drops to a TX queue. `stats` are the statistics of the queue's channel.
pub fn wrap_tx(tx: Tx, tap: CaptureTap, stats: Arc<QueuePairStats>) -> Tx {
    match tx {
        Tx::Owning(inner) => {
            Tx::Owning(Box::new(tx::OwningQueue::new(inner, Watch::new(tap, stats))))
        }
        Tx::Syscall(inner) => {
            Tx::Syscall(Box::new(tx::SyscallQueue { inner, watch: Watch::new(tap, stats) }))
        }
    }
}

/// Removes the outermost tap of an RX queue and returns it; `None` if the outermost wrapper is no
/// tap. If the tap is added again, frames that it captured before are not captured twice.
pub fn unwrap_rx(rx: Rx) -> (Rx, Option<CaptureTap>) {
    match rx {
        Rx::Owning(q) if is::<rx::OwningQueue>(&*q) => {
            let rx::OwningQueue { inner, tap } = *cast(q);
            (Rx::Owning(inner), Some(tap))
        }
        Rx::Syscall(q) if is::<rx::SyscallQueue>(&*q) => {
            let rx::SyscallQueue { inner, tap } = *cast(q);
            (Rx::Syscall(inner), Some(tap))
        }
        bare => (bare, None),
    }
}

/// Removes the outermost tap of a TX queue and returns it; `None` if the outermost wrapper is no
/// tap.
pub fn unwrap_tx(tx: Tx) -> (Tx, Option<CaptureTap>) {
    match tx {
        Tx::Syscall(q) if is::<tx::SyscallQueue>(&*q) => {
            let tx::SyscallQueue { inner, watch } = *cast(q);
            (Tx::Syscall(inner), Some(watch.into_tap()))
        }
        Tx::Owning(q) if is::<tx::OwningQueue>(&*q) => {
            let tx::OwningQueue { inner, watch, .. } = *cast(q);
            (Tx::Owning(inner), Some(watch.into_tap()))
        }
        bare => (bare, None),
    }
}

fn is<T: Any>(queue: &dyn Any) -> bool {
    queue.is::<T>()
}

fn cast<T: Any>(queue: Box<dyn Any>) -> Box<T> {
    queue.downcast().unwrap_or_else(|_| unreachable!("checked before"))
}

#[cfg(test)]
mod tests;
