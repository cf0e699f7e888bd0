//! Around a queue with memory: the copy into it gathers headers and payload.
//!
//! A source that has no memory cannot receive into the queue's: the frame may have to be cut. It
//! receives into a page of ours, and such a frame is copied once.

use mqnet_shmem::{Segments, Span, SpanMut};

use super::{Finisher, KEPT, UNWANTED};
use crate::{Burst, DropReason, Fault, Fill, FrameMeta, TxBrings};

pub(super) struct Brings {
    inner: Box<dyn TxBrings>,
    finisher: Finisher,
    page: Vec<u8>,
    /// The frame in the page, while there is no room for all of it.
    kept: Option<FrameMeta>,
    /// The queue was found broken when nobody could be told.
    fault: Option<Fault>,
}

impl Brings {
    pub(super) fn new(inner: Box<dyn TxBrings>, finisher: Finisher, room: u32) -> Self {
        Self { inner, finisher, page: vec![0; room as usize], kept: None, fault: None }
    }

    /// Sends the frame in the page; false when it is still there.
    fn send_kept(&mut self) -> Result<bool, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Some(FrameMeta { len, hdr }) = self.kept else { return Ok(true) };
        let hand = &self.finisher.hand;
        if hand.is_unwanted() {
            hand.set(UNWANTED | KEPT, false);
            self.kept = None;
            self.finisher.forget();
            self.finisher.count_drop(DropReason::SinkFull);
            return Ok(true);
        }
        let mut burst = Burst::new();
        burst.push(hdr, len, Span::of(&self.page).first(len as usize));
        let inner = &mut *self.inner;
        let sent = self.finisher.send(&burst, 0, |burst, from| inner.submit(burst, from))? == 1;
        if sent {
            self.kept = None;
        }
        self.finisher.hand.set(KEPT, !sent);
        Ok(sent)
    }
}

forward_queue!(Brings);

impl TxBrings for Brings {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        if !self.send_kept()? {
            return Ok(0);
        }
        let inner = &mut *self.inner;
        self.finisher.send(burst, from, |burst, from| inner.submit(burst, from))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        // Backpressure before anything is received, as long as frames are small.
        let small = self.finisher.frame_max().min(max);
        if !self.send_kept()? || self.inner.reserve(small)?.is_none() {
            return Ok(None);
        }
        if self.page.len() < max as usize {
            self.page.resize(max as usize, 0);
        }
        let page = SpanMut::of(&mut self.page[..max as usize]);
        Ok(Some(Segments::new(page, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        self.kept = Some(*frame);
        self.finisher.hand.set(KEPT, true);
        self.fault = self.send_kept().err();
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush()
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.inner.hold(on)
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(self.kept.is_none() && self.inner.is_drained()?)
    }
}

impl Drop for Brings {
    fn drop(&mut self) {
        if self.kept.is_some() {
            self.finisher.count_drop(DropReason::LinkClosed);
        }
    }
}
