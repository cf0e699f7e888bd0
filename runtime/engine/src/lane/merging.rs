//! Coalescing of small frames for a sink that accepts large ones.

use mqnet_netdev::wrap::merge::{self, Merging};
use mqnet_netdev::{DropReason, Rx, Tx, null};
use mqnet_wire::VnetHdr;

use super::batch::{Batch, Use};
use super::{Lane, Loan};

/// Coalescing parameters of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merges {
    /// Large frames that the sink accepts.
    pub(crate) how: Merging,
    /// True to receive the frames of a system-call source into a batch even if the sink owns
    /// memory. This costs a copy.
    pub(crate) gathers: bool,
}

impl Lane {
    /// Enables, changes or disables (`None`) coalescing.
    pub(crate) fn set_merging(&mut self, merges: Option<Merges>) {
        if self.merges == merges {
            return;
        }
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        self.tx = merge::unwrap_tx(tx);
        self.merges = merges;
        self.wrap_coalescer();
        self.fit_batch();
    }

    pub(super) fn wrap_coalescer(&mut self) {
        if let Some(Merges { how, .. }) = self.merges {
            let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
            self.tx = merge::wrap_tx(tx, how, self.tx_stats.clone());
        }
    }

    /// Selects the use of the batch for the current source and sink.
    pub(super) fn fit_batch(&mut self) {
        let borrows = matches!(self.rx, Rx::Syscall(_));
        let gathers = |m: Merges| m.gathers || matches!(self.tx, Tx::Syscall(_));
        let used = if borrows && self.merges.is_some_and(gathers) {
            Use::All
        } else if borrows && self.narrow {
            Use::Small
        } else {
            Use::Unused
        };
        if used != Use::Unused {
            self.batch.get_or_insert_with(|| Batch::new(self.room));
        }
        if let Some(batch) = &mut self.batch {
            batch.set_use(used);
        }
        self.batch.take_if(|batch| batch.is_unused());
    }

    /// Takes all received frames that wait for the sink, in order.
    pub(super) fn take_received(&mut self) -> Vec<(Vec<u8>, VnetHdr)> {
        let mut received = Vec::new();
        if let Some(Loan { pool, held, .. }) = &mut self.loan
            && let Some((page, frame)) = held.take()
        {
            let mut bytes = vec![0; frame.len as usize];
            let n = pool.span(&page).read_header(&mut bytes);
            bytes.truncate(n);
            pool.free(page);
            received.push((bytes, frame.hdr));
        }
        if let Some(mut batch) = self.batch.take() {
            received.extend(batch.drain());
        }
        received
    }

    /// Drops the waiting frames of the batch and counts them under `reason`.
    pub(super) fn drop_batch(&mut self, reason: DropReason) {
        if let Some(batch) = &mut self.batch {
            let lost = batch.drain().len();
            self.tx_stats.tx.drops.count(reason, lost as u64);
        }
    }
}
