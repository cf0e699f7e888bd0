//! Session of the link with an `ntb_transport`, polled by the control thread.
//!
//! ```text
//! version 4 read -> our values written -> windows set up by the peer -> rings made
//! request for a pair -> rings reset, offered, bit set in QP_LINKS -> frames
//! link-down slot, or bit missing -> bit cleared, rings recalled -> next request
//! ```
//! Pairs are opened only while the engine has channels open: the peer's interface has no carrier
//! while the partner netdev of this end is down.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_netdev::{Channel, PairView, Plan, QueuePairStats, Rx, SlotRings, Tx};
use mqnet_shmem::AtomicTable;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::timer::Timer;

use super::cell::Cell;
use super::geometry::{TooFewSlots, WindowPart};
use super::handshake::{self, HandshakeError, OwnLimits, PeerValues, pad};
use super::links::{Links, UNTOUCHED};
use super::queue_pair::QueuePair;
use super::rx::PairsRx;
use super::slots::{DONE, FLAGS, InboundWord, RxSlots, TxSlots};
use super::tx::{PairTx, Senders};
use crate::hw::{Hw, TransportHw};

/// Time in which queues must put recalled rings back. Queues do so at their next poll, unless they
/// wait for a full sink. After this time, a new session closes all channels.
const PATIENCE: Duration = Duration::from_millis(300);

/// Time in which the kernel waits for a free slot for its link-down slot, plus a margin.
const LINK_DOWN_LATE: Duration = Duration::from_millis(1500);

/// Period of the check for sleeping readers that missed a doorbell.
const CHECK: Duration = Duration::from_millis(100);

/// Time after a change of the queue pairs in which polls are frequent, and the poll period in it.
const CHANGING: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(10)];

/// State of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Reason: no queue pair is open or requested, or the peer has not set up its windows.
    Down(String),
    /// Frames may flow. A new number means that all channels must be closed.
    Up(u64),
}

/// Reason why the peer cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Invalid value in a scratchpad.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Too few slots after the division of the windows.
    #[error(transparent)]
    Slots(#[from] TooFewSlots),
    /// Failed creation of a timer.
    #[error("timer: {0}")]
    System(String),
    /// Too few scratchpads of the hardware.
    #[error("hardware: {have} scratchpads, {need} are needed for {windows} memory windows")]
    Spads {
        /// Number of scratchpads of the hardware.
        have: usize,
        /// Number of scratchpads that the handshake needs.
        need: usize,
        /// Number of windows of the handshake.
        windows: usize,
    },
}

/// Rings of a pair that the control thread has while no queue has them.
#[derive(Debug, Default)]
struct IdleRings {
    rx: Option<Box<RxSlots>>,
    tx: Option<Box<TxSlots>>,
}

/// Slot for a link-down notification.
#[derive(Clone, Copy, Debug)]
enum Parting {
    /// Slot after the frames that were sent.
    Next,
    /// All slots: the peer may have begun a new session of the pair, so its next slot is unknown.
    Any,
}

struct Pair {
    queue: QueuePair,
    idle: IdleRings,
    /// Time since which the rings are recalled; `None` if they are not.
    closing: Option<Duration>,
    /// Link-down slot that is sent when the control thread has the rings: the peer may have the
    /// pair open.
    parts: Option<Parting>,
    /// Set if the peer closes some pair while this pair's ring is full: the link-down slot of this
    /// pair may be missing. Time and value of the last change of the activity.
    suspect: Option<(Duration, u64)>,
    /// Window of this end, for the check of sleeping readers.
    words: AtomicTable,
    /// Credit word: slot that the peer consumed last.
    credit: InboundWord,
    part: WindowPart,
    /// Bytes of a slot of the peer's memory, and largest number of slots in use.
    size: (u32, u32),
}

/// Session of the link with an `ntb_transport`.
pub(crate) struct Transport {
    values: PeerValues,
    /// Bytes of each window as announced to the peer, which sets up as many.
    announced: Vec<u32>,
    transport_mtu: u32,
    control: Arc<EventFd>,
    /// Timer that expires when the next poll is due.
    timer: Timer,
    /// Time of the last change of the queue pairs.
    changed: Duration,
    pairs: Vec<Pair>,
    links: Links,
    /// Value of QP_LINKS that was written last.
    written: u32,
    /// True while the engine has channels open.
    is_open: bool,
    lives: u64,
    checked: Duration,
    /// Assignment of queue pairs to the newest channels.
    senders: Option<Arc<Senders>>,
}

impl Transport {
    /// Answers the handshake of an `ntb_transport`; `None` while the scratchpads contain none.
    pub(crate) fn begin(
        hw: &dyn Hw,
        transport: &dyn TransportHw,
        transport_mtu: u32,
        control: Arc<EventFd>,
    ) -> Result<Option<Self>, Refused> {
        let Some(values) = read(hw, transport)? else { return Ok(None) };
        let windows = values.sizes.len();
        let announced: Vec<u32> = (0..windows).map(|at| transport.window_size(at)).collect();
        let (have, need) = (transport.spad_count(), handshake::pads_for(windows));
        if have < need {
            return Err(Refused::Spads { have, need, windows });
        }
        for sizes in [&values.sizes, &announced] {
            WindowPart::all(sizes, values.pairs, transport_mtu)?;
        }
        let timer = Timer::new().map_err(|e| Refused::System(e.to_string()))?;
        // Clear the scratchpads: they may contain an offer in mqnet's own layout.
        (0..have).for_each(|at| hw.peer_spad_write(at, 0));
        transport.spad_swap(pad::QP_LINKS, UNTOUCHED);
        for (at, value) in handshake::writes(values.pairs, &announced) {
            hw.peer_spad_write(at, value);
        }
        let links = Links::new(values.pairs);
        Ok(Some(Self {
            values,
            announced,
            transport_mtu,
            control,
            timer,
            changed: Duration::ZERO,
            pairs: Vec::new(),
            links,
            written: 0,
            is_open: false,
            lives: 0,
            checked: Duration::ZERO,
            senders: None,
        }))
    }

    /// Descriptors that are ready when a [`poll`](Self::poll) is due.
    pub(crate) fn events(&self) -> [BorrowedFd<'_>; 2] {
        [self.control.as_fd(), self.timer.as_fd()]
    }

    /// Number of queue pairs of the peer.
    pub(crate) fn pairs(&self) -> u16 {
        self.values.pairs
    }

    /// Number of queue pairs that are open or requested, at least 1.
    pub(crate) fn channels(&self, now: Duration) -> u16 {
        self.used(now).len().max(1) as u16
    }

    /// Queue pairs that are open or requested, in order.
    fn used(&self, now: Duration) -> Vec<u16> {
        let mut used: Vec<u16> = self.links.opened().chain(self.links.requested(now)).collect();
        used.sort_unstable();
        used
    }

    /// Polls the scratchpads and the state of the queues. `Err` ends the session of the link.
    pub(crate) fn poll(
        &mut self,
        hw: &dyn Hw,
        transport: &dyn TransportHw,
        now: Duration,
    ) -> Result<Status, String> {
        self.control.drain();
        let status = self.poll_once(hw, transport, now);
        self.set_timer(now);
        status
    }

    fn poll_once(
        &mut self,
        hw: &dyn Hw,
        transport: &dyn TransportHw,
        now: Duration,
    ) -> Result<Status, String> {
        match read(hw, transport) {
            Ok(Some(values)) if values == self.values => {}
            Ok(Some(values)) => {
                return Err(format!(
                    "peer: handshake changed from {:?} to {values:?}",
                    self.values
                ));
            }
            Ok(None) => return Err("peer: handshake withdrawn".to_owned()),
            Err(e) => return Err(e.to_string()),
        }
        if self.pairs.is_empty() && !self.make_pairs(hw, transport)? {
            return Ok(Status::Down(
                "waiting for the peer to set up its memory windows".to_owned(),
            ));
        }
        self.read_links(transport, now);
        self.reclaim(now);
        if self.is_open {
            self.open_requested(now);
        }
        if let Some(senders) = &self.senders {
            senders.follow(&self.used(now));
        }
        self.write_links(hw, now);
        self.check_sleepers(now);
        let serves = (0..self.values.pairs).any(|pair| self.links.is_open(pair));
        if serves || self.links.requested(now).next().is_some() {
            return Ok(Status::Up(self.lives));
        }
        Ok(Status::Down(
            "the peer has no open queue pair: set its interface up (ip link set DEV up in the \
             guest)"
                .to_owned(),
        ))
    }

    /// Sets the time of the next poll, which is earlier while pairs change.
    fn set_timer(&self, now: Duration) {
        let [time, period] = CHANGING;
        let is_due = |pair: &Pair| pair.closing.or(pair.suspect.map(|(at, _)| at)).is_some();
        let is_changing = now < self.changed + time || self.pairs.iter().any(is_due);
        // Ignore a failed timer: the next poll then waits for another event.
        let _ = self.timer.set(if is_changing { period } else { CHECK });
    }

    /// Creates the pairs with their rings; false if the peer has not set up all windows.
    fn make_pairs(&mut self, hw: &dyn Hw, transport: &dyn TransportHw) -> Result<bool, String> {
        let mut windows = Vec::with_capacity(self.announced.len());
        for (at, &announced) in self.announced.iter().enumerate() {
            let Some(window) = transport.window(at) else { return Ok(false) };
            let Some(out) = window.outbound.clone() else { return Ok(false) };
            if out.len < announced {
                return Err(format!(
                    "peer: memory window {at} has {} bytes, but {announced} were announced",
                    out.len
                ));
            }
            windows.push((window, out));
        }
        let theirs: Vec<u32> = windows.iter().map(|(_, out)| out.len).collect();
        let count = self.values.pairs;
        let parts = |sizes: &[u32]| {
            WindowPart::all(sizes, count, self.transport_mtu).map_err(|e| e.to_string())
        };
        let (ours, theirs) = (parts(&self.values.sizes)?, parts(&theirs)?);
        let doorbells = transport.doorbells();
        let mut pairs = Vec::with_capacity(usize::from(count));
        for (number, (our, their)) in (0..count).zip(ours.into_iter().zip(theirs)) {
            let (window, out) = &windows[usize::from(our.window)];
            let none = |owner: &str| format!("{owner}: no doorbell for queue pair {number}");
            let bit = doorbells.of_pair(number).ok_or_else(|| none("hardware"))?;
            let state = Arc::new(super::shared::PairState::new(self.control.clone()));
            let rx = RxSlots::new(window, out, our, their, state.clone())?;
            let tx = TxSlots::new(window, out, their, our, state.clone())?;
            let words = || {
                let table =
                    AtomicTable::new(window.inbound.clone(), window.inbound_at, window.inbound_len);
                table.ok_or("window: no such memory")
            };
            let credit = InboundWord::new(words()?, our.credit_at());
            let system = |e: io::Error| format!("queue pair {number}: {e}");
            pairs.push(Pair {
                size: (tx.slot_len(), tx.capacity()),
                queue: QueuePair {
                    state,
                    rx: Arc::new(Cell::new().map_err(system)?),
                    tx: Arc::new(Cell::new().map_err(system)?),
                    event: hw.doorbell_event(bit).ok_or_else(|| none("this end"))?,
                    trap: transport.doorbell_trap(bit),
                    doorbell: hw.peer_doorbell(bit).ok_or_else(|| none("peer"))?,
                },
                idle: IdleRings { rx: Some(Box::new(rx)), tx: Some(Box::new(tx)) },
                closing: None,
                parts: None,
                suspect: None,
                part: our,
                words: words()?,
                credit: credit.ok_or("window: no room for the credit")?,
            });
        }
        self.pairs = pairs;
        Ok(true)
    }

    /// Processes QP_LINKS and link-down slots: closes pairs that have ended.
    fn read_links(&mut self, transport: &dyn TransportHw, now: Duration) {
        let Self { pairs, links, .. } = self;
        let activity = |pair: u16| pairs[usize::from(pair)].activity();
        let all_read = |pair: u16| pairs[usize::from(pair)].complete() == 0;
        let value = transport.spad_swap(pad::QP_LINKS, UNTOUCHED);
        let mut ended = Vec::new();
        if value != UNTOUCHED {
            ended = links.note_write(value & !UNTOUCHED, now, activity);
            self.changed = now;
        }
        let in_doubt = links.tick(now, activity, all_read);
        let closes = value != UNTOUCHED && value & !UNTOUCHED & !links.ours() == 0;
        let mut late = Vec::new();
        for (number, pair) in pairs.iter_mut().enumerate() {
            if pair.misses_link_down(closes, now) && links.is_open(number as u16) {
                late.push(number as u16);
            }
        }
        for pair in 0..self.values.pairs {
            if !self.links.is_open(pair) {
                continue;
            }
            if self.pairs[usize::from(pair)].queue.state.has_ended() {
                self.close_pair(pair, Some(Parting::Any), now);
            } else if late.contains(&pair)
                // Frames that are still unread precede the link-down slot.
                || in_doubt.contains(&pair) && self.pairs[usize::from(pair)].complete() == 0
            {
                self.close_pair(pair, Some(Parting::Next), now);
            } else if ended.contains(&pair) {
                self.close_pair(pair, None, now);
            }
        }
    }

    /// Clears the bit of a pair, and recalls its rings.
    fn close_pair(&mut self, number: u16, parts: Option<Parting>, now: Duration) {
        self.links.close(number, now);
        let pair = &mut self.pairs[usize::from(number)];
        // The queues stop their use of the rings, even with frames in them.
        pair.queue.state.end();
        pair.queue.rx.recall();
        pair.queue.tx.recall();
        pair.closing = pair.closing.or(Some(now));
        pair.parts = parts;
    }

    /// Takes back recalled rings, and sends pending link-down slots.
    fn reclaim(&mut self, now: Duration) {
        for pair in &mut self.pairs {
            if pair.has_rings() {
                pair.part();
            }
            let Some(since) = pair.closing else { continue };
            pair.reclaim_rings();
            if pair.has_rings() {
                pair.closing = None;
                pair.part();
            } else if now >= since + PATIENCE {
                // A new session number closes all channels, with the queues that keep the rings.
                (self.lives, pair.closing) = (self.lives + 1, Some(now));
            }
        }
    }

    /// Opens the requested pairs, except those with a ring that a queue still has.
    fn open_requested(&mut self, now: Duration) {
        let requested: Vec<u16> = self.links.requested(now).collect();
        for number in requested {
            let pair = &mut self.pairs[usize::from(number)];
            if !pair.has_rings() {
                continue;
            }
            let IdleRings { rx: Some(mut rx), tx: Some(mut tx) } = std::mem::take(&mut pair.idle)
            else {
                continue;
            };
            (pair.parts, pair.suspect) = (None, None);
            pair.queue.state.begin();
            rx.reset();
            tx.reset();
            pair.queue.rx.offer(rx);
            pair.queue.tx.offer(tx);
            let activity = self.pairs[usize::from(number)].activity();
            self.links.open(number, now, activity);
        }
    }

    fn write_links(&mut self, hw: &dyn Hw, now: Duration) {
        if self.links.ours() != self.written {
            self.changed = now;
            self.written = self.links.ours();
            hw.peer_spad_write(pad::QP_LINKS, self.written);
        }
    }

    /// Wakes readers that sleep although their next slot is complete.
    fn check_sleepers(&mut self, now: Duration) {
        if now < self.checked + CHECK {
            return;
        }
        self.checked = now;
        for pair in &self.pairs {
            if let Some(at) = pair.queue.state.asleep()
                && pair.words.byte(at).load(Ordering::Acquire) & DONE != 0
            {
                pair.queue.state.woken();
                pair.queue.rx.wake();
            }
        }
    }

    /// Creates the channels of a plan. `Err` if the peer has too few queue pairs or the system
    /// refuses.
    pub(crate) fn channels_of(
        &mut self,
        plan: &Plan,
        stats: &[Arc<QueuePairStats>],
        now: Duration,
    ) -> Result<Vec<Channel>, String> {
        let (count, pairs) = (plan.channels, self.pairs.len() as u16);
        if count == 0 || count > pairs {
            return Err(format!("{count} channels, the peer has {pairs} queue pairs"));
        }
        // Channels send into pairs that are in use, and into unused pairs only if there are too
        // few.
        let mut senders = self.used(now);
        senders.extend((0..pairs).filter(|pair| !self.used(now).contains(pair)));
        senders.truncate(count.into());
        let all = self.pairs.iter().map(|pair| (pair.queue.clone(), pair.size)).collect();
        let senders = Arc::new(Senders::new(all, &senders));
        let make = |channel: u16| -> io::Result<Channel> {
            let of = |pair: u16| (pair, self.pairs[usize::from(pair)].queue.clone());
            let received = (channel..pairs).step_by(count.into()).map(of);
            let stats = &stats[usize::from(channel)];
            let rx = PairsRx::new(channel, received, plan.rx_frame_max(), stats.clone())?;
            let tx = PairTx::new(channel, senders.clone(), stats.clone())?;
            Ok(Channel { rx: Rx::Owning(Box::new(rx)), tx: Tx::Owning(Box::new(tx)) })
        };
        let channels = (0..count).map(make).collect::<io::Result<_>>();
        let channels = channels.map_err(|e| e.to_string())?;
        (self.is_open, self.senders) = (true, Some(senders));
        Ok(channels)
    }

    /// Largest number of frames in all rings to the peer; at least 1.
    pub(crate) fn waiting_most(&self) -> u32 {
        self.pairs.iter().map(|pair| pair.size.1).sum::<u32>().max(1)
    }

    /// Windows and queue pairs for `show`; `None` until the peer has set up its windows.
    pub(crate) fn slot_rings(&self, transport: &dyn TransportHw) -> Option<SlotRings> {
        let first = self.pairs.first()?;
        let windows = self.announced.iter().enumerate().map(|(at, &announced)| {
            let out = transport.window(at).and_then(|window| window.outbound);
            (announced, out.map_or(0, |out| out.len))
        });
        let view = |(number, pair): (usize, &Pair)| {
            let [received, credits] = pair.queue.state.counts();
            PairView {
                pair: number as u16,
                is_open: self.links.is_open(number as u16),
                rx_slots: pair.part.slots,
                rx_waiting: pair.complete(),
                tx_slots: pair.size.1 + 1,
                tx_in_use: pair.queue.state.in_use(),
                received,
                credits,
            }
        };
        Some(SlotRings {
            slot: first.part.slot,
            windows: windows.collect(),
            vectors: transport.vectors(),
            pairs: self.pairs.iter().enumerate().map(view).collect(),
        })
    }

    /// First violation of the protocol; `None` if there was none.
    pub(crate) fn violation(&self) -> Option<String> {
        self.pairs.iter().find_map(|pair| pair.queue.state.violation())
    }

    /// Closes all open pairs and sends link-down slots. The engine has dropped all channels.
    pub(crate) fn close(&mut self, hw: &dyn Hw, now: Duration) {
        (self.is_open, self.senders) = (false, None);
        self.lives += 1;
        for number in 0..self.pairs.len() as u16 {
            if self.links.is_open(number) {
                let has_ended = self.pairs[usize::from(number)].queue.state.has_ended();
                let parts = if has_ended { Parting::Any } else { Parting::Next };
                self.close_pair(number, Some(parts), now);
            }
        }
        self.reclaim(now);
        self.write_links(hw, now);
    }
}

impl Pair {
    /// Sends the pending link-down notification; `Parting::Next` waits for a free slot.
    fn part(&mut self) {
        let (Some(parts), Some(tx)) = (self.parts, &mut self.idle.tx) else { return };
        match parts {
            Parting::Any => tx.fill_with_link_down(),
            Parting::Next if tx.send_link_down() => {}
            Parting::Next => return,
        }
        self.parts = None;
        // Ignore an error: the hardware link reports a failed doorbell.
        let _ = self.queue.doorbell.ring();
    }

    /// Value that changes with each frame that the peer sends or consumes: frames received, and the
    /// peer's credit. Reads the credit from memory: a queue reads it only when no slot is free,
    /// possibly long after the peer has closed the pair.
    fn activity(&self) -> u64 {
        let [received, _] = self.queue.state.counts();
        received << 32 | u64::from(self.credit.read())
    }

    /// Number of complete slots in this end's window.
    fn complete(&self) -> u32 {
        let flags = |slot| self.words.byte(self.part.header_at(slot) + FLAGS);
        let is_done = |slot: &u32| flags(*slot).load(Ordering::Acquire) & DONE != 0;
        (0..self.part.slots).filter(is_done).count() as u32
    }

    /// True if the peer has closed the pair and could not send a link-down slot. `closes` is true
    /// if the peer has just closed some pair.
    fn misses_link_down(&mut self, closes: bool, now: Duration) -> bool {
        let activity = self.activity();
        if closes && self.complete() + 1 >= self.part.slots {
            self.suspect = Some((now, activity));
        }
        match self.suspect {
            Some((_, before)) if before != activity => {
                self.suspect = Some((now, activity));
                false
            }
            Some((since, _)) => {
                let is_late = now >= since + LINK_DOWN_LATE && self.complete() == 0;
                if is_late {
                    self.suspect = None;
                }
                is_late
            }
            None => false,
        }
    }

    fn reclaim_rings(&mut self) {
        self.idle.rx = self.idle.rx.take().or_else(|| self.queue.rx.take());
        if self.idle.tx.is_none() {
            self.idle.tx = self.queue.tx.take();
            let lost = self.idle.tx.as_mut().map_or(0, |tx| tx.take_lost());
            if lost > 0 {
                self.queue.state.note_lost(lost);
            }
        }
    }

    fn has_rings(&self) -> bool {
        self.idle.rx.is_some() && self.idle.tx.is_some()
    }
}

/// Reads the peer's values, within the limits of the hardware.
fn read(hw: &dyn Hw, transport: &dyn TransportHw) -> Result<Option<PeerValues>, HandshakeError> {
    let sizes: Vec<u32> =
        (0..transport.window_count()).map(|at| transport.window_size(at)).collect();
    let limits = OwnLimits { pairs: transport.doorbells().pairs_max(), windows: &sizes };
    handshake::read(|at| hw.spad_read(at), limits)
}
