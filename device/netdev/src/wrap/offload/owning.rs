//! Offload emulation for an owning queue, which gathers headers and payload in its copy.
//!
//! A system-call source cannot receive into the queue's memory, because the frame may have to be
//! segmented. The source receives into a staging page, and the frame is copied once.

use mqnet_shmem::{Segments, Span, SpanMut};

use super::{DISCARD, Finisher, STAGED};
use crate::{Burst, DropReason, Fault, Fill, FrameMeta, OwningTx};

pub(super) struct OwningQueue {
    inner: Box<dyn OwningTx>,
    finisher: Finisher,
    page: Vec<u8>,
    /// Frame in the staging page that is not sent completely, because the queue has no space.
    staged: Option<FrameMeta>,
    /// Fault of a `commit`, which returns no result; the next `submit` or `reserve` returns the
    /// fault.
    fault: Option<Fault>,
}

impl OwningQueue {
    pub(super) fn new(inner: Box<dyn OwningTx>, finisher: Finisher, room: u32) -> Self {
        Self { inner, finisher, page: vec![0; room as usize], staged: None, fault: None }
    }

    /// Sends or discards the staged frame. Returns false if the frame is still staged.
    fn send_staged(&mut self) -> Result<bool, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Some(FrameMeta { len, hdr }) = self.staged else { return Ok(true) };
        let progress = &self.finisher.progress;
        if progress.is_discarded() {
            progress.set(DISCARD | STAGED, false);
            self.staged = None;
            self.finisher.clear_progress();
            self.finisher.count_drop(DropReason::SinkFull);
            return Ok(true);
        }
        let mut burst = Burst::new();
        burst.push(hdr, len, Span::of(&self.page).first(len as usize));
        let inner = &mut *self.inner;
        let sent = self.finisher.send(&burst, 0, |burst, from| inner.submit(burst, from))? == 1;
        if sent {
            self.staged = None;
        }
        self.finisher.progress.set(STAGED, !sent);
        Ok(sent)
    }
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
        if !self.send_staged()? {
            return Ok(0);
        }
        let inner = &mut *self.inner;
        self.finisher.send(burst, from, |burst, from| inner.submit(burst, from))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        // Apply backpressure before a frame is received: require space for the largest output
        // frame.
        let small = self.finisher.frame_max().min(max);
        if !self.send_staged()? || self.inner.reserve(small)?.is_none() {
            return Ok(None);
        }
        if self.page.len() < max as usize {
            self.page.resize(max as usize, 0);
        }
        let page = SpanMut::of(&mut self.page[..max as usize]);
        Ok(Some(Segments::new(page, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        self.staged = Some(*frame);
        self.finisher.progress.set(STAGED, true);
        self.fault = self.send_staged().err();
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush()
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.inner.hold(on)
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(self.staged.is_none() && self.inner.is_drained()?)
    }
}

impl Drop for OwningQueue {
    fn drop(&mut self) {
        if self.staged.is_some() {
            self.finisher.count_drop(DropReason::LinkClosed);
        }
    }
}
