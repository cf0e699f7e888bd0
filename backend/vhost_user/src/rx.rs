//! RX queue over a guest's transmit queues.

mod show;

use std::io;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::BURST_FRAMES;
use mqnet_netdev::{Armed, Burst, Fault, OwningRx, Queue, QueuePairStats, WakeSource};
use mqnet_virtio::{BufferElement, DeviceRing, UsedChain, on_ring};

use crate::shared::{interrupting, watching};
use crate::vring::{EpollSet, RingLease, Vring, VringCell};

/// Chain of a frame that the last peek returned.
#[derive(Clone, Copy, Debug)]
struct Shown {
    id: u16,
    slots: u16,
    len: u32,
}

/// Memory for frames that cannot be passed in place, and the largest frame length.
#[derive(Debug)]
struct Scratch {
    /// Buffers of the chain that is being read.
    list: Vec<BufferElement>,
    /// Bounce buffer for a frame in more than `FRAME_PIECES_MAX` buffers; empty until one
    /// arrives.
    bounce: Vec<u8>,
    frame_max: u32,
}

/// RX queue over one or more transmit queues of a guest. Each peek returns frames of one ring.
#[derive(Debug)]
pub struct GuestTx {
    channel: u16,
    leases: Vec<RingLease>,
    /// Index of the ring that is polled first.
    current: usize,
    events: EpollSet,
    shown: ArrayVec<Shown, BURST_FRAMES>,
    scratch: Scratch,
    stats: Arc<QueuePairStats>,
}

impl GuestTx {
    /// Creates the queue over these cells. Frames longer than `frame_max` bytes are dropped.
    pub fn new(
        channel: u16,
        cells: impl IntoIterator<Item = Arc<VringCell>>,
        frame_max: u32,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let events = EpollSet::new()?;
        let leases = cells.into_iter().map(|cell| RingLease::new(cell, &events));
        Ok(Self {
            channel,
            leases: leases.collect::<io::Result<_>>()?,
            current: 0,
            events,
            shown: ArrayVec::new(),
            scratch: Scratch { list: Vec::new(), bounce: Vec::new(), frame_max },
            stats,
        })
    }

    /// Selects the first ring with an available chain, from the current ring on, and disarms that
    /// ring. False if no ring has an available chain.
    #[inline]
    fn find_work(&mut self) -> Result<bool, Fault> {
        for _ in 0..self.leases.len() {
            let lease = &mut self.leases[self.current];
            if lease.is_ready(&self.events).map_err(|e| watching(self.channel, &e))?
                && let (Some(vring), cell) = lease.parts()
            {
                let found = on_ring!(&mut vring.ring, ring => ring.has_chain());
                if found.map_err(|e| cell.fault(self.channel, &e))? {
                    on_ring!(&mut vring.ring, ring => ring.disarm());
                    return Ok(true);
                }
            }
            self.advance();
        }
        Ok(false)
    }

    /// Selects the next ring.
    #[inline]
    fn advance(&mut self) {
        self.current = if self.current + 1 >= self.leases.len() { 0 } else { self.current + 1 };
    }
}

impl Queue for GuestTx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        let mut armed = Armed::Sleep;
        for lease in &mut self.leases {
            if !lease.is_ready(&self.events).map_err(|e| watching(self.channel, &e))? {
                continue;
            }
            let (Some(vring), cell) = lease.parts() else { continue };
            let work = on_ring!(&mut vring.ring, ring => ring.arm(ring.place()));
            if work.map_err(|e| cell.fault(self.channel, &e))? || vring.kick.is_none() {
                armed = Armed::MoreWork;
            }
        }
        Ok(armed)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.events.event())
    }

    fn park(&mut self) {
        self.shown.clear();
        for lease in &mut self.leases {
            lease.release(&self.events);
        }
    }
}

impl OwningRx for GuestTx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.shown.clear();
        if !self.find_work()? {
            return Ok(());
        }
        let Self { leases, current, shown, scratch, stats, channel, .. } = self;
        let (Some(vring), cell) = leases[*current].parts() else { return Ok(()) };
        let Vring { ring, memory, hdr_len, sends, call, .. } = vring;
        let from = show::From { ring, memory, hdr_len: *hdr_len, sends: *sends };
        let wants_interrupt = show::show(from, scratch, shown, stats, burst, budget);
        if wants_interrupt.map_err(|e| cell.fault(*channel, &e))? {
            stats.rx.kicks.add(1);
            call.ring().map_err(|e| interrupting(*channel, &e))?;
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        if frames == 0 {
            return Ok(());
        }
        let Some(vring) = self.leases[self.current].vring() else { return Ok(()) };
        let taken = &self.shown[..frames];
        let (mut bytes, mut slots) = (0, 0);
        for chain in taken {
            bytes += u64::from(chain.len);
            slots = u16::saturating_add(slots, chain.slots);
        }
        let last = taken.last().map_or(0, |chain| chain.id);
        let wants_interrupt = on_ring!(&mut vring.ring, ring => {
            if !ring.give_back_many(last, slots, frames as u16) {
                let used = |chain: &Shown| UsedChain { id: chain.id, slots: chain.slots, len: 0 };
                ring.give_back_all(taken.iter().map(used));
            }
            ring.publish()
        });
        let stats = &self.stats.rx;
        stats.packets.add(frames as u64);
        stats.bytes.add(bytes);
        if wants_interrupt {
            stats.kicks.add(1);
            vring.call.ring().map_err(|e| interrupting(self.channel, &e))?;
        }
        // After a partial release, stay at this ring: the next peek begins with the other frames.
        if frames == self.shown.len() {
            self.advance();
        }
        self.shown.clear();
        Ok(())
    }
}

impl Drop for GuestTx {
    fn drop(&mut self) {
        self.park();
    }
}
