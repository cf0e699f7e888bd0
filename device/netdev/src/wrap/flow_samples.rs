//! Flow sampling: counts sampled frames of an RX queue by the bucket of the indirection table.
//!
//! Both directions of a flow should use one channel. Counts by the bucket of replies show which
//! buckets the table must assign to a channel. Counts by the bucket of arrivals verify the driver's
//! mapping ([`Buckets`](crate::Buckets)). The sampler is the innermost wrapper, added when the
//! queue is opened. It samples one frame of each burst, or one of [`EVERY`] frames that are
//! received singly.

use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_counters::Counter;
use mqnet_pktbuf::Returner;
use mqnet_shmem::{Scatter, Segments, Span};

use crate::{BucketOf, Burst, DetachedFrame, Fault, OwningRx, Recv, Rx, SyscallRx};

/// Sampling interval for frames that are received singly.
pub const EVERY: u32 = 8;

/// Number of bytes read of a frame: two Ethernet headers, the longest IPv4 header, and ports.
const HEADERS: usize = 96;

/// Sample count of each bucket in one channel.
#[derive(Debug)]
pub struct FlowSamples(Box<[Counter]>);

impl FlowSamples {
    /// Creates counts for a table of `buckets` buckets, all 0.
    pub fn new(buckets: usize) -> Arc<Self> {
        Arc::new(Self((0..buckets).map(|_| Counter::new()).collect()))
    }

    /// Sample count of each bucket.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(Counter::get)
    }
}

struct Sampler {
    samples: Arc<FlowSamples>,
    bucket_of: BucketOf,
    count: u32,
}

impl Sampler {
    /// Counts the bucket of a frame. The headers are read once, because the peer may write them
    /// concurrently.
    fn sample(&self, len: u32, head: Span<'_>, more: &[Span<'_>]) {
        let mut headers = [0; HEADERS];
        // Limit the headers to the frame: memory after its end may hold stale data.
        let headers = &mut headers[..HEADERS.min(len as usize)];
        let mut filled = 0;
        for piece in std::iter::once(&head).chain(more) {
            filled += piece.read_header(&mut headers[filled..]);
        }
        let bucket = (self.bucket_of)(&headers[..filled]);
        if let Some(counter) = bucket.and_then(|bucket| self.samples.0.get(bucket)) {
            counter.add(1);
        }
    }
}

/// Adds a sampler that counts in `samples`, in which no other queue may count at the same time.
pub fn wrap_rx(rx: Rx, samples: Arc<FlowSamples>, bucket_of: BucketOf) -> Rx {
    let sampler = Sampler { samples, bucket_of, count: 0 };
    match rx {
        Rx::Owning(inner) => Rx::Owning(Box::new(OwningQueue { inner, sampler })),
        Rx::Syscall(inner) => Rx::Syscall(Box::new(SyscallQueue { inner, sampler })),
    }
}

struct OwningQueue {
    inner: Box<dyn OwningRx>,
    sampler: Sampler,
}

forward_queue!(OwningQueue);

impl OwningRx for OwningQueue {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { inner, sampler } = self;
        let before = burst.frames().len();
        inner.peek(burst, budget)?;
        let shown = &burst.frames()[before..];
        if !shown.is_empty() {
            // Vary the sampled position: if flows alternate in a pattern, a fixed position would
            // sample only one of the flows.
            let frame = &shown[sampler.count as usize % shown.len()];
            sampler.count = sampler.count.wrapping_add(1);
            sampler.sample(frame.len, frame.head, burst.more(frame));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.inner.release(frames)
    }

    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        self.inner.detach()
    }

    fn returner(&mut self) -> Option<Returner> {
        self.inner.returner()
    }
}

struct SyscallQueue {
    inner: Box<dyn SyscallRx>,
    sampler: Sampler,
}

forward_queue!(SyscallQueue);

impl SyscallRx for SyscallQueue {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let got = self.inner.recv(room)?;
        if let Recv::Frame(frame) = got {
            if self.sampler.count.is_multiple_of(EVERY) {
                let pieces: ArrayVec<Span<'_>, { Scatter::PIECES_MAX }> = room.pieces().collect();
                let (head, more) = pieces.split_first().unwrap_or((&Span::EMPTY, &[]));
                self.sampler.sample(frame.len, *head, more);
            }
            self.sampler.count = self.sampler.count.wrapping_add(1);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests;
