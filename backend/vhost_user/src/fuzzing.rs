//! Fuzz targets, shared by the fuzzer (`cargo xtask fuzz`) and the property tests. No input may
//! cause a panic or a frame that breaks the contract.

mod frontend;
mod messages;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mqnet_netdev::fuzzing::{Input, receive};
use mqnet_netdev::{Burst, Fault, FrameMeta, OwningTx, Queue, QueuePairStats};
use mqnet_shmem::{Area, AtomicTable, MemoryMap, Preference, Region, Span, prefer};
use mqnet_virtio::log::{Log, RingLog};
use mqnet_virtio::{Features, layout};
use mqnet_wire::VnetHdr;

use crate::{GuestRx, GuestTx, Vring, VringCell, VringSetup};
pub use messages::messages;

const MEMORY: usize = 16 << 10;
/// First address of the guest.
const START: u64 = 0x4000;
const SIZE: u16 = 4;
const FRAME_MAX: u32 = 4000;
/// Offsets of the three ring areas. The inflight region is separate memory.
const AREAS: [usize; 3] = [0, 256, 512];
/// Offset of indirect tables and frames.
const BUFFERS: u64 = 1024;

struct World {
    memory: Arc<Region>,
    notes: Arc<Region>,
    map: Arc<MemoryMap>,
    features: Features,
    cell: Arc<VringCell>,
    sends: GuestTx,
    receives: GuestRx,
    /// Number of chains that the test made available.
    made: u16,
}

impl World {
    fn new(flags: u8) -> Option<Self> {
        let region = || Region::private(MEMORY, false, None).ok().map(Arc::new);
        let (memory, notes) = (region()?, region()?);
        let area = Area { start: START, len: MEMORY as u64, region: memory.clone(), offset: 0 };
        let map = Arc::new(MemoryMap::new(vec![area]).ok()?);
        let choice = [
            Features::RING_PACKED,
            Features::EVENT_IDX,
            Features::MRG_RXBUF,
            Features::HASH_REPORT,
            Features::INDIRECT_DESC,
        ];
        let chosen = choice.into_iter().enumerate().filter(|(i, _)| flags >> i & 1 == 1);
        let features = chosen.fold(Features::VERSION_1, |all, (_, one)| all.or(one));
        prefer(if flags & 0x20 == 0 { Preference::Cached } else { Preference::Streamed });
        let cell = Arc::new(VringCell::new().ok()?);
        let stats = Arc::<QueuePairStats>::default();
        let sends = GuestTx::new(0, [cell.clone()], FRAME_MAX, stats.clone()).ok()?;
        let receives = GuestRx::new(0, cell.clone(), stats).ok()?;
        Some(Self { memory, notes, map, features, cell, sends, receives, made: 0 })
    }

    /// Takes the ring into service again in its current state.
    fn begin(&mut self, input: &mut Input<'_>) -> Option<()> {
        self.sends.park();
        self.receives.park();
        self.cell.take();
        let what = input.u8();
        let packed = self.features.has(Features::RING_PACKED);
        let lens = if packed { layout::packed::areas(SIZE) } else { layout::split::areas(SIZE) };
        let table = |i: usize| AtomicTable::new(self.memory.clone(), AREAS[i], lens[i]);
        let bits = AtomicTable::new(self.notes.clone(), 4096, 8)?;
        let log = Arc::new(Log::new(bits));
        let notes = AtomicTable::new(self.notes.clone(), 0, 512);
        let vring = Vring::new(VringSetup {
            queue: 0,
            size: SIZE,
            memory: self.map.clone(),
            desc: table(0)?,
            driver: table(1)?,
            device: table(2)?,
            features: self.features,
            base: if what & 4 == 0 { 0x8000_8000 } else { input.u16().into() },
            kick: None,
            call: None,
            inflight: notes.filter(|_| what & 1 == 1),
            log: (what & 2 != 0).then_some(RingLog { log, desc: START, device: START + 512 }),
        });
        self.cell.offer(vring.ok()?).ok()
    }

    fn store(&self, at: usize, value: u64) {
        self.memory.word((at % MEMORY) & !7).store(value, Relaxed);
    }

    /// Makes one well-formed chain available: one or two buffers (split) or one (packed).
    fn make(&mut self, kind: usize) {
        let (at, lap) = (self.made % SIZE, self.made / SIZE);
        let desc = usize::from(at) * 16;
        let (write, next) = (if kind & 1 == 1 { 2 } else { 0 }, u64::from((at + 1) % SIZE));
        let len = [12, 32, 90, 2000, 5000][kind / 4 % 5];
        self.store(desc, START + BUFFERS + 64 * (kind as u64 / 4));
        self.made = self.made.wrapping_add(1);
        if self.features.has(Features::RING_PACKED) {
            let mark = if lap.is_multiple_of(2) { 0x80 } else { 0x8000 };
            self.store(desc + 8, len | u64::from(at) << 32 | (write | mark) << 48);
            return;
        }
        let more = u64::from(kind & 2 != 0);
        self.store(desc + 8, len | (write | more) << 32 | next << 48);
        self.store(AREAS[1], u64::from(self.made) << 16 | 1 << 48);
        self.store(AREAS[1] + 8, 2 | 3 << 16);
    }

    /// Writes a plausible descriptor into the ring or an indirect table.
    fn describe(&self, input: &mut Input<'_>) {
        let (place, kind) = (input.u8(), input.u8());
        let in_table = place & 0x80 != 0;
        let at = if in_table { BUFFERS as usize } else { 0 } + usize::from(place % 8) * 16;
        let addr = match kind & 3 {
            0 => START + BUFFERS,
            3 => input.u64(),
            _ => START + u64::from(input.u16() % MEMORY as u16),
        };
        let len = match kind >> 2 & 3 {
            0 => 64,
            1 => u64::from(input.u8() % 8) * 16,
            2 => u64::from(input.u16()),
            _ => input.u64() & 0xffff_ffff,
        };
        let (flags, other) = (u64::from(kind >> 4 & 7), u64::from(input.u8() % 8));
        let rest = if self.features.has(Features::RING_PACKED) {
            let lap = u64::from(input.u8());
            other | (flags | (lap & 1) << 7 | (lap & 2) << 14) << 16
        } else {
            flags | other << 16
        };
        self.store(at, addr);
        self.store(at + 8, len | rest << 32);
    }

    fn send(&mut self, len: usize) -> Result<(), Fault> {
        let bytes = vec![7; len];
        {
            let mut burst = Burst::new();
            burst.push(VnetHdr::default(), len as u32, Span::of(&bytes));
            self.receives.submit(&burst, 0)?;
        }
        let len = len as u32;
        if self.receives.reserve(len)?.is_some() {
            self.receives.commit(&FrameMeta { len, hdr: VnetHdr::default() });
        }
        self.receives.flush()
    }
}

/// Interleaves arbitrary guest writes with polls of both halves, which lease the ring in turn.
/// Ends at the first fault, like the engine.
pub fn rings(data: &[u8]) {
    let mut input = Input(data);
    let Some(mut world) = World::new(input.u8()) else { return };
    if world.begin(&mut Input(&[])).is_none() {
        return;
    }
    for _ in 0..300 {
        let step = input.u8();
        let rest = usize::from(step >> 3);
        let done = match step % 8 {
            0 => {
                world.store(AREAS[rest % 3] + rest / 3 * 8, input.u64());
                Ok(())
            }
            1 => {
                world.describe(&mut input);
                Ok(())
            }
            2 => {
                world.make(rest);
                Ok(())
            }
            3 => {
                // Moves the available index and writes some heads into the available ring.
                let heads = input.u64() & 0x0007_0007_0007_0007;
                world.made = world.made.wrapping_add(rest as u16 % 4);
                world.store(AREAS[1], u64::from(world.made) << 16 | heads << 32);
                world.store(AREAS[1] + 8, heads);
                Ok(())
            }
            4 => {
                world.receives.park();
                receive(&mut world.sends, 1..=FRAME_MAX, rest)
            }
            5 => {
                world.sends.park();
                world.send(rest * 100 + 1)
            }
            6 => {
                let sends = world.sends.arm(0).map(drop);
                sends.and_then(|()| world.receives.arm(FRAME_MAX).map(drop))
            }
            _ if rest % 4 == 0 && world.begin(&mut input).is_none() => return,
            _ => Ok(()),
        };
        if done.is_err() || input.0.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // Goal: no bytes written by a guest cause a panic, an access outside of the guest's memory,
        // or a frame that breaks the contract.
        #[test]
        fn arbitrary_peer_writes_are_handled(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::rings(&data);
        }
    }
}
