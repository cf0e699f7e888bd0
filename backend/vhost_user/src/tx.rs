//! TX queue over a guest's receive queue.

mod place;

use std::io;
use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, FrameMeta, OwningTx, Queue, QueuePairStats, WakeSource,
};
use mqnet_shmem::{Scatter, Segments, StoreMode, Stores};
use mqnet_virtio::net::rss::Hashed;
use mqnet_virtio::{DeviceRing, on_ring};

use crate::shared::{interrupting, watching};
use crate::vring::{EpollSet, RingLease, Vring, VringCell};
use place::{Found, Room};

/// TX queue over one receive queue of a guest.
#[derive(Debug)]
pub struct GuestRx {
    channel: u16,
    lease: RingLease,
    events: Arc<EpollSet>,
    /// True while an older queue's frames must reach the guest first.
    held: bool,
    /// Buffers of the last reservation.
    room: Room,
    scatter: Scatter,
    /// Hash of the next frames, for a driver that negotiated hash reports.
    hashed: Hashed,
    stores: Stores,
    stats: Arc<QueuePairStats>,
}

impl GuestRx {
    /// Creates the queue over this cell.
    pub fn new(channel: u16, cell: Arc<VringCell>, stats: Arc<QueuePairStats>) -> io::Result<Self> {
        let events = Arc::new(EpollSet::new()?);
        let lease = RingLease::new(cell, &events)?;
        let (room, scatter, hashed) = (Room::default(), Scatter::default(), Hashed::default());
        let stores = Stores::default();
        Ok(Self { channel, lease, events, held: false, room, scatter, hashed, stores, stats })
    }

    /// Event set of the queue.
    pub(crate) fn events(&self) -> &Arc<EpollSet> {
        &self.events
    }

    /// Sets the hash of the next frames.
    pub(crate) fn set_hash(&mut self, hashed: Hashed) {
        self.hashed = hashed;
    }

    /// True if the queue has its ring and is not held.
    #[inline]
    fn is_open(&mut self) -> Result<bool, Fault> {
        if self.held {
            // Leave the ring to the older lane, because frames of that lane go first.
            return Ok(false);
        }
        self.lease.is_ready(&self.events).map_err(|e| watching(self.channel, &e))
    }
}

impl Queue for GuestRx {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if !self.is_open()? {
            // Poll a held queue, because the release of the hold may not wake the lane.
            return Ok(if self.held { Armed::MoreWork } else { Armed::Sleep });
        }
        let (Some(vring), cell) = self.lease.parts() else { return Ok(Armed::Sleep) };
        let there = self.room.wait_for(vring, need).map_err(|e| cell.fault(self.channel, &e))?;
        Ok(if there || vring.kick.is_none() { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.events.event())
    }

    fn park(&mut self) {
        self.room.forget();
        self.lease.release(&self.events);
    }
}

impl OwningTx for GuestRx {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        if !self.is_open()? {
            return Ok(0);
        }
        let (Some(vring), cell) = self.lease.parts() else { return Ok(0) };
        let Vring { ring, memory, hdr_len, mergeable, log, .. } = vring;
        on_ring!(&mut *ring, ring => ring.disarm());
        let (hdr_len, mergeable, hashed) = (*hdr_len, *mergeable, self.hashed);
        let buffers = place::Buffers { memory, hdr_len, mergeable, hashed, log };
        let room = &mut self.room;
        let StoreMode { streaming, watch, .. } = self.stores.begin();
        let placed = match streaming {
            None => on_ring!(ring, ring => room.submit(ring, buffers, burst, from, None)),
            Some(streaming) => {
                on_ring!(ring, ring => room.stream(ring, buffers, burst, from, streaming))
            }
        };
        if let Some(watch) = watch {
            self.stores.end(watch, placed.frames as usize, placed.bytes);
        }
        let stats = &self.stats.tx;
        stats.packets.add(placed.frames);
        stats.bytes.add(placed.bytes);
        stats.copies.add(placed.frames);
        if placed.too_long > 0 {
            stats.drops.count(DropReason::BufferTooSmall, placed.too_long);
        }
        let taken = (placed.frames + placed.too_long) as usize;
        // The caller must first release the frames that were taken before the fault; the next
        // submit returns the fault again.
        match placed.broken {
            Some(broken) if taken == 0 => Err(cell.fault(self.channel, &broken)),
            _ => Ok(taken),
        }
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        if !self.is_open()? {
            return Ok(None);
        }
        let (Some(vring), cell) = self.lease.parts() else { return Ok(None) };
        on_ring!(&mut vring.ring, ring => ring.disarm());
        let found = self.room.find(vring, max).map_err(|e| cell.fault(self.channel, &e))?;
        if found == Found::NotYet {
            return Ok(None);
        }
        Ok(Some(self.room.segments(vring, &mut self.scatter)))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        let Some(vring) = self.lease.vring() else { return };
        let stats = &self.stats.tx;
        if self.room.commit(vring, frame) {
            stats.packets.add(1);
            stats.bytes.add(u64::from(frame.len));
        } else {
            stats.drops.count(DropReason::BufferTooSmall, 1);
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let Some(vring) = self.lease.vring() else { return Ok(()) };
        if on_ring!(&mut vring.ring, ring => ring.publish()) {
            self.stats.tx.kicks.add(1);
            vring.call.ring().map_err(|e| interrupting(self.channel, &e))?;
        }
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.held = on;
        self.flush()?;
        if on {
            self.park();
        }
        Ok(())
    }

    /// Always true after a flush: a guest does not report when it reads published frames.
    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.flush()?;
        Ok(true)
    }
}

impl Drop for GuestRx {
    fn drop(&mut self) {
        self.park();
    }
}
