//! Loopback function: frames sent on a channel arrive on the same channel.
//!
//! The TX queue owns a page pool; the RX queue returns pages on its own thread. The queues have no
//! descriptor that could wake a worker, so that workers poll them always.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_pktbuf::{Page, PagePool, PoolConfig, Returner};
use mqnet_rings::spsc::{self, SpscConsumer, SpscProducer};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::Layer;

use crate::limits::{BURST_FRAMES, CHANNELS_MAX, FRAME_MAX, MTU_MAX, room_for};
use crate::{
    Armed, Burst, Caps, Channel, Fault, FrameMeta, Function, Offloads, OpenChannelsError, OwningRx,
    OwningTx, Plan, Queue, QueuePairStats, Rx, Tx, WakeSource,
};

/// Capacity of a channel in frames.
const DEPTH: u32 = 256;

/// The loopback function.
#[derive(Debug)]
pub struct Loopback {
    /// Layer of the other side.
    layer: Layer,
    stats: Vec<Arc<QueuePairStats>>,
}

impl Loopback {
    /// Creates a loopback function with `channels` channels (1..=64).
    pub fn new(channels: u16) -> Self {
        let channels = channels.clamp(1, CHANNELS_MAX);
        Self { layer: Layer::Ethernet, stats: (0..channels).map(|_| Arc::default()).collect() }
    }
}

impl Function for Loopback {
    fn name(&self) -> &str {
        "loop:"
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: self.layer,
            channels: self.stats.len() as u16,
            wanted: None,
            mtu: None,
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        }
    }

    fn set_partner(&mut self, partner: &Caps) {
        self.layer = partner.layer;
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(self.name(), self.stats.len() as u16)?;
        let stats = self.stats.iter().take(usize::from(plan.channels));
        stats.map(|stats| open_channel(plan, stats)).collect()
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }
}

fn open_channel(plan: &Plan, stats: &Arc<QueuePairStats>) -> Result<Channel, OpenChannelsError> {
    let config = PoolConfig {
        pages: DEPTH,
        page_size: room_for(plan.frame_max).next_power_of_two().max(4096),
        ring_size: DEPTH,
        ..PoolConfig::default()
    };
    let error = |e: mqnet_pktbuf::PoolError| OpenChannelsError {
        function: "loop:".into(),
        what: e.to_string(),
    };
    let pool = PagePool::new(&config).map_err(error)?;
    let (tx, rx) = spsc::ring(DEPTH);
    let returner = pool.returner();
    let rx = LoopRx { ring: rx, returner, waiting: ArrayVec::new(), stats: stats.clone() };
    let tx = LoopTx { pool, ring: tx, reserved: None, held: None, stats: stats.clone() };
    Ok(Channel { rx: Rx::Owning(Box::new(rx)), tx: Tx::Owning(Box::new(tx)) })
}

struct LoopTx {
    pool: PagePool,
    ring: SpscProducer<(Page, FrameMeta)>,
    reserved: Option<Page>,
    /// Frames held back from the RX queue; `None` unless [`hold`](OwningTx::hold) is on.
    held: Option<VecDeque<(Page, FrameMeta)>>,
    stats: Arc<QueuePairStats>,
}

impl LoopTx {
    fn send(&mut self, page: Page, frame: FrameMeta) {
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(u64::from(frame.len));
        if let Some(held) = &mut self.held {
            return held.push_back((page, frame));
        }
        // Expect space: the ring has as many entries as the pool has pages.
        if let Err((page, _)) = self.ring.push_one((page, frame)) {
            self.pool.free(page);
        }
    }
}

impl Queue for LoopTx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningTx for LoopTx {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let Some(mut page) = self.pool.alloc() else { break };
            let mut room = self.pool.span_mut(&mut page);
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let n = room.copy_from(*piece);
                room = room.split_at(n).1;
            }
            self.send(page, FrameMeta { len: frame.len, hdr: frame.hdr });
            taken += 1;
        }
        self.stats.tx.copies.add(taken as u64);
        Ok(taken)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        if self.reserved.is_none() {
            self.reserved = self.pool.alloc();
        }
        let Self { reserved: Some(page), pool, .. } = self else { return Ok(None) };
        let head = pool.span_mut(page).split_at(max as usize).0;
        Ok(Some(Segments::new(head, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        if let Some(page) = self.reserved.take() {
            self.send(page, *frame);
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        if on {
            self.held.get_or_insert_with(|| VecDeque::with_capacity(DEPTH as usize));
        } else {
            for (page, frame) in self.held.take().into_iter().flatten() {
                if let Err((page, _)) = self.ring.push_one((page, frame)) {
                    self.pool.free(page);
                }
            }
        }
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        // Count pages, not entries: the RX queue takes frames from the ring before it releases
        // them.
        self.pool.drain();
        let own =
            u32::from(self.reserved.is_some()) + self.held.as_ref().map_or(0, VecDeque::len) as u32;
        Ok(self.pool.outstanding() == own)
    }
}

impl Drop for LoopTx {
    fn drop(&mut self) {
        let held = self.held.take().into_iter().flatten().map(|(page, _)| page);
        for page in self.reserved.take().into_iter().chain(held) {
            self.pool.free(page);
        }
    }
}

struct LoopRx {
    ring: SpscConsumer<(Page, FrameMeta)>,
    returner: Returner,
    waiting: ArrayVec<(Page, FrameMeta), BURST_FRAMES>,
    stats: Arc<QueuePairStats>,
}

impl Queue for LoopRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for LoopRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        while !self.waiting.is_full() {
            let Some(frame) = self.ring.pop_one() else { break };
            self.waiting.push(frame);
        }
        let Self { waiting, returner, .. } = self;
        for (page, frame) in waiting.iter().take(budget) {
            let bytes: Span<'a> = returner.span(page).first(frame.len as usize);
            burst.push(frame.hdr, frame.len, bytes);
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        for (page, frame) in self.waiting.drain(..frames) {
            self.stats.rx.packets.add(1);
            self.stats.rx.bytes.add(u64::from(frame.len));
            self.returner.free_page(page);
        }
        self.returner.flush();
        Ok(())
    }
}

impl Drop for LoopRx {
    /// Returns the pages of waiting frames.
    fn drop(&mut self) {
        let waiting = self.waiting.drain(..).chain(std::iter::from_fn(|| self.ring.pop_one()));
        for (page, _) in waiting {
            self.returner.free_page(page);
        }
    }
}
