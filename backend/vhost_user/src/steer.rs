//! TX queue to a guest with a control queue. The queue filters frames and may select the guest's
//! queue by RSS.
//!
//! With default settings each frame goes to the queue of its lane, for the cost of one comparison
//! of versions. With a filter, hash or RSS table each frame's headers are parsed. A frame from a
//! system-call queue is then received into a page first, because its target queue is not yet known.
//! With an RSS table any lane may send to any queue, so the lanes share the queues; a lane that
//! finds a queue in use tries again later.

pub(crate) mod receiver;

use std::io;
use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Frame, FrameMeta, OwningTx, Queue, QueuePairStats, WakeSource,
};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_virtio::net::rss::Hashed;
use mqnet_virtio::net::rx_queue;
use mqnet_wire::{FlowKeys, HEADERS_MAX, Layer};

use crate::GuestRx;
use crate::receive::{ReceiveSettings, Receiving};
use crate::shared::watching;
use crate::state::State;
use crate::vring::EpollSet;
pub(crate) use receiver::Receiver;

/// TX queue of one lane to a guest with a control queue.
#[derive(Debug)]
pub(crate) struct Steered {
    channel: u16,
    /// Queues of all pairs, shared with the other lanes.
    receivers: Vec<Arc<Receiver>>,
    receiving: Arc<Receiving>,
    version: u32,
    settings: Arc<ReceiveSettings>,
    /// Events of the lane's own queue, and of the queue for which the lane waits.
    events: EpollSet,
    watched: Option<usize>,
    held: bool,
    /// Queue of the lane, while it is taken: between the first frame and the flush.
    own_queue: Option<Box<GuestRx>>,
    /// Index of the queue that last was full or in use.
    full: usize,
    page: Vec<u8>,
    /// Frame in the page, until its queue accepts the frame.
    kept: Option<FrameMeta>,
    /// Fault of `commit`, which cannot return one; the next call returns it.
    fault: Option<Fault>,
    stats: Arc<QueuePairStats>,
}

impl Steered {
    pub(crate) fn new(
        channel: u16,
        state: &mut State,
        stats: &[Arc<QueuePairStats>],
    ) -> io::Result<Self> {
        let receivers = (0..state.offer.pairs).map(|pair| {
            let slot = &mut state.slots[usize::from(rx_queue(pair))];
            if let Some(receiver) = &slot.receiver {
                return Ok(receiver.clone());
            }
            let stats = stats[usize::from(pair)].clone();
            let receiver = Arc::new(Receiver::new(pair, slot.cell.clone(), stats)?);
            slot.receiver = Some(receiver.clone());
            Ok(receiver)
        });
        let receivers = receivers.collect::<io::Result<Vec<_>>>()?;
        let events = EpollSet::new()?;
        events.set_watched(receivers[usize::from(channel)].events(), true)?;
        let receiving = state.receiving.clone();
        Ok(Self {
            channel,
            receivers,
            version: receiving.version(),
            settings: receiving.get(),
            receiving,
            events,
            watched: None,
            held: false,
            own_queue: None,
            full: usize::from(channel),
            page: Vec::new(),
            kept: None,
            fault: None,
            stats: stats[usize::from(channel)].clone(),
        })
    }

    fn own(&self) -> &Receiver {
        &self.receivers[usize::from(self.channel)]
    }

    /// Loads changed settings; true if frames pass unchanged on the lane's own queue.
    #[inline]
    fn is_plain(&mut self) -> bool {
        if self.version != self.receiving.version() {
            self.reload();
        }
        self.settings.is_plain()
    }

    #[cold]
    fn reload(&mut self) {
        self.version = self.receiving.version();
        self.settings = self.receiving.get();
        self.full = usize::from(self.channel);
    }

    /// Takes the lane's own queue; `None` if another lane uses it.
    #[inline]
    fn own_queue(&mut self) -> Option<&mut GuestRx> {
        if self.own_queue.is_none() {
            self.own_queue = self.own().take();
            if let Some(queue) = &mut self.own_queue {
                queue.set_hash(Hashed::default());
            }
        }
        self.own_queue.as_deref_mut()
    }

    /// Publishes the frames of the lane's own queue and puts the queue back.
    #[inline]
    fn flush_own(&mut self) -> Result<(), Fault> {
        match self.own_queue.take() {
            Some(queue) => self.own().finish(self.channel, queue),
            None => Ok(()),
        }
    }

    /// Sends frames one by one, each to its queue; returns the number of sent and filtered
    /// frames.
    fn submit_each(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.flush_own()?;
        let settings = self.settings.clone();
        let (mut taken, mut unwanted) = (0, 0);
        let mut open: Option<(usize, Box<GuestRx>)> = None;
        let mut done = Ok(());
        for frame in &burst.frames()[from..] {
            let keys = keys_of(burst, frame);
            if !settings.passes(&keys) {
                (taken, unwanted) = (taken + 1, unwanted + 1);
                continue;
            }
            let (hashed, pair) = settings.choose(&keys);
            let at = pair.map_or(usize::from(self.channel), usize::from);
            if open.as_ref().is_none_or(|(there, _)| *there != at) {
                done = done.and(self.finish(open.take()));
                open = self.receivers.get(at).and_then(|r| r.take()).map(|queue| (at, queue));
            }
            let sent = match &mut open {
                Some((_, queue)) => send_one(queue, burst, frame, hashed),
                None => Ok(false),
            };
            match sent {
                Ok(true) => taken += 1,
                Ok(false) => {
                    self.full = at;
                    break;
                }
                Err(fault) => {
                    done = Err(fault);
                    break;
                }
            }
        }
        done = done.and(self.finish(open));
        if unwanted > 0 {
            self.stats.tx.drops.count(DropReason::NotWanted, unwanted);
        }
        // The caller must first release the frames that were taken before the fault; the next
        // submit returns the fault again.
        if taken == 0 { done.map(|()| 0) } else { Ok(taken) }
    }

    fn finish(&self, open: Option<(usize, Box<GuestRx>)>) -> Result<(), Fault> {
        let Some((at, queue)) = open else { return Ok(()) };
        self.receivers[at].finish(self.channel, queue)
    }

    /// Submits the kept frame, if any. Returns false if the frame stays in its page.
    fn send_kept(&mut self) -> Result<bool, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Some(FrameMeta { len, hdr }) = self.kept else { return Ok(true) };
        let page = std::mem::take(&mut self.page);
        let sent = {
            let mut burst = Burst::new();
            burst.push(hdr, len, Span::of(&page).first(len as usize));
            self.submit_each(&burst, 0)
        };
        self.page = page;
        if sent? == 1 {
            self.kept = None;
        }
        Ok(self.kept.is_none())
    }

    /// Adds the events of queue `to`, if any, to those of the lane's own queue. Removes the events
    /// of the queue that was watched before.
    fn watch(&mut self, to: Option<usize>) -> io::Result<()> {
        if self.watched == to {
            return Ok(());
        }
        if let Some(before) = self.watched.take() {
            self.events.set_watched(self.receivers[before].events(), false)?;
        }
        if let Some(at) = to {
            self.events.set_watched(self.receivers[at].events(), true)?;
            self.watched = to;
        }
        Ok(())
    }
}

/// Flow keys of a frame. The headers are read once into private memory.
fn keys_of(burst: &Burst<'_>, frame: &Frame<'_>) -> FlowKeys {
    let mut headers = [0; HEADERS_MAX];
    let mut len = 0;
    for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
        len += piece.read_header(&mut headers[len..]);
    }
    FlowKeys::dissect(&headers[..len], Layer::Ethernet)
}

fn send_one(
    queue: &mut GuestRx,
    burst: &Burst<'_>,
    frame: &Frame<'_>,
    hashed: Hashed,
) -> Result<bool, Fault> {
    queue.set_hash(hashed);
    let mut one = Burst::new();
    // An empty burst has space for one frame.
    one.push_pieces(frame.hdr, frame.len, frame.head, burst.more(frame));
    Ok(queue.submit(&one, 0)? == 1)
}

impl Queue for Steered {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.flush_own()?;
        if self.held {
            return Ok(Armed::MoreWork);
        }
        let own = usize::from(self.channel);
        let at = if self.is_plain() { own } else { self.full };
        self.watch(Some(at).filter(|at| *at != own)).map_err(|e| watching(self.channel, &e))?;
        let Some(receiver) = self.receivers.get(at) else { return Ok(Armed::MoreWork) };
        receiver.wait(self.channel);
        let Some(mut queue) = receiver.take() else { return Ok(Armed::MoreWork) };
        let armed = queue.arm(self.kept.map_or(need, |frame| frame.len));
        receiver.put_without_wake(queue);
        armed
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.events.event())
    }

    /// Puts the lane's own queue back, so that other lanes can take it.
    fn park(&mut self) {
        // An error is ignored: the next user of a broken ring finds the violation again.
        let _ = self.flush_own();
    }
}

impl OwningTx for Steered {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        if self.held {
            return Ok(0);
        }
        let is_plain = self.is_plain();
        if !self.send_kept()? {
            return Ok(0);
        }
        if !is_plain {
            return self.submit_each(burst, from);
        }
        self.own_queue().map_or(Ok(0), |queue| queue.submit(burst, from))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let is_plain = self.is_plain();
        if self.held || !self.send_kept()? {
            return Ok(None);
        }
        if is_plain {
            return self.own_queue().map_or(Ok(None), |queue| queue.reserve(max));
        }
        self.flush_own()?;
        if self.page.len() < max as usize {
            self.page.resize(max as usize, 0);
        }
        let page = SpanMut::of(&mut self.page[..max as usize]);
        Ok(Some(Segments::new(page, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        // The last reservation was in the own queue if that queue is taken, otherwise in the
        // page.
        if let Some(queue) = &mut self.own_queue {
            queue.commit(frame);
            return;
        }
        self.kept = Some(*frame);
        self.fault = self.send_kept().err();
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.flush_own()
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.held = on;
        self.flush_own()
    }

    /// True if no frame is left in the page. A guest does not report when it reads published
    /// frames.
    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.flush_own()?;
        self.send_kept()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        self.park();
        if self.kept.is_some() {
            self.stats.tx.drops.count(DropReason::LinkClosed, 1);
        }
    }
}
