//! Captures of the frames that pass a queue.
//!
//! Every frame of a lane passes its RX queue, so that a tap on the RX queue captures all frames,
//! and the drops of that queue. A tap on the TX queue captures the drops there. A full capture
//! therefore wraps only the RX queue; a capture of drops wraps both.
//!
//! A tap never blocks and never allocates. A frame that does not fit the capture ring is counted as
//! missed, and forwarded.

mod ring;
mod rx;
mod tx;

use std::any::Any;
use std::sync::Arc;

pub use ring::{CaptureConfig, CaptureReader, CaptureTap, Captured, Direction, take_all, tap};

use crate::{ChannelStats, Rx, Tx};
use tx::Watch;

/// Adds a tap to an RX queue.
pub fn wrap_rx(rx: Rx, tap: CaptureTap) -> Rx {
    match rx {
        Rx::Brings(inner) if tap.drops_only() => Rx::Brings(inner),
        Rx::Brings(inner) => Rx::Brings(Box::new(rx::Brings { inner, tap })),
        Rx::Borrows(inner) => Rx::Borrows(Box::new(rx::Borrows { inner, tap })),
    }
}

/// Adds a tap to a TX queue whose channel counts in `stats`. The tap captures the frames that are
/// dropped there.
pub fn wrap_tx(tx: Tx, tap: CaptureTap, stats: Arc<ChannelStats>) -> Tx {
    match tx {
        Tx::Brings(inner) => Tx::Brings(Box::new(tx::Brings::new(inner, Watch::new(tap, stats)))),
        Tx::Borrows(inner) => {
            Tx::Borrows(Box::new(tx::Borrows { inner, watch: Watch::new(tap, stats) }))
        }
    }
}

/// Removes the outermost tap of an RX queue, if there is one. The tap can be added again and then
/// captures no frame twice.
pub fn unwrap_rx(rx: Rx) -> (Rx, Option<CaptureTap>) {
    match rx {
        Rx::Brings(q) if is::<rx::Brings>(&*q) => {
            let rx::Brings { inner, tap } = *cast(q);
            (Rx::Brings(inner), Some(tap))
        }
        Rx::Borrows(q) if is::<rx::Borrows>(&*q) => {
            let rx::Borrows { inner, tap } = *cast(q);
            (Rx::Borrows(inner), Some(tap))
        }
        bare => (bare, None),
    }
}

/// Removes the outermost tap of a TX queue, if there is one.
pub fn unwrap_tx(tx: Tx) -> (Tx, Option<CaptureTap>) {
    match tx {
        Tx::Borrows(q) if is::<tx::Borrows>(&*q) => {
            let tx::Borrows { inner, watch } = *cast(q);
            (Tx::Borrows(inner), Some(watch.into_tap()))
        }
        Tx::Brings(q) if is::<tx::Brings>(&*q) => {
            let tx::Brings { inner, watch, .. } = *cast(q);
            (Tx::Brings(inner), Some(watch.into_tap()))
        }
        bare => (bare, None),
    }
}

fn is<T: Any>(queue: &dyn Any) -> bool {
    queue.is::<T>()
}

fn cast<T: Any>(queue: Box<dyn Any>) -> Box<T> {
    queue.downcast().unwrap_or_else(|_| unreachable!("asked before"))
}

#[cfg(test)]
mod tests;
