//! Selection of the buffers of an RX queue: size, headroom and layout in pages.

mod setting;
mod stats;

use std::num::NonZeroU32;
use std::time::Duration;

use mqnet_pktbuf::{Frag, PagePool, PoolStats};
use mqnet_sysio::clock;
use mqnet_virtio::net::HDR_LEN;
use mqnet_virtio::rxbuf::layout::{Cause, Layout, Measured, RequestedLayout};
use mqnet_virtio::rxbuf::sizes::{self, Average, BufferMode, MERGEABLE_XDP_ROOM, SMALL_FRAME};

pub(crate) use setting::{Setting, SettingCell};
pub use stats::RxBufferStats;

/// Number of refills between two decisions of a queue with the setting `auto`.
const DECIDE_EVERY: u32 = 64;
/// Interval of timed refills, in refills.
const TIME_EVERY: u32 = 16;
/// Number of decisions for which whole pages are not tried again after they were slower.
const RETRY_AFTER: u32 = 64;

/// Buffer, and the offset in it at which the device begins to write.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) frag: Frag,
    pub(crate) front: u32,
}

/// Buffers of one queue: their pool and their shape.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) pool: PagePool,
    mode: BufferMode,
    min: u32,
    ring: u16,
    pub(crate) average: Average,
    layout: Option<Layout>,
    setting: Setting,
    /// Size and headroom of the buffers in the current shape.
    size: u32,
    headroom: u32,
    /// Number of the current shape. Only buffers of the current shape are reused without the
    /// pool.
    generation: NonZeroU32,
    /// Number of whole pages that the current trial may still take.
    trial: u32,
    taken: u64,
    /// Number of buffers that were reused without the pool.
    reused: u64,
    /// Values at the last decision: pool statistics, number of taken buffers, foreign returns.
    last_decision: (PoolStats, u64, u64),
    until_decision: u32,
    /// Number of remaining decisions for which whole pages are not tried again.
    retry_after: u32,
    refills: u32,
    /// Start of the refill that is timed, and `taken` at that time.
    since: Option<(Duration, u64)>,
    refill_ns: [u32; 2],
    clock: fn() -> Duration,
}

impl Buffers {
    pub(crate) fn new(pool: PagePool, mode: BufferMode, mtu_max: u32, ring: u16) -> Self {
        Self {
            last_decision: (pool.stats(), 0, 0),
            pool,
            mode,
            min: sizes::mergeable_min(mtu_max, ring),
            ring,
            average: Average::default(),
            layout: None,
            setting: Setting::default(),
            size: 0,
            headroom: 0,
            generation: NonZeroU32::MIN,
            trial: 0,
            taken: 0,
            reused: 0,
            until_decision: 0,
            retry_after: 0,
            refills: 0,
            since: None,
            refill_ns: [0; 2],
            clock: clock::monotonic,
        }
    }

    /// Number of the current shape of buffers.
    #[inline]
    pub(crate) fn generation(&self) -> NonZeroU32 {
        self.generation
    }

    /// Counts buffers that were reused.
    pub(crate) fn count_reused(&mut self, buffers: u16) {
        self.reused += u64::from(buffers);
    }

    /// Size of a buffer that shares its page.
    fn part(&self) -> u32 {
        let page = self.pool.page_size();
        match self.mode {
            BufferMode::Small => sizes::small(false),
            BufferMode::Mergeable => sizes::mergeable(self.average.get(), self.min, page, false),
            BufferMode::Big => page,
        }
    }

    /// Begins a refill: follows the setting, and decides on the shape of the buffers.
    pub(crate) fn begin_refill(&mut self, setting: Setting, stats: &RxBufferStats) {
        let is_changed = self.setting != setting || self.layout.is_none();
        let rolled_back = self.layout.is_some_and(|l| matches!(l.cause, Cause::RolledBack { .. }));
        self.setting = setting;
        if is_changed || !rolled_back {
            self.decide(is_changed, stats);
        }
        self.until_decision = self.until_decision.checked_sub(1).unwrap_or(DECIDE_EVERY);
        self.resize(stats);
        self.refills = self.refills.wrapping_add(1);
        let timed = self.refills.is_multiple_of(TIME_EVERY);
        self.since = timed.then(|| ((self.clock)(), self.taken));
    }

    /// Ends a refill: publishes statistics and, for a timed refill, the time per buffer.
    pub(crate) fn end_refill(&mut self, stats: &RxBufferStats) {
        stats.counters.taken.set(self.taken + self.reused);
        stats.applied.set(self.setting.number.into());
        stats.publish(&self.pool);
        let Some((since, before)) = self.since.take() else { return };
        let (took, buffers) = ((self.clock)().saturating_sub(since), self.taken - before);
        // With fewer buffers, the cost of reading the clock would dominate.
        if buffers >= 16 {
            let full = usize::from(self.layout.is_some_and(|layout| layout.full));
            let ns = (took.as_nanos() / u128::from(buffers)).clamp(1, 1 << 20) as u32;
            let old = self.refill_ns[full];
            self.refill_ns[full] = if old == 0 { ns } else { (old * 7 + ns) / 8 };
            let shown = [&stats.counters.refill_frag_ns, &stats.counters.refill_full_ns][full];
            shown.set(self.refill_ns[full].into());
        }
    }

    fn decide(&mut self, is_changed: bool, stats: &RxBufferStats) {
        let Setting { requested, xdp, .. } = self.setting;
        let due = self.until_decision == 0;
        if !is_changed
            && requested == RequestedLayout::Auto
            && !due
            && self.layout.is_none_or(|l| !l.cause.is_forced())
        {
            return;
        }
        let measured = self.measure(due, stats);
        let before = self.layout;
        let page = self.pool.page_size();
        let layout = Layout::decide(requested, (self.part(), page), xdp, &measured, before);
        if matches!(layout.cause, Cause::Dear { .. }) {
            let is_new = before.is_none_or(|before| before.full);
            self.retry_after =
                if is_new { RETRY_AFTER } else { self.retry_after.saturating_sub(u32::from(due)) };
        }
        if layout == (Layout { full: true, cause: Cause::Asked }) && before != Some(layout) {
            self.trial = self.ring.into();
        }
        stats.set_reason(layout);
        self.layout = Some(layout);
    }

    fn measure(&mut self, due: bool, stats: &RxBufferStats) -> Measured {
        let (refill_ns, resting) = (self.refill_ns, self.retry_after > 0);
        if !due {
            return Measured { refill_ns, resting, ..Measured::default() };
        }
        let now = (self.pool.stats(), self.taken, self.pool.foreign());
        let before = std::mem::replace(&mut self.last_decision, now);
        // Count all taken buffers as returned; those in flight are few.
        let (freed, foreign) = (now.1 - before.1, now.2 - before.2);
        let opened = |s: &PoolStats| s.alloc_fast + s.alloc_refill + s.alloc_slow;
        let pages = opened(&now.0) - opened(&before.0);
        // Keep the former value if no page was taken.
        if let Some(used) = (freed * 100).checked_div(pages) {
            stats.counters.per_page_used.set(used);
        }
        Measured {
            freed,
            foreign,
            outstanding: self.pool.outstanding(),
            pages: self.pool.pages(),
            refill_ns,
            resting,
        }
    }

    /// Applies the sizes of the selected layout; a change begins a new shape.
    fn resize(&mut self, stats: &RxBufferStats) {
        let page = self.pool.page_size();
        let full = self.layout.is_some_and(|layout| layout.full);
        let size = if full { page } else { self.part() };
        let headroom = sizes::headroom(self.setting.xdp);
        if (size, headroom) == (self.size, self.headroom) {
            return;
        }
        // After 2^32 - 1 shapes the number stays, and later shapes cannot be distinguished.
        self.generation = self.generation.saturating_add(1);
        (self.size, self.headroom) = (size, headroom);
        stats.counters.per_page.set(u64::from(page / self.size));
        stats.counters.size.set(u64::from(self.size));
        stats.counters.headroom.set(u64::from(self.headroom));
    }

    /// Takes a buffer of at least the selected size; `None` without memory. The length of the
    /// fragment is the true size of the buffer.
    #[inline]
    pub(crate) fn take(&mut self, stats: &RxBufferStats) -> Option<Buffer> {
        let frag = match self.pool.alloc_frag(self.size) {
            Some(frag) => frag,
            None => self.roll_back(stats)?,
        };
        self.taken += 1;
        self.trial = self.trial.saturating_sub(1);
        Some(Buffer { frag, front: self.headroom })
    }

    /// Handles a lack of pages. During a trial of whole pages, ends the trial and returns a buffer
    /// in part of a page. `None` without a trial, with an XDP program, or without any memory.
    #[cold]
    fn roll_back(&mut self, stats: &RxBufferStats) -> Option<Frag> {
        stats.counters.alloc_fail.add(1);
        if std::mem::take(&mut self.trial) == 0 || self.setting.xdp {
            return None;
        }
        let layout = Layout { full: false, cause: Cause::RolledBack { pages: self.pool.pages() } };
        stats.set_reason(layout);
        self.layout = Some(layout);
        self.resize(stats);
        self.pool.alloc_frag(self.size)
    }

    /// Length of a buffer as the device sees it, with the header.
    #[inline]
    pub(crate) fn shown(&self, buffer: &Buffer) -> u32 {
        let room = buffer.frag.len() - buffer.front;
        match self.mode {
            BufferMode::Small => HDR_LEN + SMALL_FRAME,
            BufferMode::Mergeable if self.setting.xdp => room.min(self.size - MERGEABLE_XDP_ROOM),
            BufferMode::Mergeable | BufferMode::Big => room,
        }
    }

    /// Device address of a buffer; `None` for a pool without device mapping.
    #[inline]
    pub(crate) fn address(&self, buffer: &Buffer) -> Option<u64> {
        Some(self.pool.device_address(&buffer.frag)? + u64::from(buffer.front))
    }
}

#[cfg(test)]
mod tests;
