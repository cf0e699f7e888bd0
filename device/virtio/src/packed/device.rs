//! Device side of a packed ring.
//!
//! Used descriptors overwrite available ones in a single ring. All used descriptors of a batch
//! except the first are written immediately. The first, which the driver polls, is written with
//! release order when the batch is published, so that the driver sees the complete batch. With an
//! in-flight region or a dirty log, the whole batch is written when it is published. The in-flight
//! region records the batch first.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use mqnet_shmem::{AtomicTable, Column, MemoryMap};

use crate::chain::{BufferElement, Builder, Chain, ChainHead, Desc, Links};
use crate::inflight::PackedInflight;
use crate::layout::{SIZE_MAX, flag, packed as at};
use crate::log::RingLog;
use crate::packed::cold;
use crate::ring::{DeviceRing, UsedChain, areas_fit, no_ring, passes};
use crate::{Broken, Features};

/// A position in a packed ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPosition {
    /// Index of a descriptor.
    pub(crate) at: u16,
    /// Flags of an available descriptor at this position: `AVAIL` if the driver's wrap counter is
    /// set, otherwise `USED`.
    mark: u16,
    /// Descriptors since the last published position, at most the ring size.
    ahead: u16,
}

impl RingPosition {
    /// Decodes a published position from the lower half of a base.
    fn of_base(base: u32) -> Self {
        let mark = if base & 0x8000 != 0 { flag::AVAIL } else { flag::USED };
        Self { at: base as u16 & 0x7fff, mark, ahead: 0 }
    }

    /// Wrap counter of the driver at the position.
    pub(crate) fn wrap(self) -> bool {
        self.mark == flag::AVAIL
    }

    /// Flags of a used descriptor at this position: `AVAIL` and `USED`, or none.
    #[inline(always)]
    fn used(&self) -> u16 {
        self.mark ^ flag::USED
    }

    /// Encodes the position as in an event offset: index, and wrap counter in bit 15.
    pub(crate) fn packed(self) -> u16 {
        self.at | u16::from(self.wrap()) << 15
    }

    #[inline(always)]
    fn advance(&mut self, slots: u16, size: u16) {
        self.ahead += slots;
        self.at += slots;
        if self.at >= size {
            cold();
            self.at -= size;
            self.mark ^= flag::AVAIL | flag::USED;
        }
    }
}

/// Device side of a packed ring.
#[derive(Debug)]
pub struct PackedDeviceQueue {
    queue: u16,
    size: u16,
    desc: Column<[AtomicU64; 2]>,
    /// The memory of `desc`, for the in-flight region.
    ring: AtomicTable,
    driver: AtomicTable,
    device: AtomicTable,
    event_idx: bool,
    indirect: bool,
    in_order: bool,
    /// Position of the next chain.
    next: RingPosition,
    /// Position up to which used descriptors are published.
    published: RingPosition,
    /// First used descriptor since `published`: index, and the value of its second 64 bits. `None`
    /// if the batch is empty or deferred.
    first_used: Option<(u16, u64)>,
    /// Used chains that are written when the batch is published.
    deferred: Vec<UsedChain>,
    /// Position of the first chain in `deferred`.
    deferred_from: RingPosition,
    /// True if used descriptors are written before the batch is published.
    writes_immediately: bool,
    /// Index of the published position at the last check for an interrupt; `None` before the first
    /// check.
    checked: Option<u16>,
    /// True if notifications are enabled.
    armed: bool,
    inflight: Option<PackedInflight>,
    log: Option<RingLog>,
}

/// Second 64 bits of a used descriptor.
#[inline(always)]
fn used_word(mark: u16, id: u16, len: u32) -> u64 {
    let flags = if len > 0 { mark | flag::WRITE } else { mark };
    u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48
}

/// Reads a descriptor; `None` if its flags differ from those of an available descriptor, `mark`.
#[inline(always)]
fn read(desc: &[AtomicU64; 2], mark: u16) -> Option<Desc> {
    let [addr, rest] = desc;
    // Pairs with the driver's release of the flags of a chain's first descriptor: the chain is
    // visible before these flags.
    let rest = u64::from_le(rest.load(Acquire));
    if ((rest >> 48) as u16 ^ mark) & (flag::AVAIL | flag::USED) != 0 {
        return None;
    }
    Some(Desc::packed(u64::from_le(addr.load(Relaxed)), rest))
}

impl PackedDeviceQueue {
    /// Creates the device side of a ring. With an in-flight region, the ring resumes at the
    /// region's position, otherwise at the lower half of `base`. The upper half is ignored, because
    /// some frontends do not keep it.
    pub fn new(
        queue: u16,
        size: u16,
        tables: [AtomicTable; 3],
        features: Features,
        base: u32,
        inflight: Option<PackedInflight>,
    ) -> Result<Self, Broken> {
        let [ring, driver, device] = tables;
        let tables = [&ring, &driver, &device];
        // Require an alignment of 4 for the event suppression areas: each is accessed as one word.
        let fits = areas_fit(tables, at::areas(size), [16, 4, 4]);
        let (true, Some(desc)) =
            (fits && (1..=SIZE_MAX).contains(&size), Column::new(&ring, at::desc(0), size))
        else {
            return Err(no_ring(queue, "packed", size, tables));
        };
        let mut inflight = inflight;
        let base = match &mut inflight {
            Some(region) => region.recover(&ring, base as u16),
            None => base as u16,
        };
        let next = RingPosition::of_base(base.into());
        if next.at >= size {
            let what = format!("base {base:#x} of a packed ring of {size} descriptors");
            return Err(Broken { queue, what });
        }
        let mut ring = Self {
            queue,
            size,
            desc,
            ring,
            driver,
            device,
            event_idx: features.has(Features::EVENT_IDX),
            indirect: features.has(Features::INDIRECT_DESC),
            in_order: features.has(Features::IN_ORDER),
            next,
            published: next,
            first_used: None,
            deferred: Vec::with_capacity(size.into()),
            deferred_from: next,
            writes_immediately: inflight.is_none(),
            checked: None,
            armed: true,
            inflight,
            log: None,
        };
        ring.disarm();
        Ok(ring)
    }

    /// Sets the log of all further writes to the ring.
    pub fn set_log(&mut self, log: Option<RingLog>) {
        self.log = log;
        // Continue to defer while chains are deferred, because these must be written before later
        // ones.
        let unrecorded = self.inflight.is_none() && self.log.is_none();
        self.writes_immediately = unrecorded && self.deferred.is_empty();
    }

    #[cold]
    fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }

    /// Reads the descriptor at `place`; `None` if it is not available.
    #[inline(always)]
    fn read(&self, place: &RingPosition) -> Option<Desc> {
        read(self.desc.at(place.at), place.mark)
    }

    /// Skips descriptors that another device marked as used: a VMM discards frames of a guest while
    /// no device is connected. The driver treats these descriptors as used when it reaches them.
    /// Returns true if descriptors were skipped.
    #[cold]
    fn skip_foreign_used(&mut self) -> bool {
        let from = self.next;
        for _ in 0..self.size {
            let [_, rest] = self.desc.at(self.next.at);
            // Pairs with the release of the other device; no other word of the descriptor is read.
            let flags = (u64::from_le(rest.load(Acquire)) >> 48) as u16;
            let used = self.next.used();
            let is_batch_empty = self.first_used.is_none() && self.deferred.is_empty();
            // Stop unless another device wrote the descriptor: the batch must be empty, and the
            // flags must be those of a used descriptor of the current round.
            if !is_batch_empty || flags & (flag::AVAIL | flag::USED) != used {
                break;
            }
            self.next.advance(1, self.size);
            self.next.ahead = 0;
            self.published = self.next;
        }
        self.next != from
    }

    /// Writes a used descriptor; the first of a batch is kept in `first_used` instead.
    #[inline(always)]
    fn write(&mut self, at: u16, mark: u16, id: u16, len: u32) {
        let word = used_word(mark, id, len);
        match self.first_used {
            None => self.first_used = Some((at, word)),
            Some(_) => self.desc.at(at)[1].store(word.to_le(), Relaxed),
        }
    }

    #[cold]
    fn defer(&mut self, used: UsedChain) {
        if self.deferred.is_empty() {
            self.deferred_from = self.next;
        }
        self.deferred.push(used);
    }

    /// Writes the first descriptor of the batch, for which the driver polls.
    #[inline(always)]
    fn write_first(&mut self) {
        if let Some((at, word)) = self.first_used.take() {
            // Pairs with the driver's acquire of these flags: all other descriptors of the batch
            // and the payload are visible before these flags.
            self.desc.at(at)[1].store(word.to_le(), Release);
        }
    }

    /// Records the deferred chains in the in-flight region, writes them, and logs the writes.
    #[cold]
    #[inline(never)]
    fn write_deferred(&mut self) {
        if let Some(inflight) = &mut self.inflight {
            inflight.begin(&self.ring, &self.deferred, self.published.packed(), self.next.packed());
        }
        let mut place = self.deferred_from;
        for number in 0..self.deferred.len() {
            let UsedChain { id, slots, len } = self.deferred[number];
            self.write(place.at, place.used(), id, len);
            place.advance(slots, self.size);
        }
        self.write_first();
        if let Some(inflight) = &mut self.inflight {
            inflight.end();
        }
        self.deferred.clear();
        if let Some(log) = &self.log {
            let mut place = self.published;
            for _ in 0..self.next.ahead {
                log.descriptors(at::desc(place.at), 16);
                place.advance(1, self.size);
            }
        }
        self.writes_immediately = self.inflight.is_none() && self.log.is_none();
    }

    /// True if the driver requests an interrupt for the chains published since the last check.
    #[inline]
    fn needs_interrupt(&mut self) -> bool {
        // Pairs with the driver's full barrier between its event suppression and its second read of
        // the ring: our flags precede our read of the driver's request.
        fence(SeqCst);
        let new = self.published;
        let old = self.checked.replace(new.at);
        let word = u32::from_le(self.driver.word(0).load(Relaxed));
        let (event, flags) = (word as u16, (word >> 16) as u16 & 3);
        if flags != at::DESC || !self.event_idx {
            return flags != at::DISABLE;
        }
        let Some(mut old) = old else { return true };
        let mut at = event & 0x7fff;
        // Convert both positions to the current round: positions of the previous round become
        // negative (modulo 2^16).
        if new.at <= old {
            old = old.wrapping_sub(self.size);
        }
        if (event >> 15 != 0) != new.wrap() {
            at = at.wrapping_sub(self.size);
        }
        passes(at, new.at, old)
    }
}

impl DeviceRing for PackedDeviceQueue {
    type Place = RingPosition;

    fn queue(&self) -> u16 {
        self.queue
    }

    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn place(&self) -> RingPosition {
        self.next
    }

    #[inline]
    fn has_chain(&mut self) -> Result<bool, Broken> {
        if self.next.ahead >= self.size {
            return Ok(false);
        }
        Ok(self.read(&self.next).is_some()
            || self.skip_foreign_used() && self.read(&self.next).is_some())
    }

    #[inline(always)]
    fn next_head(&mut self) -> Result<Option<ChainHead>, Broken> {
        if self.next.ahead >= self.size {
            return Ok(None);
        }
        Ok(self.read(&self.next).map(|desc| ChainHead { id: desc.other, desc }))
    }

    #[inline(always)]
    fn head_at(&mut self, place: &mut RingPosition) -> Result<Option<ChainHead>, Broken> {
        if place.ahead >= self.size {
            return Ok(None);
        }
        let Some(desc) = self.read(place) else { return Ok(None) };
        place.advance(1, self.size);
        Ok(Some(ChainHead { id: desc.other, desc }))
    }

    #[inline(always)]
    fn heads(
        &mut self,
        place: &mut RingPosition,
        most: usize,
        mut take: impl FnMut(ChainHead) -> bool,
    ) -> Result<bool, Broken> {
        let (desc, size) = (self.desc.entries(), self.size);
        // Limit the loop to the ring once, instead of a check per descriptor.
        let there = most.min(size.saturating_sub(place.ahead).into());
        let RingPosition { mut at, mut mark, ahead } = *place;
        let mut taken = 0;
        let mut follows = there == most;
        while taken < there {
            let Some(found) = read(&desc[usize::from(at)], mark) else {
                follows = false;
                break;
            };
            if !take(ChainHead { id: found.other, desc: found }) {
                follows = true;
                break;
            }
            taken += 1;
            at += 1;
            if at >= size {
                cold();
                at = 0;
                mark ^= flag::AVAIL | flag::USED;
            }
        }
        *place = RingPosition { at, mark, ahead: ahead + taken as u16 };
        Ok(follows)
    }

    #[inline(never)]
    fn whole_chain(
        &self,
        head: &ChainHead,
        place: &mut RingPosition,
        memory: &MemoryMap,
        list: &mut Vec<BufferElement>,
    ) -> Result<Chain, Broken> {
        let mut builder = Builder::new(self.queue, head.id, list);
        let (mut desc, mut slots) = (head.desc, 1);
        loop {
            // Take the id of every descriptor: the id of the chain is in its last one.
            builder.set_id(desc.other);
            if desc.flags & flag::INDIRECT != 0 {
                if !self.indirect {
                    return Err(self.broken("INDIRECT, which was not negotiated".to_owned()));
                }
                builder.add_table(&desc, Links::Order, memory)?;
                return Ok(builder.done(slots));
            }
            builder.add(&desc)?;
            if desc.flags & flag::NEXT == 0 {
                return Ok(builder.done(slots));
            }
            if place.ahead >= self.size {
                let size = self.size;
                return Err(self.broken(format!("a chain of more than the queue's {size}")));
            }
            let Some(next) = self.read(place) else {
                let at = place.at;
                return Err(
                    self.broken(format!("a chain continues at {at}, which is not available"))
                );
            };
            desc = next;
            place.advance(1, self.size);
            slots += 1;
        }
    }

    #[inline(always)]
    fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        if self.writes_immediately {
            self.write(self.next.at, self.next.used(), id, len);
        } else {
            self.defer(UsedChain { id, slots, len });
        }
        self.next.advance(slots, self.size);
    }

    #[inline(always)]
    fn give_back_all(&mut self, mut chains: impl Iterator<Item = UsedChain>) {
        if !self.writes_immediately {
            return chains.for_each(|UsedChain { id, slots, len }| self.give_back(id, slots, len));
        }
        if self.first_used.is_none() {
            let Some(UsedChain { id, slots, len }) = chains.next() else { return };
            self.give_back(id, slots, len);
        }
        let (desc, size, mut next) = (self.desc.entries(), self.size, self.next);
        for UsedChain { id, slots, len } in chains {
            let word = used_word(next.used(), id, len);
            desc[usize::from(next.at)][1].store(word.to_le(), Relaxed);
            next.advance(slots, size);
        }
        self.next = next;
    }

    #[inline]
    fn give_back_many(&mut self, id: u16, slots: u16, _chains: u16) -> bool {
        // Write an entry for each chain if chains are recorded or logged.
        let may = self.in_order && self.writes_immediately;
        if may {
            self.write(self.next.at, self.next.used(), id, 0);
            self.next.advance(slots, self.size);
        }
        may
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.next.ahead == 0 {
            return false;
        }
        if self.writes_immediately {
            self.write_first();
        } else {
            self.write_deferred();
        }
        self.next.ahead = 0;
        self.published = self.next;
        self.needs_interrupt()
    }

    fn arm(&mut self, place: RingPosition) -> Result<bool, Broken> {
        let flags = if self.event_idx { at::DESC } else { at::ENABLE };
        let word = u32::from(place.packed()) | u32::from(flags) << 16;
        self.device.word(0).store(word.to_le(), Relaxed);
        self.armed = true;
        // Pairs with the driver's full barrier between its flags and its read of our event
        // suppression: our request precedes our second read of the ring.
        fence(SeqCst);
        Ok(place.ahead < self.size && self.read(&place).is_some())
    }

    #[inline]
    fn disarm(&mut self) {
        if self.armed {
            let word = u32::from(at::DISABLE) << 16;
            self.device.word(0).store(word.to_le(), Relaxed);
        }
        self.armed = false;
    }

    fn base(&self) -> u32 {
        let half = u32::from(self.published.packed());
        half << 16 | half
    }
}
