//! Coalescing (GRO): small frames of a flow become large frames for a queue with segmentation
//! offload. Only consecutive frames of one burst are coalesced, so that no frame waits for a later
//! one. The large frame consists of a private header and of the payloads in place. Segmentation
//! restores the original frames byte for byte (`mqnet_wire::offload::Merge`). If a queue has no
//! space for a large frame, the small frames that form it are submitted instead. Coalescing
//! therefore never reduces the number of frames that the queue accepts.
//!
//! Inspection backs off for traffic that cannot be coalesced. After each burst without a match, the
//! number of bursts that are forwarded without inspection doubles.

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

/// Properties of the large frames that a queue accepts.
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
    /// Returns the configuration with [consistent](Offloads::consistent) offloads. Returns `None`
    /// if the queue has no segmentation offload, or no largest frame above twice the MTU:
    /// coalescing then has no effect.
    pub fn useful(self, mtu: u32) -> Option<Self> {
        let takes = self.takes.consistent();
        let is_room = self.frame_max / 2 > mtu;
        (takes.any_large() && is_room).then_some(Self { takes, ..self })
    }
}

/// Adds coalescing to a queue. `stats` are the statistics of the queue's channel.
pub fn wrap_tx(tx: Tx, how: Merging, stats: Arc<QueuePairStats>) -> Tx {
    let merger = Merger::new(how, stats);
    match tx {
        Tx::Owning(inner) => Tx::Owning(Box::new(owning::OwningQueue { inner, merger })),
        Tx::Syscall(inner) => Tx::Syscall(Box::new(syscall::SyscallQueue { inner, merger })),
    }
}

/// Removes coalescing if it is the outermost wrapper.
pub fn unwrap_tx(tx: Tx) -> Tx {
    fn cast<T: Any>(queue: Box<dyn Any>) -> Box<T> {
        queue.downcast().unwrap_or_else(|_| unreachable!("checked before"))
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
