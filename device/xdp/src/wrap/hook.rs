//! A program attached to an RX queue.

mod received;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mqnet_netdev::limits::{BURST_FRAMES, room_for};
use mqnet_netdev::wrap::capture::CaptureTap;
use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Offloads, OwningRx, Queue, QueuePairStats, Recv, SyscallRx,
    WakeSource,
};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

use super::OwnedFrame;
use super::prepare::{Large, Received, needed};
use super::reinject::ReinjectTx;
use mqnet_ebpf::{HEADROOM, Origin, Program, XdpAction};

/// Tailroom of a frame in bytes, for a program that extends the frame.
const TAILROOM: usize = 256;
/// Maximum number of frames and segments that a poll processes, so that other lanes can run.
const DROPS_MAX: usize = 16 * BURST_FRAMES;

/// Configuration of a program that is attached to a queue.
pub struct HookConfig {
    /// Program to run.
    pub program: Arc<Program>,
    /// Origin of the frames, as reported to the program.
    pub origin: Origin,
    /// Interface index, for XDP_REDIRECT, of the netdev at the other end of the lane.
    pub other: u32,
    /// Statistics of the channel.
    pub stats: Arc<QueuePairStats>,
    /// Pages for frames, allocated before a worker uses the hook.
    pub pages: Pages,
    /// Largest frame of the plan.
    pub frame_max: u32,
    /// Offloads that the sink of passed frames supports.
    pub offloads: Offloads,
    /// Offloads that the sink of reinjected frames supports.
    pub tx_offloads: Offloads,
    /// Sending end of the reinjection path.
    pub outlet: ReinjectTx,
    /// State shared with the control thread.
    pub hooked: Hooked,
}

/// Pages for a hook. Allocating them takes too long for a worker.
pub struct Pages {
    free: Vec<Box<[u8]>>,
    len: usize,
}

impl Pages {
    /// Allocates pages for frames of up to `frame_max` bytes.
    pub fn new(frame_max: u32) -> Self {
        let len = HEADROOM + room_for(frame_max) as usize + TAILROOM;
        let page = || vec![0; len].into_boxed_slice();
        Self { free: (0..2 * BURST_FRAMES).map(|_| page()).collect(), len }
    }
}

/// State of a hook or a receiving end, shared with the control thread. A lane must not be removed
/// while frames wait in it.
#[derive(Clone, Debug, Default)]
pub struct Hooked(Arc<HookState>);

#[derive(Debug, Default)]
struct HookState {
    waiting: AtomicU32,
    gone: AtomicBool,
    closing: AtomicBool,
    /// Number of frames consumed since the last `count_taken`.
    taken: AtomicU32,
    more: AtomicBool,
}

impl Hooked {
    /// Number of waiting frames.
    pub fn waiting(&self) -> u32 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Starts (true) or cancels (false) the close of the lane. A closing lane still returns waiting
    /// frames. A hook accepts no new frames, and a receiving end a bounded number: a lane with a
    /// sink slower than its source would otherwise never drain.
    pub fn close(&self, on: bool) {
        self.0.closing.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed)
    }

    /// Number of frames consumed since the last call. A hook counts all frames of its queue, a
    /// receiving end the reinjected frames.
    pub fn count_taken(&self) -> u32 {
        self.0.taken.swap(0, Ordering::Relaxed)
    }

    /// True if the last poll did not empty the queue, even if it returned no frame.
    pub fn has_more(&self) -> bool {
        self.0.more.load(Ordering::Relaxed)
    }

    fn set_more(&self, more: bool) {
        self.0.more.store(more, Ordering::Relaxed);
    }

    pub(super) fn note_taken(&self, frames: usize) {
        // Add without an atomic read-modify-write: `count_taken` is called on the same thread.
        let before = self.0.taken.load(Ordering::Relaxed);
        self.0.taken.store(before.wrapping_add(frames as u32), Ordering::Relaxed);
    }

    /// True until the hook or receiving end is dropped.
    pub fn is_on(&self) -> bool {
        !self.0.gone.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, frames: usize) {
        self.0.waiting.store(frames as u32, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.set(0);
        self.0.gone.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Hook {
    program: Option<Arc<Program>>,
    origin: Origin,
    other: u32,
    stats: Arc<QueuePairStats>,
    frame_max: u32,
    offloads: Offloads,
    tx_offloads: Offloads,
    outlet: Option<ReinjectTx>,
    hooked: Hooked,
    /// GSO frame with segments that the program has not processed. Later frames wait in the queue,
    /// so that a peer cannot occupy pages without limit.
    received: Option<Received>,
    /// Number of frames and segments that the current poll may still process.
    left: usize,
    ready: VecDeque<OwnedFrame>,
    free: Vec<Box<[u8]>>,
    page_len: usize,
    /// Taps on dropped frames.
    pub(super) watchers: Vec<CaptureTap>,
}

impl Hook {
    pub(super) fn new(config: HookConfig) -> Self {
        Self {
            program: Some(config.program),
            origin: config.origin,
            other: config.other,
            stats: config.stats,
            frame_max: config.frame_max,
            offloads: config.offloads,
            tx_offloads: config.tx_offloads,
            outlet: Some(config.outlet),
            hooked: config.hooked,
            received: None,
            left: DROPS_MAX,
            ready: VecDeque::with_capacity(BURST_FRAMES + 1),
            free: config.pages.free,
            page_len: config.pages.len,
            watchers: Vec::new(),
        }
    }

    /// Adds a frame that is returned before received frames and bypasses the program.
    pub(super) fn add_held(&mut self, bytes: &[u8], hdr: VnetHdr) {
        let mut page = self.page();
        let room = page.len() - HEADROOM;
        let len = bytes.len().min(room);
        page[HEADROOM..][..len].copy_from_slice(&bytes[..len]);
        self.ready.push_back(OwnedFrame { page, start: HEADROOM as u32, len: len as u32, hdr });
        self.publish_waiting();
    }

    /// Detaches the program; later frames pass unchanged.
    pub(super) fn detach(&mut self) {
        self.program = None;
        self.outlet = None;
        // Clear the flag: without a program, the queue is polled until it is empty.
        self.hooked.set_more(false);
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.received.is_none()
    }

    /// Number of waiting frames, including the unprocessed segments of a GSO frame.
    fn waiting(&self) -> usize {
        self.ready.len() + self.received.iter().map(Received::frames).sum::<usize>()
    }

    fn publish_waiting(&self) {
        self.hooked.set(self.waiting());
    }

    /// True if frames wait, or if the last poll did not empty the queue and the lane is not
    /// closing.
    fn has_work(&self) -> bool {
        !self.is_empty() || (self.hooked.has_more() && !self.hooked.is_closing())
    }

    /// True if the program is detached and no frame waits.
    pub(super) fn is_finished(&self) -> bool {
        self.program.is_none() && self.is_empty()
    }

    /// Removes the waiting frames of a detached program; empty if the program is attached.
    pub(super) fn take_passed(&mut self) -> Vec<(Vec<u8>, VnetHdr)> {
        if self.program.is_some() {
            return Vec::new();
        }
        let mut passed = Vec::new();
        // Process in bursts to limit the pages in use: a page is much larger than a segment.
        while !self.is_empty() {
            self.left = DROPS_MAX;
            self.process(BURST_FRAMES);
            while let Some(owned) = self.ready.pop_front() {
                passed.push((owned.bytes().to_vec(), owned.hdr));
                self.free(owned.page);
            }
        }
        self.hooked.set(0);
        passed
    }

    /// True if the current poll may receive another frame from the queue.
    fn accepts(&self, budget: usize) -> bool {
        self.received.is_none() && self.ready.len() < budget && self.left > 0
    }

    fn page(&mut self) -> Box<[u8]> {
        if let Some(page) = self.free.pop() {
            return page;
        }
        // Skip pages of another length: a lane that replaced another also returns the pages of that
        // lane.
        let back = self.outlet.as_mut().and_then(ReinjectTx::page);
        let back = back.filter(|page| page.len() == self.page_len);
        // Allocate a page in place of each page that is on the reinjection path. The capacity of
        // the path limits the number of these pages.
        back.unwrap_or_else(|| vec![0; self.page_len].into_boxed_slice())
    }

    fn free(&mut self, page: Box<[u8]>) {
        if self.free.len() < 2 * BURST_FRAMES {
            self.free.push(page);
        }
    }

    fn drop(&mut self, page: Box<[u8]>, (start, len): (usize, usize), reason: DropReason) {
        if let Some(frame) = page.get(start..start + len) {
            self.watchers.iter_mut().for_each(|tap| tap.dropped(reason, frame));
        }
        self.stats.rx.xdp.drops.add(1);
        self.stats.rx.drops.count(reason, 1);
        self.free(page);
    }

    /// Runs the program on the frame after the headroom of its page. Returns true if the frame was
    /// reinjected. `large`: properties of a GSO frame before the run.
    fn decide(&mut self, mut page: Box<[u8]>, len: u32, large: Option<Large>) -> bool {
        let Some(program) = &self.program else { return false };
        self.stats.rx.xdp.packets.add(1);
        let verdict = program.run(&mut page, HEADROOM, len as usize, self.origin);
        let action = match verdict.action {
            XdpAction::Redirect(to) if to == self.origin.ifindex => XdpAction::Tx,
            action => action,
        };
        let is_redirect = matches!(verdict.action, XdpAction::Redirect(_));
        let place = (verdict.start, verdict.len);
        match action {
            XdpAction::Drop => {
                self.drop(page, place, DropReason::XdpDrop);
                return false;
            }
            XdpAction::Aborted => {
                self.drop(page, place, DropReason::XdpAborted);
                return false;
            }
            XdpAction::Redirect(to) if to != self.other => {
                self.drop(page, place, DropReason::XdpElsewhere);
                return false;
            }
            _ => {}
        }
        let len = verdict.len as u32;
        if len > self.frame_max {
            self.drop(page, place, DropReason::TooLong);
            return false;
        }
        let frame = &mut page[verdict.start..][..verdict.len];
        let hdr = large.map_or(Some(VnetHdr::default()), |large| large.describe(frame));
        let goes = |hdr: &VnetHdr| action == XdpAction::Tx || self.offloads.covers(*hdr);
        let Some(hdr) = hdr.filter(goes) else {
            self.drop(page, place, DropReason::BadHeader);
            return false;
        };
        let owned = OwnedFrame { page, start: verdict.start as u32, len, hdr };
        let xdp = &self.stats.rx.xdp;
        if action != XdpAction::Tx {
            xdp.redirects.add(is_redirect.into());
            self.ready.push_back(owned);
            return false;
        }
        if !self.tx_offloads.has(needed(hdr)) {
            self.drop(owned.page, place, DropReason::XdpUnsent);
            return false;
        }
        let sent = self.outlet.as_mut().map(|outlet| outlet.send(owned));
        match sent {
            Some(Ok(())) => {
                xdp.sent.add(1);
                xdp.tx.add((!is_redirect).into());
                xdp.redirects.add(is_redirect.into());
                true
            }
            Some(Err(page)) => {
                self.drop(page, place, DropReason::XdpUnsent);
                false
            }
            None => false,
        }
    }

    fn wake(&self) {
        if let Some(outlet) = &self.outlet {
            outlet.wake();
        }
    }

    fn show<'a>(&'a self, burst: &mut Burst<'a>, budget: usize) {
        for owned in self.ready.iter().take(budget) {
            burst.push(owned.hdr, owned.len, Span::of(owned.bytes()));
        }
    }

    fn release(&mut self, frames: usize) {
        for _ in 0..frames {
            if let Some(owned) = self.ready.pop_front() {
                self.free(owned.page);
            }
        }
        self.publish_waiting();
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.hooked.end();
        if !self.is_empty() {
            self.stats.rx.drops.count(DropReason::LinkClosed, self.waiting() as u64);
        }
    }
}

/// Hook of an owning queue.
pub(super) struct OwningHook {
    pub(super) inner: Box<dyn OwningRx>,
    pub(super) hook: Hook,
    /// True if the last peek returned frames in the inner queue's memory.
    peeked_inner: bool,
}

impl OwningHook {
    pub(super) fn new(inner: Box<dyn OwningRx>, hook: Hook) -> Self {
        Self { inner, hook, peeked_inner: false }
    }

    /// Copies frames of the queue into pages while the hook accepts them, and runs the program on
    /// each. Returns the number of frames consumed.
    fn receive(&mut self, budget: usize) -> Result<usize, Fault> {
        let room = budget - self.hook.ready.len();
        let Self { inner, hook, .. } = self;
        let mut sent = false;
        let n = {
            let (mut burst, mut taken) = (Burst::new(), 0);
            inner.peek(&mut burst, room)?;
            for frame in burst.frames() {
                if !hook.accepts(budget) {
                    break;
                }
                taken += 1;
                let mut page = hook.page();
                let most = page.len() - HEADROOM;
                let mut to = SpanMut::of(&mut page[HEADROOM..]);
                let mut done = 0;
                for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                    done += to.copy_from(*piece);
                    to = to.split_at(piece.len()).1;
                }
                if done != frame.len as usize || done > most {
                    hook.left -= 1;
                    hook.drop(page, (HEADROOM, done.min(most)), DropReason::TooLong);
                    continue;
                }
                sent |= hook.take(page, frame.len, frame.hdr, budget);
            }
            taken
        };
        inner.release(n)?;
        hook.hooked.note_taken(n);
        if sent {
            hook.wake();
        }
        Ok(n)
    }
}

impl Queue for OwningHook {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        if self.hook.has_work() { Ok(Armed::MoreWork) } else { self.inner.arm(need) }
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.inner.event()
    }

    fn park(&mut self) {
        self.inner.park();
    }

    fn prefetch(&self) {
        self.inner.prefetch();
    }
}

impl OwningRx for OwningHook {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.peeked_inner = self.hook.program.is_none() && self.hook.is_empty();
        if self.peeked_inner {
            return self.inner.peek(burst, budget);
        }
        self.hook.resume(budget);
        if self.hook.program.is_some() && !self.hook.hooked.is_closing() {
            let more = loop {
                if !self.hook.accepts(budget) {
                    break true;
                }
                if self.receive(budget)? == 0 {
                    break false;
                }
                if !self.hook.is_empty() {
                    break true;
                }
            };
            self.hook.hooked.set_more(more);
        }
        self.hook.publish_waiting();
        self.hook.show(burst, budget);
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        if self.peeked_inner {
            self.hook.hooked.note_taken(frames);
            return self.inner.release(frames);
        }
        self.hook.release(frames);
        Ok(())
    }
}

/// Hook of a system-call queue.
pub(super) struct SyscallHook {
    pub(super) inner: Box<dyn SyscallRx>,
    pub(super) hook: Hook,
}

impl SyscallHook {
    pub(super) fn new(inner: Box<dyn SyscallRx>, hook: Hook) -> Self {
        Self { inner, hook }
    }

    fn receive(&mut self, budget: usize) -> Result<(), Fault> {
        let (mut seen, mut sent, mut more) = (0, false, true);
        let result = loop {
            if !self.hook.accepts(budget) {
                break Ok(());
            }
            let mut page = self.hook.page();
            let end = page.len() - TAILROOM;
            let room = SpanMut::of(&mut page[HEADROOM..end]);
            match self.inner.recv(&mut Segments::new(room, SpanMut::empty())) {
                Ok(Recv::Frame(frame)) => {
                    sent |= self.hook.take(page, frame.len, frame.hdr, budget);
                }
                Ok(Recv::Dropped { .. }) => {
                    self.hook.left -= 1;
                    self.hook.free(page);
                }
                Ok(Recv::Empty) => {
                    self.hook.free(page);
                    more = false;
                    break Ok(());
                }
                Err(fault) => {
                    self.hook.free(page);
                    break Err(fault);
                }
            }
            seen += 1;
        };
        self.hook.hooked.note_taken(seen);
        self.hook.hooked.set_more(more);
        if sent {
            self.hook.wake();
        }
        result
    }
}

impl Queue for SyscallHook {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        if self.hook.has_work() { Ok(Armed::MoreWork) } else { self.inner.arm(need) }
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.inner.event()
    }

    fn park(&mut self) {
        self.inner.park();
    }

    fn prefetch(&self) {
        self.inner.prefetch();
    }
}

impl OwningRx for SyscallHook {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.hook.resume(budget);
        // Receive nothing while a detached program has waiting frames, so that the wrapper can be
        // removed soon.
        let takes = self.hook.program.is_some() || self.hook.is_empty();
        if takes && !self.hook.hooked.is_closing() {
            self.receive(budget)?;
        }
        self.hook.publish_waiting();
        self.hook.show(burst, budget);
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.hook.release(frames);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
