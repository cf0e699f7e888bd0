//! Polling of a lane with disciplines.

use std::time::Duration;

use mqnet_netdev::wrap::offload::GsoProgress;
use mqnet_netdev::{Armed, Burst, Fault, Rx, Tx};
use mqnet_qdisc::{ByteLimit, Tree};
use mqnet_sysio::clock;
use mqnet_wire::Layer;

use super::shapes::lend_a_page;
use super::{Lane, PollEnd, Polled};
use crate::egress::{Call, Disciplines, Egress, Full, Queueing, Shared, allowance};
use crate::error::LinkError;

/// Poll interval of a sleeping lane for which the pool has no memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Poll interval of a sleeping lane while other closing lanes may add frames to its queue.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

impl Lane {
    /// Polls a lane with disciplines. Frames bypass the disciplines while none waits, the sink has
    /// space, and no filter or channel map applies. Otherwise frames are enqueued, and the
    /// disciplines select the next frames to send.
    #[inline(never)]
    pub(super) fn poll_queued(&mut self, now: impl Fn() -> Duration) -> Result<Polled, Fault> {
        let mut polled = Polled::nothing(PollEnd::Full);
        if !self.held && self.bypass(&now, &mut polled)? && polled.rest != PollEnd::Full {
            self.sink_full = false;
            if self.stopped_since.is_some() {
                self.note_stop_or_wake(false, now());
            }
            self.rest = polled.rest;
            return Ok(polled);
        }
        let now = now();
        let queued = self.enqueue_and_send(now)?;
        polled.frames += queued.frames;
        polled.sent += queued.sent;
        polled.rest = queued.rest;
        self.rest = queued.rest;
        if self.sink_full != self.stopped_since.is_some() {
            self.note_stop_or_wake(self.sink_full, now);
        }
        Ok(polled)
    }

    fn is_noqueue(&mut self) -> bool {
        self.egress.as_mut().is_some_and(|egress| egress.access().is_noqueue())
    }

    /// Bypasses the disciplines. Returns false if frames must pass through the disciplines.
    /// `polled` is an output argument, because the compiler would move a returned value between
    /// registers, about 30 instructions per poll.
    ///
    /// Frames beyond the byte limit stay in the source until the next poll. If the sink's reader
    /// has taken the sent frames by then, the limit was too small and grows. A link with a fast
    /// reader is therefore as fast as one without disciplines, and no frame is detached. Frames
    /// wait in the disciplines only behind a slow reader.
    #[inline]
    fn bypass(&mut self, now: impl Fn() -> Duration, polled: &mut Polled) -> Result<bool, Fault> {
        let Some(egress) = &mut self.egress else { return Ok(false) };
        if egress.retiring || self.closing.is_some() {
            return Ok(false);
        }
        let channel = self.id.channel;
        // Release the lock during the transfer, so that lanes do not wait for each other's system
        // calls.
        if !egress.can_bypass(channel) {
            return Ok(false);
        }
        if std::mem::take(&mut self.cut_short)
            && let Some(limit) = &mut self.limit
            && let Some(fill) = self.tx.fill(0)?
        {
            limit.observe(fill.used, true, now().as_nanos() as u64);
        }
        let allowed = allowance(&mut self.tx, &mut self.limit)?;
        if allowed == 0 {
            return Ok(false);
        }
        let sent = &self.tx_stats.tx;
        let before = (sent.packets.get(), sent.bytes.get());
        *polled = self.move_across::<true>(allowed)?;
        if polled.rest == PollEnd::Empty && self.finishing.is_some() {
            self.send_kept(polled)?;
        }
        let sent = &self.tx_stats.tx;
        let Some(egress) = &mut self.egress else { return Ok(true) };
        let bytes = sent.bytes.get() - before.1;
        if polled.rest == PollEnd::Full && bytes >= allowed.into() {
            self.cut_short = true;
            polled.rest = PollEnd::Budget;
        }
        if bytes > 0 {
            egress.note_bypass(channel, sent.packets.get() - before.0, bytes);
            if let Some(limit) = &mut self.limit {
                limit.sent(bytes as u32);
            }
        }
        Ok(true)
    }

    /// Moves frames through the disciplines. The function is not inlined: its burst buffers would
    /// make the stack frame of the bypass larger than a page.
    #[inline(never)]
    fn enqueue_and_send(&mut self, now: Duration) -> Result<Polled, Fault> {
        // A partly sent frame must continue before any other. A received frame that the lane holds
        // is older than all frames in the disciplines, so it is retried next.
        let partial = self.continue_partial()?;
        let blocked = self.held || partial == Some(false) || self.retry_received()?;
        let Self { egress, rx, tx, limit, left_behind, held, tx_stats, id, .. } = self;
        let (partial_inside, finishing) = (&mut self.partial_inside, &self.finishing);
        let Some(egress) = egress else { return Ok(Polled::nothing(PollEnd::Empty)) };
        let call = Call { channel: id.channel, now: now.as_nanos() as u64, stats: &tx_stats.tx };
        if let Some(limit) = limit
            && let Some(fill) = tx.fill(0)?
        {
            limit.observe(fill.used, *left_behind, call.now);
        }
        // Frames in a program's pages have already left the queue, so a closing lane still receives
        // them.
        let closed = self.closing.is_some() && !self.hooks.hold_a_frame();
        let takes = !egress.retiring && !closed && partial != Some(false);
        // Frames stay in the source while the disciplines are being removed, and while a partly
        // sent frame is incomplete.
        let waits = egress.retiring || partial == Some(false);
        let mut polled = Polled::nothing(if waits { PollEnd::Full } else { PollEnd::Empty });
        polled.frames = usize::from(partial == Some(true));
        let (mut full, mut others) = (false, 0);
        let waiting = {
            let mut queueing = egress.access();
            if !blocked {
                let drained = queueing.drain(tx, limit, &call)?;
                polled.sent += drained.sent;
                full = drained.full;
            }
            let noqueue = queueing.is_noqueue() && (full || queueing.waiting(call.channel) > 0);
            if takes && noqueue {
                polled.rest = PollEnd::Full;
            } else if takes {
                let (taken, rest) = queueing.absorb(rx, &call, &mut others)?;
                (polled.frames, polled.rest) = (polled.frames + taken, rest);
                if !blocked && !full {
                    let drained = queueing.drain(tx, limit, &call)?;
                    polled.sent += drained.sent;
                    full = drained.full;
                }
            }
            queueing.waiting(call.channel)
        };
        if others != 0 {
            egress.wake_lanes(others);
        }
        *left_behind = waiting > 0;
        *partial_inside = !blocked && finishing.as_ref().is_some_and(GsoProgress::is_begun);
        // A held lane keeps its disciplines: frames that bypass them would overtake the held
        // frames.
        if egress.retiring && waiting == 0 && !*held && egress.leave(&call) {
            self.egress = None;
            self.cut_short = false;
            self.show_pool();
            polled.rest = PollEnd::Budget;
        }
        self.sink_full = full || (blocked && !self.held);
        if polled.rest == PollEnd::Full && full && self.full == Full::Drop && self.is_noqueue() {
            self.tail_drop(&mut polled)?;
        }
        Ok(polled)
    }

    /// Continues a partly sent frame of the source before all others, because otherwise its first
    /// segments would be sent again. Returns `Some(true)` if the frame is complete, `Some(false)`
    /// if the sink has no space, `None` if no such frame exists.
    fn continue_partial(&mut self) -> Result<Option<bool>, Fault> {
        let begun = self.finishing.as_ref().is_some_and(GsoProgress::is_begun);
        if !begun || self.partial_inside {
            return Ok(None);
        }
        // A system-call source has no such frame: the frame was received into memory of the lane.
        let Rx::Owning(rx) = &mut self.rx else { return Ok(None) };
        let sent = &self.tx_stats.tx;
        let before = (sent.packets.get(), sent.bytes.get());
        let taken = {
            let mut burst = Burst::new();
            rx.peek(&mut burst, 1)?;
            self.tx.submit(&burst, 0)?
        };
        rx.release(taken)?;
        self.tx.flush()?;
        let (packets, bytes) = (sent.packets.get() - before.0, sent.bytes.get() - before.1);
        if let Some(egress) = &mut self.egress {
            egress.note_bypass(self.id.channel, packets, bytes);
        }
        if let Some(limit) = &mut self.limit {
            limit.sent(bytes as u32);
        }
        Ok(Some(taken > 0))
    }

    /// Submits received frames of the lane again. Returns true if the sink has no space for one of
    /// them.
    fn retry_received(&mut self) -> Result<bool, Fault> {
        if !self.holds_a_frame() {
            return Ok(false);
        }
        if let Some(batch) = &mut self.batch
            && batch.waiting() > 0
            && !batch.send(&mut self.tx)?
        {
            return Ok(true);
        }
        if matches!(self.tx, Tx::Owning(_)) {
            // Offload emulation holds the frame, and an empty submission sends it.
            self.tx.submit(&Burst::new(), 0)?;
            self.tx.flush()?;
            return Ok(self.holds_a_frame());
        }
        let (Rx::Syscall(rx), Tx::Syscall(tx), Some(loan)) =
            (&mut self.rx, &mut self.tx, &mut self.loan)
        else {
            return Ok(false);
        };
        let polled = lend_a_page(&mut **rx, &mut **tx, loan, self.room, 0)?;
        Ok(polled.rest == PollEnd::Full)
    }

    /// Arms all events for which the lane waits: the sink while it is full, the token bucket, and
    /// the source if the last poll found it empty and the lane is not closing. Returns `MoreWork`
    /// if the lane must be polled again.
    pub(super) fn arm_queued(&mut self) -> Result<Armed, Fault> {
        let Some(egress) = &mut self.egress else { return Ok(Armed::MoreWork) };
        egress.clear_wake();
        if self.rest == PollEnd::Budget {
            return Ok(Armed::MoreWork);
        }
        // After this call, lanes that add frames to this lane's queue wake it.
        egress.mark_asleep();
        let waiting = egress.waiting();
        let late = self.closing.as_ref().is_some_and(|closing| !closing.was_all_done());
        if late && egress.is_shared() {
            // No event signals that the other closing lanes are done. Poll at intervals, because
            // another sink may be stopped for long.
            egress.wake_by(clock::monotonic() + CLOSING_PAUSE);
        }
        if waiting > 0 && !self.held && !self.sink_full {
            let channel = self.id.channel;
            let Some(at) = egress.access().next_time(channel) else { return Ok(Armed::MoreWork) };
            egress.wake_by(Duration::from_nanos(at));
        }
        if self.sink_full {
            let need = self.room_to_wake()?;
            if self.tx.queue().arm(need)? == Armed::MoreWork {
                return Ok(Armed::MoreWork);
            }
        } else if self.rest == PollEnd::Full && waiting == 0 {
            // Other lanes use all memory of the pool, and no event signals its release.
            egress.wake_by(clock::monotonic() + MEMORY_PAUSE);
        }
        if self.rest == PollEnd::Empty && self.closing.is_none() {
            return self.rx.queue().arm(self.room);
        }
        Ok(Armed::Sleep)
    }

    /// Space that the sink must have before the lane continues: the wake threshold, or the space at
    /// which half of the byte limit is occupied, if that is more.
    fn room_to_wake(&mut self) -> Result<u32, Fault> {
        let Some(limit) = &self.limit else { return Ok(self.wake) };
        let half = limit.limit() / 2;
        let size = self.tx.fill(u32::MAX)?.map_or(0, |fill| fill.size);
        Ok(self.wake.max(size.saturating_sub(half)))
    }

    /// Latest time of the next poll; `None` without a limit.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.egress.as_ref().and_then(Egress::wake_at)
    }

    /// Number of frames that wait in the disciplines.
    pub(crate) fn waiting(&mut self) -> u32 {
        self.egress.as_mut().map_or(0, Egress::waiting)
    }

    /// Poll hold-off after a poll with few frames, as the source requests it. Zero while frames
    /// wait in the disciplines, or if the sink's byte limit ended the poll.
    pub(crate) fn poll_hold_off(&mut self) -> Duration {
        let time = self.rx.queue().hold_off();
        // Check the disciplines last, because access to shared disciplines takes their lock.
        let applies = !time.is_zero() && !self.cut_short;
        if applies && self.waiting() == 0 { time } else { Duration::ZERO }
    }

    /// Attaches a discipline, given as tc arguments, for a lane that is polled without a link.
    /// Waiting frames are dropped with the lane. Fails if the arguments are invalid.
    pub fn with_qdisc(mut self, words: &str, layer: Layer) -> Result<Self, LinkError> {
        let mut tree = Tree::new(words, layer).map_err(LinkError::Qdisc)?;
        let now = clock::monotonic();
        let scheduler = tree.build(self.id.channel, self.room, now.as_nanos() as u64);
        let schedulers = scheduler.into_iter().collect();
        let disciplines = Disciplines { schedulers, map: None, channels: 1, noqueue: false };
        let queueing = Queueing::new(disciplines, layer, self.room, None);
        let queueing = queueing.map_err(|e| LinkError::System(std::io::Error::other(e)))?;
        self.install(Egress::own(self.id.channel, queueing), now);
        Ok(self)
    }

    /// Creates the sink's byte limit, if the occupancy of the sink can be read. Must not be called
    /// while an older lane still uses the sink.
    pub(super) fn fit_limit(&mut self) {
        if self.limit.is_none() {
            let size = self.tx.fill(u32::MAX).ok().flatten().map(|fill| fill.size);
            self.limit = size.map(|size| ByteLimit::new(self.room, size));
        }
    }

    /// Attaches disciplines. Frames that wait in the previous disciplines move to the new ones.
    pub(crate) fn install(&mut self, mut next: Egress, now: Duration) {
        self.fit_limit();
        self.cut_short = false;
        let old = self.egress.take();
        let moves = old.is_some();
        if let Some(old) = old {
            let stats = &self.tx_stats.tx;
            let call = Call { channel: self.id.channel, now: now.as_nanos() as u64, stats };
            next.take_over(old, &call);
        }
        if moves {
            // Frames for other lanes may have moved with the frames of this lane, so wake them.
            next.wake_lanes(u64::MAX);
        }
        self.egress = Some(next);
        self.show_pool();
    }

    /// Replaces the schedulers of the lane's disciplines. Returns `next` as an error if the
    /// disciplines are shared, or if the lane has none.
    pub(crate) fn succeed(&mut self, next: Disciplines, now: Duration) -> Result<(), Disciplines> {
        let Some(egress) = &mut self.egress else { return Err(next) };
        let stats = &self.tx_stats.tx;
        let call = Call { channel: self.id.channel, now: now.as_nanos() as u64, stats };
        egress.retiring = false;
        egress.succeed(next, &call)
    }

    /// Replaces the schedulers of shared disciplines for all lanes.
    pub(crate) fn succeed_shared(&mut self, shared: &Shared, next: Disciplines, now: Duration) {
        let stats = &self.tx_stats.tx;
        let call = Call { channel: self.id.channel, now: now.as_nanos() as u64, stats };
        shared.succeed(next, &call);
        // Sleeping lanes have calculated their wake time from the previous schedulers, so wake
        // them.
        if let Some(egress) = &self.egress {
            egress.wake_lanes(u64::MAX);
        }
    }

    /// Begins to remove the disciplines, which end once no frame waits in them.
    pub(crate) fn retire_disciplines(&mut self) {
        if let Some(egress) = &mut self.egress {
            egress.retiring = true;
        }
    }
}
