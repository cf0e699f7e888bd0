//! Looks at some of the frames that pass an RX queue, and counts which bucket they are of.
//!
//! What arrives here tells on which channel the other end of a flow sends: a table of queues, in
//! which the bucket of its answers is known, can follow that. It is put on when the queue is
//! opened, below all else, and looks at one frame of a burst, or at one of [`EVERY`] that are
//! received singly.

use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_counters::Counter;
use mqnet_pktbuf::Returner;
use mqnet_shmem::{Scatter, Segments, Span};

use crate::{BucketOf, Burst, Fault, Kept, Recv, Rx, RxBorrows, RxBrings};

/// Of frames that are received one by one, one in so many is looked at.
pub const EVERY: u32 = 8;

/// Enough for two Ethernet headers, the longest IPv4 header, and ports.
const HEADERS: usize = 96;

/// How often each bucket was seen in one channel.
#[derive(Debug)]
pub struct Sights(Box<[Counter]>);

impl Sights {
    /// For a table of so many buckets, none seen.
    pub fn new(buckets: usize) -> Arc<Self> {
        Arc::new(Self((0..buckets).map(|_| Counter::new()).collect()))
    }

    /// How often each bucket was seen.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(Counter::get)
    }
}

struct Eye {
    sights: Arc<Sights>,
    bucket_of: BucketOf,
    turn: u32,
}

impl Eye {
    /// The peer may write there at any time: its headers are read once.
    fn see(&self, len: u32, head: Span<'_>, more: &[Span<'_>]) {
        let mut headers = [0; HEADERS];
        // Behind the frame its memory may hold what was there before.
        let headers = &mut headers[..HEADERS.min(len as usize)];
        let mut filled = 0;
        for piece in std::iter::once(&head).chain(more) {
            filled += piece.read_header(&mut headers[filled..]);
        }
        let bucket = (self.bucket_of)(&headers[..filled]);
        if let Some(counter) = bucket.and_then(|bucket| self.sights.0.get(bucket)) {
            counter.add(1);
        }
    }
}

/// Counts in `sights`, which no other queue does at the same time.
pub fn wrap_rx(rx: Rx, sights: Arc<Sights>, bucket_of: BucketOf) -> Rx {
    let eye = Eye { sights, bucket_of, turn: 0 };
    match rx {
        Rx::Brings(inner) => Rx::Brings(Box::new(Brings { inner, eye })),
        Rx::Borrows(inner) => Rx::Borrows(Box::new(Borrows { inner, eye })),
    }
}

struct Brings {
    inner: Box<dyn RxBrings>,
    eye: Eye,
}

forward_queue!(Brings);

impl RxBrings for Brings {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { inner, eye } = self;
        let before = burst.frames().len();
        inner.peek(burst, budget)?;
        let shown = &burst.frames()[before..];
        if !shown.is_empty() {
            // Another place of the burst each time, or the first flow of a pattern hides the rest.
            let frame = &shown[eye.turn as usize % shown.len()];
            eye.turn = eye.turn.wrapping_add(1);
            eye.see(frame.len, frame.head, burst.more(frame));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.inner.release(frames)
    }

    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        self.inner.keep()
    }

    fn returner(&mut self) -> Option<Returner> {
        self.inner.returner()
    }
}

struct Borrows {
    inner: Box<dyn RxBorrows>,
    eye: Eye,
}

forward_queue!(Borrows);

impl RxBorrows for Borrows {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let got = self.inner.recv(room)?;
        if let Recv::Frame(frame) = got {
            if self.eye.turn.is_multiple_of(EVERY) {
                let pieces: ArrayVec<Span<'_>, { Scatter::PIECES_MAX }> = room.pieces().collect();
                let (head, more) = pieces.split_first().unwrap_or((&Span::EMPTY, &[]));
                self.eye.see(frame.len, *head, more);
            }
            self.eye.turn = self.eye.turn.wrapping_add(1);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests;
