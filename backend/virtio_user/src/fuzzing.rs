//! Fuzz target, shared by the fuzzer (`cargo xtask fuzz`) and the property tests. No writes of a
//! device may cause a panic or a frame that breaks the contract.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mqnet_netdev::fuzzing::{Input, receive};
use mqnet_netdev::limits::MTU_DEFAULT;
use mqnet_netdev::{
    Burst, DetachedFrame, Fault, FrameMeta, HandOver, OwningRx, OwningTx, Queue, QueuePairStats,
};
use mqnet_pktbuf::Returner;
use mqnet_shmem::{AtomicTable, Preference, Region, Span, prefer};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::driver::DriverQueue;
use mqnet_virtio::rxbuf::sizes::BufferMode;
use mqnet_virtio::{Features, packed, split};
use mqnet_wire::VnetHdr;

use crate::buffers::{Buffers, RxBufferStats, SettingCell};
use crate::memory::{PairMemory, RingMemory, START, Shape};
use crate::rx::{RxCore, RxParts, RxQueue};
use crate::tx::{TxCore, TxQueue};

const FRAME_MAX: u32 = 2000;

/// Device side of a ring.
struct Ring {
    size: u32,
    packed: bool,
    /// Offsets of the areas in the memory.
    areas: [u32; 3],
    /// Number of buffers returned so far.
    given: u32,
}

impl Ring {
    fn of(ring: &RingMemory, packed: bool) -> Self {
        let areas = ring.addresses.map(|at| (at - START) as u32);
        Self { size: ring.size.into(), packed, areas, given: 0 }
    }

    /// Returns `buffers` buffers like a correct device; with `only_last`, by a single entry for
    /// the last one.
    fn give(&mut self, memory: &AtomicTable, buffers: u32, len: u32, only_last: bool) {
        let last = self.given + buffers - 1;
        let first = if only_last { last } else { self.given };
        let begin = self.given;
        for number in first..=last {
            // The single entry of a batch is at the position of its first buffer.
            self.mark(memory, if only_last { begin } else { number }, number, len);
        }
        self.given += buffers;
        if !self.packed {
            memory.half(self.areas[2] + 2).store((self.given as u16).to_le(), Relaxed);
        }
    }

    /// Writes the used entry at position `place` for buffer `number`.
    fn mark(&self, memory: &AtomicTable, place: u32, number: u32, len: u32) {
        let [desc, avail, used] = self.areas;
        if self.packed {
            let lap = place / self.size;
            let at = desc + 16 * (place % self.size);
            let id = memory.half(desc + 16 * (number % self.size) + 12).load(Relaxed);
            memory.word(at + 8).store(len.to_le(), Relaxed);
            memory.half(at + 12).store(id, Relaxed);
            let flags: u16 = if lap.is_multiple_of(2) { 0x8080 } else { 0 };
            memory.half(at + 14).store(flags.to_le(), Relaxed);
            return;
        }
        let id = memory.half(avail + 4 + 2 * (number % self.size)).load(Relaxed);
        let at = used + 4 + 8 * (place % self.size);
        memory.word(at).store(u32::from(u16::from_le(id)).to_le(), Relaxed);
        memory.word(at + 4).store(len.to_le(), Relaxed);
    }

    /// Offset of the next buffer to return; any value if there is none.
    fn next_buffer(&self, memory: &AtomicTable) -> u32 {
        let [desc, avail, _] = self.areas;
        let place = match self.packed {
            true => self.given % self.size,
            false => {
                let at = avail + 4 + 2 * (self.given % self.size);
                u32::from(u16::from_le(memory.half(at).load(Relaxed))) % self.size
            }
        };
        let at = u64::from_le(memory.double(desc + 16 * place).load(Relaxed));
        at.wrapping_sub(START) as u32
    }
}

struct World<Q: DriverQueue + 'static> {
    memory: AtomicTable,
    rings: [Ring; 2],
    rx: RxQueue<Q>,
    tx: TxQueue<Q>,
    returner: Returner,
    kept: Vec<DetachedFrame>,
}

/// Options of a run, from the first byte of the input.
#[derive(Clone, Copy)]
struct Choice(u8);

impl Choice {
    fn has(self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }
}

impl<Q: DriverQueue + 'static> World<Q> {
    fn new(choice: Choice, make: impl Fn(u16, u16, [AtomicTable; 3], bool) -> Q) -> Option<Self> {
        let (packed, event_idx) = (choice.has(0), choice.has(2));
        let mode = if choice.has(3) { BufferMode::Mergeable } else { BufferMode::Small };
        let features = Features::VERSION_1;
        let shape = Shape { pairs: 1, packed, mode, features };
        let made = shape.make(None).ok()?;
        let region: Arc<Region> = made.region;
        let memory = AtomicTable::new(region.clone(), 0, region.len() as u32)?;
        let PairMemory { rx, tx, pool, slots, slots_at } = made.pairs.into_iter().next()?;
        let rings = [&rx, &tx].map(|ring| Ring::of(ring, packed));
        let event = || EventFd::new().ok().map(Arc::new);
        let (kick, call) = (event()?, event()?);
        let (stats, own) = (Arc::<QueuePairStats>::default(), Arc::<RxBufferStats>::default());
        let takes = Features::CSUM.or(Features::GUEST_CSUM).or(Features::GUEST_TSO4);
        let takes = takes.taken_by_driver();
        let requested = Arc::<SettingCell>::default();
        let parts = RxParts { kick: kick.clone(), requested, stats: stats.clone(), own, takes };
        let buffers = Buffers::new(pool, mode, MTU_DEFAULT, rx.size);
        let queue = |number, ring: RingMemory| make(number, ring.size, ring.tables, event_idx);
        let mut core = RxCore::new(queue(0, rx), buffers, mode == BufferMode::Mergeable, parts);
        core.refill().ok()?;
        let cell = Arc::new(HandOver::new(core));
        let mut rx = RxQueue::new(0, cell, FRAME_MAX, call.clone(), stats.clone());
        let core = TxCore::new(queue(1, tx), slots, slots_at, kick, stats.clone());
        let tx = TxQueue::new(0, Arc::new(HandOver::new(core)), FRAME_MAX, call, stats);
        let returner = rx.returner()?;
        Some(Self { memory, rings, rx, tx, returner, kept: Vec::new() })
    }

    /// Detaches pending frames with their memory; with 0 frames, returns all detached ones.
    fn keep(&mut self, frames: usize) -> Result<(), Fault> {
        if frames == 0 {
            self.kept.drain(..).for_each(|kept| kept.free(&mut self.returner));
            self.returner.flush();
        }
        for _ in 0..frames {
            let Some(kept) = self.rx.detach()? else { break };
            self.kept.push(kept);
        }
        Ok(())
    }

    fn send(&mut self, frames: usize) -> Result<(), Fault> {
        let bytes = vec![7; 60 * frames + 1];
        let len = bytes.len() as u32;
        {
            let mut burst = Burst::new();
            for _ in 0..frames {
                burst.push(VnetHdr::default(), len, Span::of(&bytes));
            }
            self.tx.submit(&burst, 0)?;
        }
        if self.tx.reserve(len)?.is_some() {
            self.tx.commit(&FrameMeta { len, hdr: VnetHdr::default() });
        }
        self.tx.flush()
    }

    fn arm(&mut self, what: usize) -> Result<(), Fault> {
        let _ = (self.rx.arm(0)?, self.tx.arm(FRAME_MAX)?);
        self.tx.fill(0)?;
        if what == 1 {
            self.rx.park();
            self.tx.park();
        }
        self.tx.is_drained().map(drop)
    }

    /// Acts as the device: returns buffers, with a plausible header in the first one.
    fn give(&mut self, input: &mut Input<'_>, only_last: bool) {
        let what = input.u8();
        let (which, count) = (usize::from(what & 1), u32::from(what >> 1) % 70 + 1);
        let ring = &mut self.rings[which];
        let len = match input.u8() {
            n @ 0..=7 => u32::from(n) * 4,
            n => u32::from(n) * 8,
        };
        if which == 0 {
            let at = ring.next_buffer(&self.memory) & !7;
            let (header, rest) = (input.u64(), u64::from(input.u8() % 4) << 16);
            if at < self.memory.len() - 16 {
                self.memory.double(at).store(header & 0x07ff_ff0f_8301_u64, Relaxed);
                self.memory.double(at + 8).store(rest, Relaxed);
            }
        }
        ring.give(&self.memory, count, len, only_last);
    }

    /// Acts as the device: writes any value into a ring.
    fn scribble(&mut self, input: &mut Input<'_>) {
        let what = u32::from(input.u8());
        let ring = &self.rings[(what & 1) as usize];
        let at = (ring.areas[(what >> 1) as usize % 3] & !7) + (what >> 3) * 8;
        self.memory.double(at).store(input.u64(), Relaxed);
    }

    /// Executes the input; ends at the first fault, like the engine.
    fn run(mut self, input: &mut Input<'_>) {
        for _ in 0..300 {
            let step = input.u8();
            let rest = usize::from(step >> 3);
            let done = match step % 8 {
                0 => {
                    self.scribble(input);
                    Ok(())
                }
                1 | 2 => {
                    self.give(input, step % 8 == 2);
                    Ok(())
                }
                3 => receive(&mut self.rx, 14..=FRAME_MAX, 0),
                4 => receive(&mut self.rx, 14..=FRAME_MAX, rest * 2),
                5 => self.keep(rest),
                6 => self.send(rest),
                _ => self.arm(rest),
            };
            if done.is_err() || input.0.is_empty() {
                return;
            }
        }
    }
}

/// Interleaves a device's writes with polls of both queues.
pub fn rings(data: &[u8]) {
    let mut input = Input(data);
    let choice = Choice(input.u8());
    prefer(if choice.has(4) { Preference::Streamed } else { Preference::Cached });
    fn run<Q: DriverQueue + 'static>(
        choice: Choice,
        input: &mut Input<'_>,
        make: impl Fn(u16, u16, [AtomicTable; 3], bool) -> Q,
    ) {
        if let Some(world) = World::new(choice, make) {
            world.run(input);
        }
    }
    match (choice.has(0), choice.has(1)) {
        (true, true) => run(choice, &mut input, packed::driver::PackedInOrderQueue::new),
        (true, false) => run(choice, &mut input, packed::driver::PackedDriverQueue::new),
        (false, true) => run(choice, &mut input, split::driver::SplitInOrderQueue::new),
        (false, false) => run(choice, &mut input, split::driver::SplitDriverQueue::new),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        // Goal: no bytes written by a device cause a panic, an access outside of the memory, or a
        // frame that breaks the contract.
        #[test]
        fn arbitrary_peer_writes_are_handled(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::rings(&data);
        }
    }
}
