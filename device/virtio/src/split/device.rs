//! Device side of a split ring.
//!
//! ```text
//!   driver                                device
//!   descriptors, avail ring               avail.idx (Acquire), then the chains before it
//!   avail.idx (Release)          <----->
//!   used.idx (Acquire)           <----->  used ring, then used.idx (Release)
//!
//!   used_event, full barrier,    <----->  used.idx, full barrier, used_event:  an interrupt?
//!   read used.idx again
//!   avail.idx, full barrier,     <----->  avail_event, full barrier, avail.idx: a chain?
//!   avail_event: a kick?
//! ```
//!
//! In each of the last two rows, the full barriers guarantee that at least one side reads the value
//! that the other side has written.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

use mqnet_shmem::{AtomicTable, Column, MemoryMap};

use crate::chain::{BufferElement, Builder, Chain, ChainHead, Desc, Links};
use crate::layout::{SIZE_MAX, flag, split as at};
use crate::log::RingLog;
use crate::ring::{DeviceRing, areas_fit, no_ring, passes};
use crate::{Broken, Features};

/// Device side of a split ring.
#[derive(Debug)]
pub struct SplitDeviceQueue {
    queue: u16,
    size: u16,
    desc: Column<[AtomicU64; 2]>,
    available: Column<AtomicU16>,
    used: Column<[AtomicU32; 2]>,
    /// Driver area, for the fields other than the available ring.
    driver: AtomicTable,
    /// Device area, for the fields other than the used ring.
    device: AtomicTable,
    event_idx: bool,
    indirect: bool,
    in_order: bool,
    /// Index of the next chain; all chains before it are used.
    next: u16,
    /// Last value read from `avail.idx`.
    seen: u16,
    /// Last value written to `used.idx`.
    published: u16,
    /// `used.idx` at the last check for an interrupt; `None` before the first check.
    checked: Option<u16>,
    /// True while notifications are enabled (without `EVENT_IDX`).
    armed: bool,
    log: Option<RingLog>,
}

#[inline(always)]
fn read([addr, rest]: &[AtomicU64; 2]) -> Desc {
    Desc::split(u64::from_le(addr.load(Relaxed)), u64::from_le(rest.load(Relaxed)))
}

impl SplitDeviceQueue {
    /// Creates the device side of a ring, which resumes at `used.idx` in the ring's memory instead
    /// of the frontend's base. If the base exceeds `used.idx`, the previous device ended while it
    /// processed chains. Chains are used in order, so that those chains are still available.
    pub fn new(
        queue: u16,
        size: u16,
        tables: [AtomicTable; 3],
        features: Features,
    ) -> Result<Self, Broken> {
        let [desc, driver, device] = tables;
        let tables = [&desc, &driver, &device];
        let fits = areas_fit(tables, at::areas(size), [16, 2, 4]);
        let columns = (
            Column::new(&desc, at::desc(0), size),
            Column::new(&driver, at::avail_ring(0), size),
            Column::new(&device, at::used_ring(0), size),
        );
        let (true, (Some(desc), Some(available), Some(used))) =
            (fits && size.is_power_of_two() && size <= SIZE_MAX, columns)
        else {
            return Err(no_ring(queue, "split", size, tables));
        };
        let next = u16::from_le(device.half(at::USED_IDX).load(Relaxed));
        let mut ring = Self {
            queue,
            size,
            desc,
            available,
            used,
            driver,
            device,
            event_idx: features.has(Features::EVENT_IDX),
            indirect: features.has(Features::INDIRECT_DESC),
            in_order: features.has(Features::IN_ORDER),
            next,
            seen: next,
            published: next,
            checked: None,
            armed: true,
            log: None,
        };
        ring.disarm();
        Ok(ring)
    }

    /// Sets the log of all further writes to the ring.
    pub fn set_log(&mut self, log: Option<RingLog>) {
        self.log = log;
    }

    #[cold]
    #[inline(never)]
    fn no_descriptor(&self, id: u16) -> Broken {
        self.broken(format!("available descriptor {id}, queue size {}", self.size))
    }

    #[cold]
    fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }

    /// Reads and checks `avail.idx`. Returns true if a chain is available at `place`.
    #[inline(never)]
    fn read_avail_idx(&mut self, place: u16) -> Result<bool, Broken> {
        // Pairs with the driver's release of avail.idx: the chains are visible before the index.
        let idx = u16::from_le(self.driver.half(at::AVAIL_IDX).load(Acquire));
        let (there, seen) = (idx.wrapping_sub(self.published), self.seen);
        if there > self.size || there < seen.wrapping_sub(self.published) {
            let (size, used) = (self.size, self.published);
            let what = format!("avail.idx {seen} became {idx} (queue size {size}, used {used})");
            return Err(self.broken(what));
        }
        self.seen = idx;
        Ok(idx != place)
    }

    #[cold]
    fn log_used(&self, n: u16) {
        let Some(log) = &self.log else { return };
        for i in 0..n.min(self.size) {
            log.device(at::used_ring(self.published.wrapping_add(i) & (self.size - 1)), 8);
        }
        log.device(0, at::used_ring(0));
    }

    /// True if the driver requests an interrupt for the chains published since the last check.
    #[inline]
    fn needs_interrupt(&mut self) -> bool {
        // Pairs with the driver's full barrier between its used_event (or flags) and its second
        // read of used.idx: our index precedes our read of the driver's request.
        fence(SeqCst);
        if !self.event_idx {
            let flags = u16::from_le(self.driver.half(at::AVAIL_FLAGS).load(Relaxed));
            return flags & at::NO_INTERRUPT == 0;
        }
        let event = u16::from_le(self.driver.half(at::used_event(self.size)).load(Relaxed));
        let new = self.published;
        self.checked.replace(new).is_none_or(|old| passes(event, new, old))
    }
}

impl DeviceRing for SplitDeviceQueue {
    type Place = u16;

    fn queue(&self) -> u16 {
        self.queue
    }

    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn place(&self) -> u16 {
        self.next
    }

    #[inline]
    fn has_chain(&mut self) -> Result<bool, Broken> {
        Ok(self.next != self.seen || self.read_avail_idx(self.next)?)
    }

    #[inline(always)]
    fn head_at(&mut self, place: &mut u16) -> Result<Option<ChainHead>, Broken> {
        if *place == self.seen && !self.read_avail_idx(*place)? {
            return Ok(None);
        }
        let id = u16::from_le(self.available.round(*place).load(Relaxed));
        let Some(desc) = self.desc.get(id) else { return Err(self.no_descriptor(id)) };
        *place = place.wrapping_add(1);
        Ok(Some(ChainHead { id, desc: read(desc) }))
    }

    #[inline(never)]
    fn whole_chain(
        &self,
        head: &ChainHead,
        _place: &mut u16,
        memory: &MemoryMap,
        list: &mut Vec<BufferElement>,
    ) -> Result<Chain, Broken> {
        let mut builder = Builder::new(self.queue, head.id, list);
        let (mut desc, mut slots) = (head.desc, 1);
        loop {
            if desc.flags & flag::INDIRECT != 0 {
                if !self.indirect {
                    return Err(self.broken("INDIRECT, which was not negotiated".to_owned()));
                }
                builder.add_table(&desc, Links::Next, memory)?;
                return Ok(builder.done(slots));
            }
            builder.add(&desc)?;
            if desc.flags & flag::NEXT == 0 {
                return Ok(builder.done(slots));
            }
            let Some(next) = self.desc.get(desc.other) else {
                let (next, size) = (desc.other, self.size);
                return Err(self.broken(format!("next descriptor {next}, queue size {size}")));
            };
            if slots == self.size {
                let what = format!("a chain of more than the queue's {slots} descriptors");
                return Err(self.broken(what));
            }
            slots += 1;
            desc = read(next);
        }
    }

    #[inline(always)]
    fn give_back(&mut self, id: u16, _slots: u16, len: u32) {
        let [used_id, used_len] = self.used.round(self.next);
        used_id.store(u32::from(id).to_le(), Relaxed);
        used_len.store(len.to_le(), Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    fn give_back_many(&mut self, id: u16, slots: u16, chains: u16) -> bool {
        if self.in_order {
            self.give_back(id, slots, 0);
            self.next = self.next.wrapping_add(chains - 1);
        }
        self.in_order
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let new = self.next.wrapping_sub(self.published);
        if new == 0 {
            return false;
        }
        // Pairs with the driver's acquire of used.idx: entries and payload are visible before the
        // index.
        self.device.half(at::USED_IDX).store(self.next.to_le(), Release);
        if self.log.is_some() {
            self.log_used(new);
        }
        self.published = self.next;
        self.needs_interrupt()
    }

    fn arm(&mut self, place: u16) -> Result<bool, Broken> {
        if self.event_idx {
            let event = self.device.half(at::avail_event(self.size));
            event.store(place.to_le(), Relaxed);
        } else {
            self.device.half(at::USED_FLAGS).store(0, Relaxed);
        }
        self.armed = true;
        // Pairs with the driver's full barrier between avail.idx and its read of avail_event (or
        // flags): our request precedes our second read of avail.idx.
        fence(SeqCst);
        self.read_avail_idx(place)
    }

    #[inline]
    fn disarm(&mut self) {
        // With `EVENT_IDX`, keep the old event index: the driver passes that index only once in
        // 65,536 chains.
        if self.armed && !self.event_idx {
            self.device.half(at::USED_FLAGS).store(at::NO_NOTIFY.to_le(), Relaxed);
        }
        self.armed = false;
    }

    fn base(&self) -> u32 {
        self.published.into()
    }
}
