//! Copies of the frames that pass a queue, for somebody who watches.
//!
//! Every frame of a lane passes its RX queue, so a tap on the RX queue sees them all, and what that
//! queue drops; a tap on the TX queue sees what is dropped there. A whole capture therefore wraps
//! the RX queue alone, a capture of drops wraps both.
//!
//! A tap never blocks and never allocates: a frame for which its ring has no room is counted as
//! missed and travels on.

mod ring;
mod rx;
mod tx;

use std::any::Any;
use std::sync::Arc;

pub use ring::{CaptureConfig, CaptureReader, CaptureTap, Captured, Direction, take_all, tap};

use crate::{ChannelStats, Rx, Tx};
use tx::Watch;

/// Puts a tap on an RX queue.
pub fn wrap_rx(rx: Rx, tap: CaptureTap) -> Rx {
    match rx {
        Rx::Brings(inner) if tap.drops_only() => Rx::Brings(inner),
        Rx::Brings(inner) => Rx::Brings(Box::new(rx::Brings { inner, tap })),
        Rx::Borrows(inner) => Rx::Borrows(Box::new(rx::Borrows { inner, tap })),
    }
}

/// Puts a tap on a TX queue whose channel counts in `stats`: it sees the frames that are dropped
/// there.
pub fn wrap_tx(tx: Tx, tap: CaptureTap, stats: Arc<ChannelStats>) -> Tx {
    match tx {
        Tx::Brings(inner) => Tx::Brings(Box::new(tx::Brings::new(inner, Watch::new(tap, stats)))),
        Tx::Borrows(inner) => {
            Tx::Borrows(Box::new(tx::Borrows { inner, watch: Watch::new(tap, stats) }))
        }
    }
}

/// Takes the outermost tap off an RX queue, if it wears one. A tap whose reader is still there can
/// be put on again at once and shows no frame twice.
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

/// Takes the outermost tap off a TX queue, if it wears one.
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
