//! Coalescing (GRO): small frames of a flow become large frames for a queue that offers
//! segmentation.
//!
//! Only consecutive frames of one burst are coalesced: no frame waits for a later one. The large
//! frame consists of a private header and of the payloads in place; segmentation restores the
//! original frames byte for byte (`mqnet_wire::offload::Merge`). If a queue has no room for a large
//! frame, its small frames are submitted instead, so that the queue never accepts less than without
//! coalescing.
//!
//! Inspection backs off for traffic that cannot be coalesced: after each burst without a match,
//! twice as many bursts are forwarded unseen.

mod merger;
mod owning;
mod syscall;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use mqnet_wire::Layer;

use crate::{Offloads, QueuePairStats, Tx};
use merger::Merger;

/// Large frames that a queue accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merging {
    /// Layer at which frames begin.
    pub layer: Layer,
    /// Segmentation offloads of the queue.
    pub takes: Offloads,
    /// Largest frame.
    pub frame_max: u32,
}

impl Merging {
    /// `None` when coalescing has no effect: the queue offers no segmentation, or its frames are
    /// not larger than frames of `mtu`.
    pub fn useful(self, mtu: u32) -> Option<Self> {
        let takes = self.takes.consistent();
        let is_room = self.frame_max / 2 > mtu;
        (takes.any_large() && is_room).then_some(Self { takes, ..self })
    }
}

/// Adds coalescing to a queue. Its channel counts in `stats`.
pub fn wrap_tx(tx: Tx, how: Merging, stats: Arc<QueuePairStats>) -> Tx {
    let merger = Merger::new(how, stats);
    match tx {
        Tx::Owning(inner) => Tx::Owning(Box::new(owning::OwningQueue { inner, merger })),
        Tx::Syscall(inner) => Tx::Syscall(Box::new(syscall::SyscallQueue { inner, merger })),
    }
}

/// Removes coalescing, if it is the outermost wrapper.
pub fn unwrap_tx(tx: Tx) -> Tx {
    fn cast<T: Any>(queue: Box<dyn Any>) -> Box<T> {
        queue.downcast().unwrap_or_else(|_| unreachable!("asked before"))
    }
    match tx {
        Tx::Owning(q) if (&*q as &dyn Any).is::<owning::OwningQueue>() => {
            Tx::Owning(cast::<owning::OwningQueue>(q).inner)
        }
        Tx::Syscall(q) if (&*q as &dyn Any).is::<syscall::SyscallQueue>() => {
            Tx::Syscall(cast::<syscall::SyscallQueue>(q).inner)
        }
        bare => bare,
    }
}
