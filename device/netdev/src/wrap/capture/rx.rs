//! Taps on RX queues.

use arrayvec::ArrayVec;
use mqnet_pktbuf::Returner;
use mqnet_shmem::{Scatter, Segments, Span};

use super::CaptureTap;
use crate::{Burst, Fault, Kept, Recv, RxBorrows, RxBrings};

pub(super) struct Brings {
    pub(super) inner: Box<dyn RxBrings>,
    pub(super) tap: CaptureTap,
}

forward_queue!(Brings);

impl RxBrings for Brings {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { inner, tap } = self;
        let before = burst.frames().len();
        inner.peek(burst, budget)?;
        let shown = &burst.frames()[before..];
        // Frames of the last peek that were not released come first, and are captured already.
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

    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        let kept = self.inner.keep()?;
        self.tap.seen = self.tap.seen.saturating_sub(usize::from(kept.is_some()));
        Ok(kept)
    }

    fn returner(&mut self) -> Option<Returner> {
        self.inner.returner()
    }
}

pub(super) struct Borrows {
    pub(super) inner: Box<dyn RxBorrows>,
    pub(super) tap: CaptureTap,
}

forward_queue!(Borrows);

impl RxBorrows for Borrows {
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
