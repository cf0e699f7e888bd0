//! Taps on RX queues.

use arrayvec::ArrayVec;
use mqnet_pktbuf::Returner;
use mqnet_shmem::{Scatter, Segments, Span};

use super::CaptureTap;
use crate::{Burst, DetachedFrame, Fault, OwningRx, Recv, SyscallRx};

pub(super) struct OwningQueue {
    pub(super) inner: Box<dyn OwningRx>,
    pub(super) tap: CaptureTap,
}

forward_queue!(OwningQueue);

impl OwningRx for OwningQueue {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { inner, tap } = self;
        let before = burst.frames().len();
        inner.peek(burst, budget)?;
        let shown = &burst.frames()[before..];
        // Skip the frames that an earlier peek captured and that are not released: they come first.
        let new = shown.get(tap.seen..).unwrap_or(&[]);
        if !new.is_empty() {
            let now = tap.now();
            for frame in new {
                tap.keep(now, frame.len, None, frame.head, burst.more(frame));
            }
            tap.seen = shown.len();
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.tap.seen = self.tap.seen.saturating_sub(frames);
        self.inner.release(frames)
    }

    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        let kept = self.inner.detach()?;
        self.tap.seen = self.tap.seen.saturating_sub(usize::from(kept.is_some()));
        Ok(kept)
    }

    fn returner(&mut self) -> Option<Returner> {
        self.inner.returner()
    }
}

pub(super) struct SyscallQueue {
    pub(super) inner: Box<dyn SyscallRx>,
    pub(super) tap: CaptureTap,
}

forward_queue!(SyscallQueue);

impl SyscallRx for SyscallQueue {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let got = self.inner.recv(room)?;
        let (len, dropped) = match got {
            Recv::Frame(frame) => (frame.len, None),
            Recv::Dropped { len, reason } => (len, Some(reason)),
            Recv::Empty => return Ok(got),
        };
        let now = self.tap.now();
        let pieces: ArrayVec<Span<'_>, { Scatter::PIECES_MAX }> = room.pieces().collect();
        let (head, more) = pieces.split_first().unwrap_or((&Span::EMPTY, &[]));
        self.tap.keep(now, len, dropped, *head, more);
        Ok(got)
    }
}
