//! A lane with disciplines in front of its sink.

use std::time::Duration;

use mqnet_netdev::wrap::offload::InHand;
use mqnet_netdev::{Armed, Burst, Fault, Rx, Tx};
use mqnet_qdisc::{ByteLimit, Tree};
use mqnet_sysio::clock;
use mqnet_wire::Layer;

use super::shapes::lend_a_page;
use super::{Lane, Polled, Rest};
use crate::egress::{Call, Disciplines, Egress, Full, Queueing, Shared, allowance};
use crate::link::LinkError;

/// When a lane that found no memory looks again.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// When a lane looks again whether those that close with it are done.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

impl Lane {
    /// One poll. Frames go straight through as long as nothing waits, the sink has room and nothing
    /// has to be decided about them; otherwise they are taken in, and the disciplines say which of
    /// those that wait go next.
    #[inline(never)]
    pub(super) fn poll_queued(&mut self, now: impl Fn() -> Duration) -> Result<Polled, Fault> {
        let mut polled = Polled::nothing(Rest::Full);
        if !self.held && self.go_straight(&now, &mut polled)? && polled.rest != Rest::Full {
            self.sink_full = false;
            if self.stopped_since.is_some() {
                self.note_stop_or_wake(false, now());
            }
            self.rest = polled.rest;
            return Ok(polled);
        }
        let now = now();
        let queued = self.go_through(now)?;
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

    /// The way without disciplines; false when it is not open. What it did goes to `polled`, which
    /// the compiler otherwise carries about from register to register, 30 instructions a poll.
    ///
    /// Frames that the byte limit cut off stay in the source until the next poll. A reader that has
    /// taken the others by then had too little, and the limit grows: such a link is as fast as one
    /// without disciplines, and nothing is ever detached. Only a reader that is behind makes them
    /// wait where they are scheduled.
    #[inline]
    fn go_straight(
        &mut self,
        now: impl Fn() -> Duration,
        polled: &mut Polled,
    ) -> Result<bool, Fault> {
        let Some(egress) = &mut self.egress else { return Ok(false) };
        if egress.retiring || self.closing.is_some() {
            return Ok(false);
        }
        let channel = self.id.channel;
        // Not for the whole poll: other lanes' system calls need not wait for ours.
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
        if polled.rest == Rest::Empty && self.finishing.is_some() {
            self.send_the_kept(polled)?;
        }
        let sent = &self.tx_stats.tx;
        let Some(egress) = &mut self.egress else { return Ok(true) };
        let bytes = sent.bytes.get() - before.1;
        if polled.rest == Rest::Full && bytes >= allowed.into() {
            self.cut_short = true;
            polled.rest = Rest::Budget;
        }
        if bytes > 0 {
            egress.note_bypass(channel, sent.packets.get() - before.0, bytes);
            if let Some(limit) = &mut self.limit {
                limit.sent(bytes as u32);
            }
        }
        Ok(true)
    }

    /// The way through the disciplines. Out of line: its bursts would make the stack of the
    /// straight way larger than a page.
    #[inline(never)]
    fn go_through(&mut self, now: Duration) -> Result<Polled, Fault> {
        // A frame that was lent to a sink without room is older than all that waits, and one of
        // which some segments are sent goes on before any other.
        let half_sent = self.finish_the_half_sent()?;
        let blocked = self.held || half_sent == Some(false) || self.try_the_lent_frame()?;
        let Self { egress, rx, tx, limit, left_behind, held, tx_stats, id, .. } = self;
        let (begun_inside, finishing) = (&mut self.begun_inside, &self.finishing);
        let Some(egress) = egress else { return Ok(Polled::nothing(Rest::Empty)) };
        let call = Call { channel: id.channel, now: now.as_nanos() as u64, stats: &tx_stats.tx };
        if let Some(limit) = limit
            && let Some(fill) = tx.fill(0)?
        {
            limit.observe(fill.used, *left_behind, call.now);
        }
        // What lies in pages of a program has been taken from the source already.
        let closed = self.closing.is_some() && !self.hooks.hold_a_frame();
        let takes = !egress.retiring && !closed && half_sent != Some(false);
        // While its disciplines are being taken off, what the source has is left there.
        let waits = egress.retiring || half_sent == Some(false);
        let mut polled = Polled::nothing(if waits { Rest::Full } else { Rest::Empty });
        polled.frames = usize::from(half_sent == Some(true));
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
                polled.rest = Rest::Full;
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
            egress.knock(others);
        }
        *left_behind = waiting > 0;
        *begun_inside = !blocked && finishing.as_ref().is_some_and(InHand::is_begun);
        // What is held is older than what would go straight.
        if egress.retiring && waiting == 0 && !*held && egress.leave(&call) {
            self.egress = None;
            self.cut_short = false;
            self.show_pool();
            polled.rest = Rest::Budget;
        }
        self.sink_full = full || (blocked && !self.held);
        if polled.rest == Rest::Full && full && self.full == Full::Drop && self.is_noqueue() {
            self.drop_what_comes(&mut polled)?;
        }
        Ok(polled)
    }

    /// A frame in the source of which some segments are sent: nothing overtakes it, or they would
    /// be sent again. `Some(true)`: the rest of it is sent now; `Some(false)`: there is no room.
    fn finish_the_half_sent(&mut self) -> Result<Option<bool>, Fault> {
        let begun = self.finishing.as_ref().is_some_and(InHand::is_begun);
        if !begun || self.begun_inside {
            return Ok(None);
        }
        // Of a source without memory it has been received: it is a lent frame.
        let Rx::Brings(rx) = &mut self.rx else { return Ok(None) };
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

    /// True when a frame is still lent to a sink that has no room for it.
    fn try_the_lent_frame(&mut self) -> Result<bool, Fault> {
        if !self.holds_a_frame() {
            return Ok(false);
        }
        if let Some(batch) = &mut self.batch
            && batch.waiting() > 0
            && !batch.send(&mut self.tx)?
        {
            return Ok(true);
        }
        if matches!(self.tx, Tx::Brings(_)) {
            // It lies with what finishes frames, which tries it first.
            self.tx.submit(&Burst::new(), 0)?;
            self.tx.flush()?;
            return Ok(self.holds_a_frame());
        }
        let (Rx::Borrows(rx), Tx::Borrows(tx), Some(loan)) =
            (&mut self.rx, &mut self.tx, &mut self.loan)
        else {
            return Ok(false);
        };
        let polled = lend_a_page(&mut **rx, &mut **tx, loan, self.room, 0)?;
        Ok(polled.rest == Rest::Full)
    }

    /// Before it sleeps: what it waits for. Its sink while that is full, its token bucket, and its
    /// source unless that has more than it can take.
    pub(super) fn arm_queued(&mut self) -> Result<Armed, Fault> {
        let Some(egress) = &mut self.egress else { return Ok(Armed::MoreWork) };
        egress.forget_wake();
        if self.rest == Rest::Budget {
            return Ok(Armed::MoreWork);
        }
        // From here on whoever gives us a frame knocks.
        egress.say_asleep();
        let waiting = egress.waiting();
        let late = self.closing.as_ref().is_some_and(|closing| !closing.was_over());
        if late && egress.is_shared() {
            // Nobody knocks when the others are done. (To poll until then could take long: a sink
            // of theirs may stand still.)
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
        } else if self.rest == Rest::Full && waiting == 0 {
            // The memory is all in other lanes' use, and nobody tells when there is some.
            egress.wake_by(clock::monotonic() + MEMORY_PAUSE);
        }
        if self.rest == Rest::Empty && self.closing.is_none() {
            return self.rx.queue().arm(self.room);
        }
        Ok(Armed::Sleep)
    }

    /// Room that the sink must have before the lane goes on: for one frame, and as much as brings
    /// what it holds down to half of its byte limit.
    fn room_to_wake(&mut self) -> Result<u32, Fault> {
        let Some(limit) = &self.limit else { return Ok(self.wake) };
        let half = limit.limit() / 2;
        let size = self.tx.fill(u32::MAX)?.map_or(0, |fill| fill.size);
        Ok(self.wake.max(size.saturating_sub(half)))
    }

    /// When it must be polled again, whatever happens.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.egress.as_ref().and_then(Egress::wake_at)
    }

    /// Frames that wait in its disciplines.
    pub(crate) fn waiting(&mut self) -> u32 {
        self.egress.as_mut().map_or(0, Egress::waiting)
    }

    /// After a poll that found few frames, so long the next ones may gather, if its source wishes
    /// so: not while some wait in it, or its sink's allowance ended the poll.
    pub(crate) fn gather(&mut self) -> Duration {
        let time = self.rx.queue().gather();
        // The last asks under a lock what others share.
        let wishes = !time.is_zero() && !self.cut_short;
        if wishes && self.waiting() == 0 { time } else { Duration::ZERO }
    }

    /// The lane with a discipline in front of its sink, given by its words: for whoever polls a
    /// lane without a link. Frames wait no longer than the lane lives.
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

    /// Limits what its sink may hold, if that can be known: not while an older lane is at work with
    /// what is behind it.
    pub(super) fn fit_limit(&mut self) {
        if self.limit.is_none() {
            let size = self.tx.fill(u32::MAX).ok().flatten().map(|fill| fill.size);
            self.limit = size.map(|size| ByteLimit::new(self.room, size));
        }
    }

    /// Puts disciplines in front of its sink, in the place of those that are there.
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
            // Frames for lanes that were here before may have come with this one.
            next.knock(u64::MAX);
        }
        self.egress = Some(next);
        self.show_pool();
    }

    /// Puts a scheduler in the place of its own one; `Err`: it has none of its own.
    pub(crate) fn succeed(&mut self, next: Disciplines, now: Duration) -> Result<(), Disciplines> {
        let Some(egress) = &mut self.egress else { return Err(next) };
        let stats = &self.tx_stats.tx;
        let call = Call { channel: self.id.channel, now: now.as_nanos() as u64, stats };
        egress.retiring = false;
        egress.succeed(next, &call)
    }

    /// Puts schedulers in the place of those that it shares with other lanes, for all of them.
    pub(crate) fn succeed_shared(&mut self, shared: &Shared, next: Disciplines, now: Duration) {
        let stats = &self.tx_stats.tx;
        let call = Call { channel: self.id.channel, now: now.as_nanos() as u64, stats };
        shared.succeed(next, &call);
        // Those that look at this before it is done sleep by the old rate.
        if let Some(egress) = &self.egress {
            egress.knock(u64::MAX);
        }
    }

    /// Takes its disciplines off when nothing waits in them any more.
    pub(crate) fn retire_disciplines(&mut self) {
        if let Some(egress) = &mut self.egress {
            egress.retiring = true;
        }
    }
}
