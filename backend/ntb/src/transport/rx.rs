//! RX queue of a channel, over one or more queue pairs.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES};
use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, OwningRx, Queue, QueuePairStats, Trigger, WakeSource,
};
use mqnet_sysio::epoll::{Epoll, Interest};

use super::cell::Held;
use super::queue_pair::QueuePair;
use super::shared::PairState;
use super::slots::{RxSlots, full_barrier};
use super::violation::Violation;
use crate::hw::DoorbellTrap;

/// Queue pair of the channel.
struct Served {
    pair: u16,
    held: Held<RxSlots>,
    trap: Option<Arc<dyn DoorbellTrap>>,
    is_armed: bool,
}

/// RX queue. Each peek returns frames of one queue pair.
pub(crate) struct PairsRx {
    channel: u16,
    pairs: Vec<Served>,
    /// Index of the pair that the next peek polls first.
    turn: usize,
    frame_max: u32,
    /// Lengths of the frames that the last peek returned.
    lens: [u32; BURST_FRAMES],
    shown: u32,
    epoll: Epoll,
    stats: Arc<QueuePairStats>,
}

impl PairsRx {
    /// RX queue over these queue pairs, at least one, each with its number.
    pub(crate) fn new(
        channel: u16,
        pairs: impl IntoIterator<Item = (u16, QueuePair)>,
        frame_max: u32,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let serve = |(pair, it): (u16, QueuePair)| {
            epoll.add(it.rx.event(), Interest::ReadableEdge, 0)?;
            epoll.add(it.event.as_fd(), Interest::ReadableEdge, 0)?;
            Ok(Served { pair, held: Held::new(it.rx), trap: it.trap, is_armed: false })
        };
        let pairs = pairs.into_iter().map(serve).collect::<io::Result<_>>()?;
        let lens = [0; BURST_FRAMES];
        Ok(Self { channel, pairs, turn: 0, frame_max, lens, shown: 0, epoll, stats })
    }

    #[inline]
    fn pass_on(&mut self) {
        self.turn = if self.turn + 1 >= self.pairs.len() { 0 } else { self.turn + 1 };
    }

    /// Selects the next queue pair with a complete slot, from the current pair on; false if there
    /// is none.
    #[inline]
    fn find_work(&mut self) -> bool {
        for _ in 0..self.pairs.len() {
            let served = &mut self.pairs[self.turn];
            if served.is_armed {
                served.disarm();
            }
            if served.held.ready().is_some_and(|ring| ring.has_work() && !ring.state.has_ended()) {
                return true;
            }
            self.pass_on();
        }
        false
    }
}

impl Served {
    #[cold]
    fn disarm(&mut self) {
        self.is_armed = false;
        if let Some(trap) = &self.trap {
            trap.disarm();
        }
    }
}

/// Stores a violation in the pair's state, and returns it as a fault for the engine.
#[cold]
pub(super) fn fault(channel: u16, pair: u16, state: &PairState, violation: &Violation) -> Fault {
    let what = format!("queue pair {pair}: {violation}");
    state.violate(&what);
    Fault { channel, what }
}

impl Queue for PairsRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        let mut armed = Armed::Sleep;
        for served in &mut self.pairs {
            served.is_armed = true;
            if let Some(trap) = &served.trap {
                trap.arm();
            }
        }
        // Arm before the slots are checked. The peer writes a slot, then reads its doorbell's
        // offset: either this end finds the slot, or the peer rings the trapped doorbell.
        full_barrier();
        for served in &mut self.pairs {
            let Some(ring) = served.held.ready() else { continue };
            if ring.state.has_ended() {
                continue;
            }
            ring.check_order().map_err(|e| fault(self.channel, served.pair, &ring.state, &e))?;
            if ring.has_work() {
                armed = Armed::MoreWork;
            }
            ring.note_sleep();
        }
        Ok(armed)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.epoll.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        self.shown = 0;
        for served in &mut self.pairs {
            served.disarm();
            served.held.leave();
        }
    }
}

impl OwningRx for PairsRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.shown = 0;
        // Frames that are too long are dropped one by one. The loop is limited, because a ring
        // may be full of them.
        for _ in 0..BURST_FRAMES {
            if !self.find_work() {
                return Ok(());
            }
            let served = &mut self.pairs[self.turn];
            let Some(ring) = served.held.ring() else { return Ok(()) };
            match ring.first_is_too_long(self.frame_max) {
                Ok(false) => break,
                Ok(true) => {
                    ring.release(1);
                    self.stats.rx.drops.count(DropReason::TooLong, 1);
                }
                Err(e) => return Err(fault(self.channel, served.pair, &ring.state, &e)),
            }
        }
        let Self { pairs, turn, lens, shown, frame_max, channel, .. } = self;
        let served = &pairs[*turn];
        let Some(ring) = served.held.ring_ref() else { return Ok(()) };
        let peeked = ring.peek(burst, budget as u32, BURST_BYTES, *frame_max, lens);
        *shown = peeked.map_err(|e| fault(*channel, served.pair, &ring.state, &e))?;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        if frames == 0 {
            return Ok(());
        }
        let Some(ring) = self.pairs[self.turn].held.ring() else { return Ok(()) };
        ring.release(frames as u32);
        let bytes: u32 = self.lens[..self.shown as usize][..frames].iter().sum();
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add(bytes.into());
        // Stay at this pair if a peeked frame was not released: the next peek must return it first.
        if frames == self.shown as usize {
            self.pass_on();
        }
        self.shown = 0;
        Ok(())
    }
}
