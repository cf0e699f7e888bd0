//! A tap on a TX queue: what is dropped there.

use std::sync::Arc;

use super::CaptureTap;
use crate::{Armed, Burst, ChannelStats, DropReason, Event, Fault, Fill, Queue, TxBorrows};

pub(super) struct Borrows {
    pub(super) inner: Box<dyn TxBorrows>,
    pub(super) tap: CaptureTap,
    pub(super) stats: Arc<ChannelStats>,
    /// A fault that came after frames had been taken: the next submit tells.
    pub(super) held: Option<Fault>,
}

impl Borrows {
    /// The reason whose count is another than in `before`.
    fn reason_since(&self, before: &[u64; DropReason::ALL.len()]) -> Option<DropReason> {
        let drops = &self.stats.tx.drops;
        let all = DropReason::ALL.into_iter().zip(before);
        all.filter(|(reason, n)| drops.get(*reason) != **n).map(|(reason, _)| reason).next()
    }
}

impl Queue for Borrows {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.inner.arm(need)
    }

    fn event(&self) -> Option<Event<'_>> {
        self.inner.event()
    }
}

impl TxBorrows for Borrows {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    /// One frame at a time, so that the queue's own counters tell which one it dropped and why.
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        if let Some(fault) = self.held.take() {
            return Err(fault);
        }
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let more = burst.more(frame);
            let mut one = Burst::new();
            one.push_pieces(frame.hdr, frame.len, frame.head, more);
            let before = DropReason::ALL.map(|reason| self.stats.tx.drops.get(reason));
            match self.inner.submit(&one, 0) {
                Ok(0) => break,
                Ok(_) => taken += 1,
                Err(fault) if taken == 0 => return Err(fault),
                Err(fault) => {
                    self.held = Some(fault);
                    break;
                }
            }
            if let Some(reason) = self.reason_since(&before) {
                let now = self.tap.now();
                self.tap.keep(now, frame.len, Some(reason), frame.head, more);
            }
        }
        Ok(taken)
    }
}
