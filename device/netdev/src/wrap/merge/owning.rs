//! Coalescing for an owning queue, which gathers headers and payloads in its copy.

use mqnet_shmem::Segments;

use super::Merger;
use crate::{Burst, Fault, Fill, FrameMeta, OwningTx};

pub(super) struct OwningQueue {
    pub(super) inner: Box<dyn OwningTx>,
    pub(super) merger: Merger,
}

forward_queue!(OwningQueue);

impl OwningTx for OwningQueue {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    fn capacity(&self) -> Option<u32> {
        self.inner.capacity()
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let inner = &mut *self.inner;
        self.merger.send(burst, from, |burst, from| inner.submit(burst, from))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        self.inner.reserve(max)
    }

    fn commit(&mut self, frame: &FrameMeta) {
        self.inner.commit(frame);
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush()
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.inner.hold(on)
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.inner.is_drained()
    }
}
