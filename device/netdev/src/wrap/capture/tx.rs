//! Taps on TX queues, which capture dropped frames.
//!
//! Frames are forwarded one at a time, so that the queue's drop counters identify the dropped frame
//! and the reason.

use std::sync::Arc;

use mqnet_shmem::{Segments, Span, SpanMut};

use super::CaptureTap;
use crate::{
    Burst, DropReason, Fault, Fill, Frame, FrameMeta, OwningTx, QueuePairStats, SyscallTx,
};

/// Values of the drop counters of a queue.
type Counts = [u64; DropReason::ALL.len()];

/// Detector of a queue's drops.
pub(super) struct Watch {
    tap: CaptureTap,
    stats: Arc<QueuePairStats>,
    /// Fault that occurred after frames were accepted; the next call returns it.
    fault: Option<Fault>,
}

impl Watch {
    pub(super) fn new(tap: CaptureTap, stats: Arc<QueuePairStats>) -> Self {
        Self { tap, stats, fault: None }
    }

    pub(super) fn into_tap(self) -> CaptureTap {
        self.tap
    }

    fn counts(&self) -> Counts {
        DropReason::ALL.map(|reason| self.stats.tx.drops.get(reason))
    }

    /// Captures a frame if a drop counter has increased since `before`.
    fn keep_drop(&mut self, before: &Counts, len: u32, head: Span<'_>, more: &[Span<'_>]) {
        let drops = &self.stats.tx.drops;
        let mut all = DropReason::ALL.into_iter().zip(before);
        if let Some((reason, _)) = all.find(|(reason, n)| drops.get(*reason) != **n) {
            let now = self.tap.now();
            self.tap.keep(now, len, Some(reason), head, more);
        }
    }

    fn take_fault(&mut self) -> Result<(), Fault> {
        self.fault.take().map_or(Ok(()), Err)
    }

    fn submit(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        mut to: impl FnMut(&Burst<'_>) -> Result<usize, Fault>,
    ) -> Result<usize, Fault> {
        self.take_fault()?;
        if burst.frames().is_empty() {
            // Forward an empty burst: it requests progress of an inner wrapper, which may hold a
            // frame.
            return to(burst);
        }
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let (before, &Frame { hdr, len, head, .. }) = (self.counts(), frame);
            let more = burst.more(frame);
            let mut one = Burst::new();
            one.push_pieces(hdr, len, head, more);
            match to(&one) {
                Ok(0) => break,
                Ok(_) => taken += 1,
                Err(fault) if taken == 0 => return Err(fault),
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            }
            self.keep_drop(&before, len, head, more);
        }
        Ok(taken)
    }
}

pub(super) struct SyscallQueue {
    pub(super) inner: Box<dyn SyscallTx>,
    pub(super) watch: Watch,
}

forward_queue!(SyscallQueue);

impl SyscallTx for SyscallQueue {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let inner = &mut *self.inner;
        self.watch.submit(burst, from, |burst| inner.submit(burst, 0))
    }
}

/// Tap on an owning queue. Frames are received into a private page, because a dropped frame cannot
/// be read back from the queue's memory.
pub(super) struct OwningQueue {
    pub(super) inner: Box<dyn OwningTx>,
    pub(super) watch: Watch,
    page: Vec<u8>,
    /// Size of the last reservation.
    max: u32,
}

impl OwningQueue {
    pub(super) fn new(inner: Box<dyn OwningTx>, watch: Watch) -> Self {
        Self { inner, watch, page: Vec::new(), max: 0 }
    }

    /// Copies a frame from the page into the memory of the queue.
    fn place(&mut self, len: u32) -> Result<(), Fault> {
        let Some(mut room) = self.inner.reserve(self.max)? else {
            let what = "a queue has no room any more that it had a moment ago".to_owned();
            return Err(Fault { channel: self.watch.tap.channel(), what });
        };
        let mut rest = Span::of(&self.page).first(len as usize);
        let mut fill = |part: &mut SpanMut<'_>| {
            if !rest.is_empty() {
                rest = rest.skip(part.copy_from(rest));
            }
        };
        fill(&mut room.head);
        fill(&mut room.tail);
        room.more().for_each(|mut part| fill(&mut part));
        Ok(())
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
        let inner = &mut *self.inner;
        self.watch.submit(burst, from, |burst| inner.submit(burst, 0))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        self.watch.take_fault()?;
        if self.inner.reserve(max)?.is_none() {
            return Ok(None);
        }
        if self.page.len() < max as usize {
            self.page.resize(max as usize, 0);
        }
        self.max = max;
        let room = SpanMut::of(&mut self.page[..max as usize]);
        Ok(Some(Segments::new(room, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        let before = self.watch.counts();
        match self.place(frame.len) {
            Ok(()) => self.inner.commit(frame),
            Err(fault) => {
                self.watch.fault = Some(fault);
                self.watch.stats.tx.drops.count(DropReason::LinkClosed, 1);
            }
        }
        let bytes = Span::of(&self.page).first(frame.len as usize);
        self.watch.keep_drop(&before, frame.len, bytes, &[]);
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
