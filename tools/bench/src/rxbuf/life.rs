//! RX buffers without a device. At first all buffers of a ring are posted. Each frame is written
//! into the oldest posted buffer, its header is read, and a new buffer is posted. The frame's flow
//! frees the buffer after [`KEPT`] newer frames of the flow.

use std::collections::VecDeque;
use std::hint::black_box;

use mqnet_pktbuf::{Frag, PagePool, PoolConfig};
use mqnet_shmem::Span;

use crate::Result;

const RING: usize = 512;
const BURST: usize = 32;
/// Number of frames that each flow keeps.
const KEPT: usize = 4;
/// Pages for a ring of full pages and the frames kept by 128 flows.
const PAGES: u32 = 2048;

/// Allocation method of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Page fragments of this size in bytes.
    Fragment(u32),
    /// Full pages.
    FullPage,
    /// Allocations of this size by the global allocator.
    Plain(u32),
    /// No allocation: the initial buffers are used again.
    Nobody,
}

enum Buffer {
    Frag(Frag),
    Plain(Vec<u8>),
}

struct Queue {
    pool: PagePool,
    posted: VecDeque<Buffer>,
}

/// Queues, and flows that keep received frames.
pub(crate) struct Life {
    kind: Kind,
    frame: Vec<u8>,
    queues: Vec<Queue>,
    /// Kept buffers of each flow, with their queue numbers.
    flows: Vec<VecDeque<(usize, Buffer)>>,
    /// State of the random number generator that selects flows.
    random: u32,
    next_queue: usize,
}

fn take(kind: Kind, pool: &mut PagePool) -> Option<Buffer> {
    match kind {
        Kind::Fragment(size) => pool.alloc_frag(size).map(Buffer::Frag),
        Kind::FullPage | Kind::Nobody => pool.alloc_frag(pool.page_size()).map(Buffer::Frag),
        Kind::Plain(size) => Some(Buffer::Plain(Vec::with_capacity(size as usize))),
    }
}

impl Life {
    pub(crate) fn new(kind: Kind, bytes: usize, queues: usize, flows: usize) -> Result<Self> {
        let queue = || -> Result<Queue> {
            let config = PoolConfig { pages: PAGES, ..PoolConfig::default() };
            let mut pool = PagePool::new(&config)?;
            let posted = (0..RING).map_while(|_| take(kind, &mut pool)).collect();
            Ok(Queue { pool, posted })
        };
        Ok(Self {
            kind,
            frame: (0..bytes).map(|at| at as u8).collect(),
            queues: (0..queues).map(|_| queue()).collect::<Result<_>>()?,
            flows: (0..flows).map(|_| VecDeque::with_capacity(KEPT + 1)).collect(),
            random: 1,
            next_queue: 0,
        })
    }

    /// Writes a frame into a buffer and reads its header, like a device and a network stack.
    fn receive(&mut self, at: usize, buffer: &mut Buffer) {
        let mut head = [0; 64];
        match buffer {
            Buffer::Frag(frag) => {
                let pool = &mut self.queues[at].pool;
                pool.frag_span_mut(frag).copy_from(Span::of(black_box(&self.frame)));
                pool.frag_span(frag).read_header(&mut head);
            }
            Buffer::Plain(bytes) => {
                bytes.clear();
                bytes.extend_from_slice(black_box(&self.frame));
                head.copy_from_slice(&bytes[..64]);
            }
        }
        black_box(head);
    }

    /// Frees the buffer `old`, if any, and posts a new one in queue `at`. With [`Kind::Nobody`],
    /// `old` is posted again in its own queue and no buffer is allocated.
    fn renew(&mut self, at: usize, old: Option<(usize, Buffer)>) {
        if self.kind == Kind::Nobody {
            if let Some((from, buffer)) = old {
                self.queues[from].posted.push_back(buffer);
            }
            return;
        }
        if let Some((from, Buffer::Frag(frag))) = old {
            self.queues[from].pool.free_frag(frag);
        }
        let queue = &mut self.queues[at];
        queue.posted.extend(take(self.kind, &mut queue.pool));
    }

    /// Receives a burst of frames in the next queue. Returns their number, or 0 if no buffer is
    /// posted.
    pub(crate) fn burst(&mut self) -> usize {
        let at = self.next_queue;
        self.next_queue = (at + 1) % self.queues.len();
        for _ in 0..BURST {
            let Some(mut buffer) = self.queues[at].posted.pop_front() else { return 0 };
            self.receive(at, &mut buffer);
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let flow = (self.random >> 16) as usize % self.flows.len();
            let flow = &mut self.flows[flow];
            flow.push_back((at, buffer));
            let old = if flow.len() > KEPT { flow.pop_front() } else { None };
            self.renew(at, old);
        }
        BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: for every kind of buffer and number of flows, every burst is complete: a queue never
    // lacks posted buffers, because freed buffers are allocated again.
    #[test]
    fn buffers_suffice_over_time() {
        for kind in [Kind::Fragment(1536), Kind::FullPage, Kind::Plain(1536), Kind::Nobody] {
            for (queues, flows) in [(1, 1), (8, 64)] {
                let mut life = Life::new(kind, 1514, queues, flows).unwrap();
                for _ in 0..2000 {
                    assert_eq!(life.burst(), BURST, "{kind:?}");
                }
                let posted: usize = life.queues.iter().map(|queue| queue.posted.len()).sum();
                let kept = if kind == Kind::Nobody { flows * KEPT } else { 0 };
                assert_eq!(posted, queues * RING - kept);
            }
        }
    }
}
