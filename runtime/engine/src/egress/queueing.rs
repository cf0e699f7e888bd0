//! Frames that wait in disciplines, and the memory of these frames.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BUDGET, BURST_FRAMES};
use mqnet_netdev::{Burst, Fault, OwningRx, Recv, Rx, SyscallRx, Tx, TxStats};
use mqnet_pktbuf::{Frag, Gauge, PagePool, PoolConfig, PoolStats};
use mqnet_qdisc::{ByteLimit, ChannelMap, Cx, Meta, QueuedPacket, Scheduler};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::{FlowKeys, HEADERS_MAX, Layer, VnetHdr};

use crate::lane::error::LaneError;
use crate::lane::poll::PollEnd;

/// Memory of the disciplines in bytes. Unused pages occupy no memory. While the pool is exhausted,
/// frames stay in the source of the lane.
const POOL_BYTES: u32 = 64 << 20;

/// Smallest page in bytes. Many small frames share one page.
const PAGE_MIN: u32 = 32 << 10;

/// Result of a drain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    /// Frames that the sink accepted.
    pub(crate) sent: usize,
    /// True if the sink accepts no more frames while frames may still wait.
    pub(crate) full: bool,
}

/// Context of a call.
pub(crate) struct Call<'a> {
    /// Channel of the calling lane.
    pub(crate) channel: u16,
    /// Current time in nanoseconds.
    pub(crate) now: u64,
    /// Counters of the sink.
    pub(crate) stats: &'a TxStats,
}

/// Schedulers, and the map from frames to channels.
pub(crate) struct Disciplines {
    /// One scheduler for all channels, or one per channel.
    pub(crate) schedulers: Vec<Scheduler>,
    /// Map that selects the channel of a frame; `None`: frames keep their channel.
    pub(crate) map: Option<ChannelMap>,
    /// Number of channels in use.
    pub(crate) channels: u16,
    /// True for the root noqueue with filters: no frame may wait, except frames that the sink did
    /// not accept.
    pub(crate) noqueue: bool,
}

/// Disciplines with their memory, for one lane or for all lanes that send through a netdev.
pub(crate) struct Queueing {
    disciplines: Disciplines,
    pool: PagePool,
    /// Number of pages in the pool.
    pages: u32,
    /// Fragment with space for a largest frame, into which system-call sources receive; `None`: the
    /// next receive allocates one.
    scratch: Option<Frag>,
    /// Bit mask of the channels with a sink that accepts frames.
    open: u64,
    layer: Layer,
    room: u32,
}

impl Queueing {
    /// Creates the queues for frames of up to `room` bytes. Returns an error if the pool cannot be
    /// created.
    pub(crate) fn new(
        disciplines: Disciplines,
        layer: Layer,
        room: u32,
        node: Option<u32>,
    ) -> Result<Self, LaneError> {
        let page_size = room.next_power_of_two().max(PAGE_MIN);
        let pages = POOL_BYTES / page_size;
        let config = PoolConfig { pages, page_size, node, ..PoolConfig::default() };
        let pool = PagePool::new(&config).map_err(|e| LaneError(e.to_string()))?;
        Ok(Self { disciplines, pool, pages, scratch: None, open: u64::MAX, layer, room })
    }

    fn of(&self, channel: u16) -> usize {
        if self.disciplines.schedulers.len() == 1 { 0 } else { usize::from(channel) }
    }

    /// Returns the scheduler of a channel and its call context.
    fn with<'a>(&'a mut self, call: &Call<'a>) -> (&'a mut Scheduler, Cx<'a>) {
        let number = self.of(call.channel);
        let cx = Cx { now: call.now, open: self.open, pool: &mut self.pool, stats: call.stats };
        (&mut self.disciplines.schedulers[number], cx)
    }

    /// True if frames of a channel may bypass the disciplines now.
    #[inline]
    pub(crate) fn can_bypass(&self, channel: u16) -> bool {
        // A channel map needs the headers of each frame, so no frame may bypass the disciplines.
        self.disciplines.map.is_none() && self.disciplines.schedulers[self.of(channel)].can_bypass()
    }

    /// True if no frame may wait while the sink is full.
    pub(crate) fn is_noqueue(&self) -> bool {
        self.disciplines.noqueue
    }

    /// Counts frames that have bypassed the disciplines.
    #[inline]
    pub(crate) fn note_bypass(&self, channel: u16, packets: u64, bytes: u64) {
        self.disciplines.schedulers[self.of(channel)].note_bypass(packets, bytes);
    }

    /// Number of frames that wait for a channel.
    pub(crate) fn waiting(&self, channel: u16) -> u32 {
        self.disciplines.schedulers[self.of(channel)].len_of(channel)
    }

    /// Time in nanoseconds at which a token bucket releases the next frame; `None` if no bucket
    /// delays frames.
    pub(crate) fn next_time(&self, channel: u16) -> Option<u64> {
        self.disciplines.schedulers[self.of(channel)].next_time()
    }

    /// Statistics of the page pool.
    pub(crate) fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Gauge of the page pool.
    pub(crate) fn pool_gauge(&self) -> Gauge {
        self.pool.gauge()
    }

    /// Receives up to a budget of frames from a source and enqueues them. Sets the bit in `others`
    /// of each other channel that got frames. Returns the number of received frames, and the reason
    /// why the loop ended (`Full`: no memory for this channel).
    pub(crate) fn absorb(
        &mut self,
        rx: &mut Rx,
        call: &Call<'_>,
        others: &mut u64,
    ) -> Result<(usize, PollEnd), Fault> {
        if self.has_its_share(call.channel) {
            return Ok((0, PollEnd::Full));
        }
        match rx {
            Rx::Owning(rx) => self.absorb_shown(&mut **rx, call, others),
            Rx::Syscall(rx) => self.absorb_received(&mut **rx, call, others),
        }
    }

    /// True if this channel must stop its source, so that a stopped queue cannot exhaust the memory
    /// of other channels: more than three quarters of the pages are in use, and this channel holds
    /// more than an equal share of the waiting frames. Always false for a single channel.
    fn has_its_share(&self, channel: u16) -> bool {
        if self.pool.outstanding() <= self.pages / 4 * 3 {
            return false;
        }
        let all = self.disciplines.schedulers.iter().map(Scheduler::len).sum::<u32>();
        let channels = u32::from(self.disciplines.channels);
        channels > 1 && self.waiting(channel).saturating_mul(channels) > all
    }

    fn absorb_shown(
        &mut self,
        rx: &mut dyn OwningRx,
        call: &Call<'_>,
        others: &mut u64,
    ) -> Result<(usize, PollEnd), Fault> {
        let (mut taken, mut rest) = (0, PollEnd::Budget);
        {
            let mut burst = Burst::new();
            rx.peek(&mut burst, BUDGET)?;
            if burst.frames().is_empty() {
                return Ok((0, PollEnd::Empty));
            }
            for frame in burst.frames() {
                let Some(mut frag) = self.pool.alloc_frag(frame.len) else {
                    rest = PollEnd::Full;
                    break;
                };
                gather(self.pool.frag_span_mut(&mut frag), frame.head, burst.more(frame));
                call.stats.copies.add(1);
                self.enqueue(frag, frame.len, frame.hdr, call, others);
                taken += 1;
            }
        }
        rx.release(taken)?;
        Ok((taken, rest))
    }

    fn absorb_received(
        &mut self,
        rx: &mut dyn SyscallRx,
        call: &Call<'_>,
        others: &mut u64,
    ) -> Result<(usize, PollEnd), Fault> {
        for taken in 0..BUDGET {
            let scratch = self.scratch.take().or_else(|| self.pool.alloc_frag(self.room));
            let Some(mut scratch) = scratch else { return Ok((taken, PollEnd::Full)) };
            let head = self.pool.frag_span_mut(&mut scratch).split_at(self.room as usize).0;
            let received = rx.recv(&mut Segments::new(head, SpanMut::empty()));
            let (frag, frame) = match received {
                Ok(Recv::Frame(frame)) => (self.fitting(scratch, frame.len, call), frame),
                other => {
                    self.scratch = Some(scratch);
                    match other? {
                        Recv::Empty => return Ok((taken, PollEnd::Empty)),
                        _ => continue,
                    }
                }
            };
            self.enqueue(frag, frame.len, frame.hdr, call, others);
        }
        Ok((BUDGET, PollEnd::Budget))
    }

    /// Returns the fragment in which a frame of `len` bytes in `scratch` waits. A frame of at most
    /// a quarter of `scratch` is copied to a fragment of its size. Without memory for the copy,
    /// `scratch` is returned.
    fn fitting(&mut self, mut scratch: Frag, len: u32, call: &Call<'_>) -> Frag {
        if len > scratch.len() / 4 {
            return scratch;
        }
        let Some(mut frag) = self.pool.alloc_frag(len) else { return scratch };
        let from = self.pool.frag_span_mut(&mut scratch);
        gather(self.pool.frag_span_mut(&mut frag), from.as_span().first(len as usize), &[]);
        call.stats.copies.add(1);
        self.scratch = Some(scratch);
        frag
    }

    fn enqueue(&mut self, frag: Frag, len: u32, hdr: VnetHdr, call: &Call<'_>, others: &mut u64) {
        // Parse a private copy of the headers: pool memory is never parsed in place.
        let mut head = [0; HEADERS_MAX];
        let n = self.pool.frag_span(&frag).first(len as usize).read_header(&mut head);
        let keys = FlowKeys::dissect(&head[..n], self.layer);
        let meta = Meta { priority: priority_of(keys.tos), mark: 0, channel: call.channel };
        let packet = QueuedPacket {
            frag,
            len,
            hdr,
            meta,
            hash: keys.hash(),
            segments: hdr.segments(len),
            ip: keys.ip,
            at: call.now,
        };
        self.admit(packet, &keys, call, others);
    }

    fn admit(&mut self, packet: QueuedPacket, keys: &FlowKeys, call: &Call<'_>, others: &mut u64) {
        let (scheduler, mut cx) = self.with(call);
        let Some(mut packet) = scheduler.classify(packet, keys, &mut cx) else { return };
        if let Some(map) = &self.disciplines.map {
            let channels = self.disciplines.channels;
            packet.meta.channel = map.pick(&packet.meta, call.channel, channels);
        }
        let to = packet.meta.channel;
        let (scheduler, mut cx) = self.with(call);
        if to == call.channel {
            scheduler.enqueue(packet, keys, &mut cx);
        } else {
            *others |= 1 << to;
            let (scheduler, mut cx) = self.with(&Call { channel: to, ..*call });
            scheduler.enqueue(packet, keys, &mut cx);
        }
    }

    /// Sends up to a budget of the frames that wait for a channel, limited by the space of the sink
    /// and by its byte limit.
    pub(crate) fn drain(
        &mut self,
        tx: &mut Tx,
        limit: &mut Option<ByteLimit>,
        call: &Call<'_>,
    ) -> Result<Drained, Fault> {
        let mut done = Drained::default();
        // A frame that the sink rejects has left the disciplines already, so no policy applies to
        // it any more. Without a byte limit, therefore begin with one frame and double the burst.
        let mut most = if limit.is_some() { BURST_FRAMES } else { 1 };
        while done.sent < BUDGET && !done.full && self.waiting(call.channel) > 0 {
            let allowance = allowance(tx, limit)?;
            self.set_open(call.channel, allowance > 0);
            if allowance == 0 {
                done.full = true;
                break;
            }
            let packets = self.choose(call, allowance, most);
            most = BURST_FRAMES.min(2 * most);
            if packets.is_empty() {
                break;
            }
            let lengths: ArrayVec<u32, BURST_FRAMES> = packets.iter().map(|p| p.len).collect();
            let chosen = packets.len();
            let taken = self.submit(tx, packets, call)?;
            if let Some(limit) = limit {
                limit.sent(lengths[..taken].iter().sum());
            }
            done.sent += taken;
            done.full = taken < chosen;
            self.set_open(call.channel, !done.full);
        }
        if done.sent > 0 {
            tx.flush()?;
        }
        Ok(done)
    }

    fn set_open(&mut self, channel: u16, open: bool) {
        self.open = self.open & !(1 << channel) | u64::from(open) << channel;
    }

    fn choose(
        &mut self,
        call: &Call<'_>,
        allowance: u32,
        most: usize,
    ) -> ArrayVec<QueuedPacket, BURST_FRAMES> {
        let mut packets = ArrayVec::new();
        let mut bytes = 0u32;
        let (scheduler, mut cx) = self.with(call);
        while bytes < allowance && packets.len() < most {
            let Some(packet) = scheduler.dequeue(call.channel, &mut cx) else { break };
            bytes = bytes.saturating_add(packet.len);
            packets.push(packet);
        }
        packets
    }

    /// Submits packets to the sink. Rejected packets are requeued at the head of their queue.
    /// Returns the number of accepted packets.
    fn submit(
        &mut self,
        tx: &mut Tx,
        mut packets: ArrayVec<QueuedPacket, BURST_FRAMES>,
        call: &Call<'_>,
    ) -> Result<usize, Fault> {
        let taken = {
            let mut burst = Burst::new();
            for packet in &packets {
                let bytes = self.pool.frag_span(&packet.frag).first(packet.len as usize);
                burst.push(packet.hdr, packet.len, bytes);
            }
            tx.submit(&burst, 0)
        };
        // A sink that reports a fault has accepted no packet, so all packets are requeued. They are
        // counted as dropped when the lane is closed.
        let sent = *taken.as_ref().unwrap_or(&0);
        for packet in packets.drain(sent..).rev() {
            let (scheduler, mut cx) = self.with(call);
            scheduler.requeue(packet, &mut cx);
        }
        packets.into_iter().for_each(|packet| self.pool.free_frag(packet.frag));
        taken
    }

    /// Replaces the schedulers. Waiting frames move to the new schedulers.
    pub(crate) fn succeed(&mut self, mut old: Disciplines, call: &Call<'_>) {
        std::mem::swap(&mut self.disciplines, &mut old);
        if self.disciplines.schedulers.len() == old.schedulers.len() {
            for (number, old) in old.schedulers.into_iter().enumerate() {
                let pool = &mut self.pool;
                let mut cx = Cx { now: call.now, open: self.open, pool, stats: call.stats };
                let scheduler = &mut self.disciplines.schedulers[number];
                scheduler.adopt(old, &mut cx);
                // Frames for a removed channel are sent through the first channel.
                scheduler.set_channels(self.disciplines.channels, &mut cx);
            }
            return;
        }
        let mut waiting = Vec::new();
        old.schedulers.iter_mut().for_each(|old| old.take_all(&mut waiting));
        waiting.into_iter().for_each(|packet| self.take_in(packet, call));
    }

    /// Moves the frames that wait for the caller's channel from `from` to this memory. With `all`,
    /// frames for other channels move too, because the caller is the last lane of `from`. With
    /// `relabel`, all moved frames leave through the caller's channel.
    pub(crate) fn take_over(&mut self, from: &mut Self, all: bool, relabel: bool, call: &Call<'_>) {
        let (mut aside, mut waiting) = (Vec::new(), Vec::new());
        let number = from.of(call.channel);
        for (at, old) in from.disciplines.schedulers.iter_mut().enumerate() {
            if all || at == number {
                old.take_aside(if all { u64::MAX } else { 1 << call.channel }, &mut aside);
                old.take_waiting(&mut waiting);
            }
        }
        // The first frame of the caller's channel may be partly sent, so no frame may overtake it.
        aside.sort_by_key(|packet| packet.meta.channel != call.channel);
        for packet in aside {
            if let Some(packet) = self.fetch(packet, from, relabel, call) {
                let to = Call { channel: packet.meta.channel, ..*call };
                self.with(&to).0.set_aside(packet);
            }
        }
        for packet in waiting {
            if !all && packet.meta.channel != call.channel {
                from.take_in(packet, call);
            } else if let Some(packet) = self.fetch(packet, from, relabel, call) {
                self.take_in(packet, call);
            }
        }
    }

    /// Copies a packet from the pool of `from` into this pool. Returns `None` if the packet was
    /// dropped and counted for lack of memory.
    fn fetch(
        &mut self,
        mut packet: QueuedPacket,
        from: &mut Self,
        relabel: bool,
        call: &Call<'_>,
    ) -> Option<QueuedPacket> {
        let Some(mut frag) = self.pool.alloc_frag(packet.len) else {
            call.stats.drops.count(mqnet_netdev::DropReason::QdiscOverlimit, 1);
            from.pool.free_frag(packet.frag);
            return None;
        };
        let bytes = from.pool.frag_span(&packet.frag).first(packet.len as usize);
        gather(self.pool.frag_span_mut(&mut frag), bytes, &[]);
        call.stats.copies.add(1);
        if relabel {
            packet.meta.channel = call.channel;
        }
        from.pool.free_frag(std::mem::replace(&mut packet.frag, frag));
        Some(packet)
    }

    /// Requeues all waiting frames for the caller's channel. Returns false if no frame waits.
    pub(crate) fn gather_strays(&mut self, call: &Call<'_>) -> bool {
        let mut waiting = Vec::new();
        self.disciplines.schedulers.iter_mut().for_each(|s| s.take_all(&mut waiting));
        let any = !waiting.is_empty();
        for mut packet in waiting {
            packet.meta.channel = call.channel;
            self.take_in(packet, call);
        }
        any
    }

    /// Enqueues a packet that is already classified, on its channel.
    fn take_in(&mut self, packet: QueuedPacket, call: &Call<'_>) {
        let (scheduler, mut cx) = self.with(&Call { channel: packet.meta.channel, ..*call });
        scheduler.enqueue_anew(packet, &mut cx);
    }

    /// Drops and counts all waiting frames, and frees the receive fragment.
    pub(crate) fn close(&mut self, call: &Call<'_>) {
        for scheduler in &mut self.disciplines.schedulers {
            let pool = &mut self.pool;
            let mut cx = Cx { now: call.now, open: u64::MAX, pool, stats: call.stats };
            scheduler.clear(&mut cx);
        }
        if let Some(scratch) = self.scratch.take() {
            self.pool.free_frag(scratch);
        }
    }
}

/// Number of bytes that a sink may get now; `u32::MAX` without a limit or without occupancy
/// information.
#[inline]
pub(crate) fn allowance(tx: &mut Tx, limit: &mut Option<ByteLimit>) -> Result<u32, Fault> {
    let Some(limit) = limit else { return Ok(u32::MAX) };
    Ok(match tx.fill(limit.limit() / 2)? {
        Some(fill) => limit.allow(fill.used),
        None => u32::MAX,
    })
}

/// Copies a frame in several segments into one contiguous buffer.
fn gather(mut room: SpanMut<'_>, head: Span<'_>, more: &[Span<'_>]) {
    for piece in std::iter::once(&head).chain(more) {
        let n = room.copy_from(*piece);
        room = room.split_at(n).1;
    }
}

/// Priority of a frame from its TOS byte, as the kernel assigns it to forwarded packets: bulk,
/// interactive, interactive bulk, or best effort (linux/pkt_sched.h, `TC_PRIO_*`).
fn priority_of(tos: u8) -> u32 {
    match tos & 0x18 {
        0x08 => 2,
        0x10 => 6,
        0x18 => 4,
        _ => 0,
    }
}
