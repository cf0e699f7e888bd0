//! Two functions for benchmarks: an endless source of frames, and a sink that copies frames to
//! private memory and discards them. A link between them makes two copies of a frame: into the link
//! and out of it.

mod untouched;

use std::sync::Arc;

use mqnet_netdev::limits::{BURST_BYTES, FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Armed, Burst, Caps, Channel, Fault, FrameMeta, Function, Offloads, OpenChannelsError, OwningRx,
    OwningTx, Plan, Queue, QueuePairStats, Recv, Rx, SyscallRx, SyscallTx, Tx, WakeSource,
};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::{Layer, VnetHdr};

use untouched::{Maker, Taker};

/// Bytes of private source or destination memory for frames, which fit the second-level cache, like
/// a pool of buffers.
const PRIVATE: usize = 256 << 10;

/// Role of a benchmark function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Provides frames of this length.
    Source(usize),
    /// Receives frames and copies them to private memory.
    Sink,
    /// Makes frames of this length in the sink's memory, as `testpmd` does.
    Maker(usize),
    /// Receives frames without a copy, as `testpmd` does.
    Taker,
}

/// Benchmark function.
pub(super) struct Traffic {
    role: Role,
    stats: Vec<Arc<QueuePairStats>>,
}

impl Traffic {
    pub(super) fn new(role: Role, channels: u16) -> Self {
        Self { role, stats: (0..channels).map(|_| Arc::default()).collect() }
    }
}

impl Function for Traffic {
    fn name(&self) -> &str {
        match self.role {
            Role::Source(_) | Role::Maker(_) => "source",
            Role::Sink | Role::Taker => "sink",
        }
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: Layer::Ethernet,
            channels: self.stats.len() as u16,
            wanted: Some(self.stats.len() as u16),
            mtu: Some(MTU_MAX.min(9000)),
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let stats = self.stats.iter().take(usize::from(plan.channels));
        let private = share(self.stats.len());
        Ok(stats.map(|stats| channel(self.role, stats, private)).collect())
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }
}

/// Bytes of private memory of each of `channels` channels: [`PRIVATE`] divided by the number of
/// channels, which is rounded up to a power of two, but at least 4096.
pub(super) fn share(channels: usize) -> usize {
    (PRIVATE / channels.next_power_of_two()).max(4096)
}

/// Creates one channel of a benchmark function, with `private` bytes (a power of two).
pub(super) fn channel(role: Role, stats: &Arc<QueuePairStats>, private: usize) -> Channel {
    match role {
        Role::Source(bytes) => Channel {
            rx: Rx::Owning(Box::new(Source {
                memory: vec![0x5a; private + bytes],
                mask: private - 1,
                bytes,
                at: 0,
                next: 0,
                stats: stats.clone(),
            })),
            tx: Tx::Syscall(Box::new(Nothing)),
        },
        Role::Maker(bytes) => Channel {
            rx: Rx::Syscall(Box::new(Maker { bytes, stats: stats.clone() })),
            tx: Tx::Syscall(Box::new(Nothing)),
        },
        Role::Taker => Channel {
            rx: Rx::Syscall(Box::new(Nothing)),
            tx: Tx::Syscall(Box::new(Taker(stats.clone()))),
        },
        Role::Sink => Channel {
            rx: Rx::Syscall(Box::new(Nothing)),
            tx: Tx::Owning(Box::new(Sink {
                memory: vec![0; private + FRAME_MAX as usize],
                mask: private - 64,
                at: 0,
                stats: stats.clone(),
            })),
        },
    }
}

struct Source {
    memory: Vec<u8>,
    mask: usize,
    bytes: usize,
    at: usize,
    next: usize,
    stats: Arc<QueuePairStats>,
}

impl Queue for Source {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Source {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { memory, bytes, mask, .. } = self;
        let (bytes, stride, mask) = (*bytes, bytes.next_power_of_two(), *mask);
        let memory: &'a [u8] = memory;
        let mut at = self.at;
        for _ in 0..budget.min(BURST_BYTES / bytes).max(1) {
            burst.push(VnetHdr::default(), bytes as u32, Span::of(&memory[at..at + bytes]));
            at = (at + stride) & mask;
        }
        self.next = at;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        // Frames that the sink did not take are skipped: their contents do not matter here.
        self.at = self.next;
        self.stats.rx.packets.add(frames as u64);
        Ok(())
    }
}

struct Sink {
    memory: Vec<u8>,
    mask: usize,
    at: usize,
    stats: Arc<QueuePairStats>,
}

impl Queue for Sink {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningTx for Sink {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        let (memory, mut at, mask) = (&mut *self.memory, self.at, self.mask);
        for frame in frames {
            let len = frame.len as usize;
            let mut room = SpanMut::of(&mut memory[at..at + len]);
            let n = room.copy_from(frame.head);
            if !frame.is_one_piece() {
                copy_rest(room.split_at(n).1, burst.more(frame));
            }
            at = (at + len + 63) & mask;
        }
        self.at = at;
        self.stats.tx.packets.add(frames.len() as u64);
        Ok(frames.len())
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let head = SpanMut::of(&mut self.memory[..max as usize]);
        Ok(Some(Segments::new(head, SpanMut::empty())))
    }

    fn commit(&mut self, _frame: &FrameMeta) {
        self.stats.tx.packets.add(1);
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn hold(&mut self, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}

#[cold]
fn copy_rest(mut room: SpanMut<'_>, pieces: &[Span<'_>]) {
    for piece in pieces {
        let n = room.copy_from(*piece);
        room = room.split_at(n).1;
    }
}

/// Unused direction of a benchmark function.
struct Nothing;

impl Queue for Nothing {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for Nothing {
    fn recv(&mut self, _room: &mut Segments<'_>) -> Result<Recv, Fault> {
        Ok(Recv::Empty)
    }
}

impl SyscallTx for Nothing {
    fn submit(&mut self, _burst: &Burst<'_>, _from: usize) -> Result<usize, Fault> {
        Ok(0)
    }
}
