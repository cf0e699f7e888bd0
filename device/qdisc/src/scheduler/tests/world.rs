//! A scheduler with a page pool and a virtual clock.

use mqnet_netdev::TxStats;
use mqnet_pktbuf::{PagePool, PoolConfig};
use mqnet_shmem::Span;
use mqnet_wire::{FlowKeys, Layer, VnetFields, VnetHdr};

use crate::{Blueprint, Cx, Enqueued, Filters, Handle, Meta, QueuedPacket, Scheduler};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MTU: u32 = 1514;

pub(super) struct World {
    pub(super) pool: PagePool,
    pub(super) stats: TxStats,
    pub(super) s: Scheduler,
    pub(super) now: u64,
    pub(super) open: u64,
    next_id: u64,
}

/// Properties of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) flow: u32,
    pub(super) channel: u16,
    pub(super) priority: u32,
    pub(super) len: u32,
}

impl Spec {
    pub(super) fn new(flow: u32, len: u32) -> Self {
        Self { flow, channel: 0, priority: 0, len }
    }

    pub(super) fn on(self, channel: u16) -> Self {
        Self { channel, ..self }
    }

    pub(super) fn in_class(self, minor: u16) -> Self {
        Self { priority: Handle::new(1, minor).0, ..self }
    }
}

pub(super) fn scheduler(plan: Blueprint, seed: u64) -> Scheduler {
    Scheduler::new(plan, Filters::default(), MTU, seed, Layer::Ethernet)
}

impl World {
    pub(super) fn new(plan: Blueprint) -> Self {
        let config = PoolConfig { pages: 1 << 14, ..PoolConfig::default() };
        Self {
            pool: PagePool::new(&config).unwrap(),
            stats: TxStats::default(),
            s: scheduler(plan, 7),
            now: SECOND,
            open: u64::MAX,
            next_id: 1,
        }
    }

    pub(super) fn with<T>(&mut self, f: impl FnOnce(&mut Scheduler, &mut Cx<'_>) -> T) -> T {
        let Self { pool, stats, s, now, open, .. } = self;
        f(s, &mut Cx { now: *now, open: *open, pool, stats })
    }

    /// Creates a packet that begins with space for its headers, followed by the packet's number. A
    /// packet longer than 4000 bytes is a GSO frame.
    pub(super) fn packet(&mut self, spec: Spec) -> QueuedPacket {
        let mut frag = self.pool.alloc_frag(spec.len.clamp(64, 2048)).unwrap();
        let mut bytes = [0; 48];
        bytes[40..].copy_from_slice(&self.next_id.to_le_bytes());
        self.pool.frag_span_mut(&mut frag).copy_from(Span::of(&bytes));
        self.next_id += 1;
        let large = VnetFields { gso_type: 1, gso_size: 1448, hdr_len: 66, ..Default::default() };
        let is_large = spec.len > 4000;
        QueuedPacket {
            frag,
            len: spec.len,
            hdr: if is_large { VnetHdr::new(large) } else { VnetHdr::default() },
            meta: Meta { priority: spec.priority, mark: 0, channel: spec.channel },
            hash: spec.flow,
            segments: if is_large { (spec.len - 66).div_ceil(1448) as u16 } else { 1 },
            ip: None,
            at: 0,
        }
    }

    pub(super) fn id(&self, packet: &QueuedPacket) -> u64 {
        let mut bytes = [0; 48];
        self.pool.frag_span(&packet.frag).read_header(&mut bytes);
        u64::from_le_bytes(bytes[40..].try_into().unwrap())
    }

    pub(super) fn enqueue(&mut self, spec: Spec) -> Enqueued {
        let packet = self.packet(spec);
        self.with(|s, cx| s.enqueue(packet, &FlowKeys::default(), cx))
    }

    pub(super) fn fill(&mut self, n: u32, spec: Spec) {
        for _ in 0..n {
            self.enqueue(spec);
        }
    }

    /// Dequeues and frees a packet. Returns its properties; `None` if no packet may leave.
    pub(super) fn dequeue(&mut self, channel: u16) -> Option<Left> {
        let packet = self.with(|s, cx| s.dequeue(channel, cx))?;
        let left = Left {
            flow: packet.hash,
            priority: packet.meta.priority,
            wire: packet.wire_len(),
            id: self.id(&packet),
            waited: self.now - packet.at,
        };
        self.pool.free_frag(packet.frag);
        Some(left)
    }

    /// Frees the queued packets and checks that no memory is lost.
    pub(super) fn finish(mut self) {
        self.with(|s, cx| s.clear(cx));
        assert_eq!((self.s.len(), self.pool.outstanding()), (0, 0));
    }
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) flow: u32,
    pub(super) priority: u32,
    pub(super) wire: u32,
    pub(super) id: u64,
    pub(super) waited: u64,
}
