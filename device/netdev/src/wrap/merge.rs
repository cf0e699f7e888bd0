//! Small frames of a flow, merged on their way to a queue that takes large ones.
//!
//! Only frames that follow each other within one burst become one: nothing waits for what may
//! come. The large frame is a header of ours and the payloads where they lie; cut again it is byte
//! for byte what came (`mqnet_wire::offload::Merge`). A large frame for which there is no room is
//! tried again as the small ones that it is made of, so that a queue never has less room than
//! without us.
//!
//! Traffic of which nothing can be merged is looked at less and less: after each burst in vain,
//! twice as many pass unseen.

mod borrows;
mod brings;
mod merger;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use mqnet_wire::Layer;

use crate::{ChannelStats, Offloads, Tx};
use merger::Merger;

/// What a queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merging {
    /// What the first byte of a frame begins.
    pub layer: Layer,
    /// Which large frames.
    pub takes: Offloads,
    /// The largest of them.
    pub frame_max: u32,
}

impl Merging {
    /// `None` when there is nothing to make: no kind of large frame, or none that would be larger
    /// than frames of `mtu` are.
    pub fn useful(self, mtu: u32) -> Option<Self> {
        let takes = self.takes.consistent();
        let is_room = self.frame_max / 2 > mtu;
        (takes.any_large() && is_room).then_some(Self { takes, ..self })
    }
}

/// Puts a wrapper around a queue whose channel counts in `stats`.
pub fn wrap_tx(tx: Tx, how: Merging, stats: Arc<ChannelStats>) -> Tx {
    let merger = Merger::new(how, stats);
    match tx {
        Tx::Brings(inner) => Tx::Brings(Box::new(brings::Brings { inner, merger })),
        Tx::Borrows(inner) => Tx::Borrows(Box::new(borrows::Borrows { inner, merger })),
    }
}

/// Takes it off, if it is the outermost.
pub fn unwrap_tx(tx: Tx) -> Tx {
    fn cast<T: Any>(queue: Box<dyn Any>) -> Box<T> {
        queue.downcast().unwrap_or_else(|_| unreachable!("asked before"))
    }
    match tx {
        Tx::Brings(q) if (&*q as &dyn Any).is::<brings::Brings>() => {
            Tx::Brings(cast::<brings::Brings>(q).inner)
        }
        Tx::Borrows(q) if (&*q as &dyn Any).is::<borrows::Borrows>() => {
            Tx::Borrows(cast::<borrows::Borrows>(q).inner)
        }
        bare => bare,
    }
}
