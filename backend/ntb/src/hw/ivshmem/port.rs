//! One side of the shared memory: owns a half, finds the owner of the other half, and detects the
//! loss of that owner.
//!
//! A guest receives no event when the other side ends. Both sides therefore change a heartbeat, and
//! a side counts as lost when its heartbeat stops. A side that has lost its peer leaves its half.
//! It claims a half again, with a new incarnation, after all writes for the former peer.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;

use super::card::{self, Card, DOORBELLS};
use super::wake::{Events, PeerDoorbell, Watcher};
use super::{Attachment, Bus, check_size};
use crate::hw::{Doorbell, MemoryWindows};
use crate::mix;

/// Time between the claim of a half and the check that no other process has claimed the half too.
const SETTLE: Duration = Duration::from_millis(60);
/// Time without a heartbeat of the peer after which the peer is lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Time without a heartbeat of a half's owner after which another process may claim the half.
const STALE: Duration = Duration::from_secs(3);
/// Shortest interval between heartbeats; the control thread polls a running link once a second.
const BEAT: Duration = Duration::from_millis(100);
/// Delays before the next claim: after the loss of the peer, and after the loss of the own half or
/// of the memory.
const REST: Duration = Duration::from_millis(10);
const TAKEN_REST: Duration = Duration::from_millis(500);

/// State of the link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Down(String),
    Up {
        /// True if the link was down at the previous poll.
        fresh: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No half is owned; the next attempt is not before this time.
    Out(Duration),
    /// The incarnation is written to a half, and is checked again at this time.
    Settling(Duration),
    /// The half is owned.
    In,
}

/// Last change of the heartbeat in a half.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    incarnation: u64,
    beat: u64,
    since: Duration,
}

pub(super) struct Port {
    at: Attachment,
    wanted: Option<u8>,
    seed: u64,
    events: Events,
    watcher: Option<Watcher>,
    stage: Stage,
    why_out: String,
    side: usize,
    incarnation: u64,
    /// Incarnation of the peer for which this side has cleared its half; 0 for none.
    known: u64,
    bells: Vec<Arc<dyn Doorbell>>,
    up: bool,
    beat: (u64, Duration),
    seen: [Seen; 2],
}

impl Port {
    pub(super) fn new(at: Attachment, wanted: Option<u8>, seed: u64) -> Result<Self, String> {
        check_size(at.size)?;
        let events = Events::new(&at.vectors).map_err(|e| format!("doorbells: {e}"))?;
        Ok(Self {
            side: usize::from(wanted.unwrap_or(0)),
            at,
            wanted,
            seed,
            events,
            watcher: None,
            stage: Stage::Out(Duration::ZERO),
            why_out: "waiting for a free side of the shared memory".to_owned(),
            incarnation: 0,
            known: 0,
            bells: Vec::new(),
            up: false,
            beat: (0, Duration::ZERO),
            seen: [Seen::default(); 2],
        })
    }

    fn ours(&self) -> &Arc<Region> {
        &self.at.halves[self.side]
    }

    fn theirs(&self) -> &Arc<Region> {
        &self.at.halves[1 - self.side]
    }

    /// Makes progress and returns the state of the link.
    pub(super) fn poll(&mut self, now: Duration, bus: &dyn Bus) -> Standing {
        // Drain the event before the words are read: a write after the drain signals the event
        // again.
        self.events.drain_link();
        if self.at.halves.iter().any(|half| half.is_lost()) {
            self.leave(now + TAKEN_REST);
            return Standing::Down("the shared memory was removed".to_owned());
        }
        match self.stage {
            Stage::Out(until) if now < until => return Standing::Down(self.why_out.clone()),
            Stage::Out(_) => {
                if let Err(why) = self.take_side(now, bus) {
                    self.why_out.clone_from(&why);
                    return Standing::Down(why);
                }
            }
            Stage::Settling(until) if now < until => {}
            Stage::Settling(_) => {
                if let Err(why) = self.settle(now) {
                    return self.lose(why, now + TAKEN_REST);
                }
            }
            Stage::In => return self.meet(now, bus),
        }
        Standing::Down(format!("claiming side {} of the shared memory", self.side))
    }

    /// Time for which this side has seen the same incarnation and heartbeat in half `side`.
    fn silence(&mut self, side: usize, incarnation: u64, now: Duration) -> Duration {
        let beat = card::beat(&self.at.halves[side]);
        let seen = &mut self.seen[side];
        if (seen.incarnation, seen.beat) != (incarnation, beat) {
            *seen = Seen { incarnation, beat, since: now };
        }
        now.saturating_sub(seen.since)
    }

    /// Claims a free half, or the half that this end owned before, and writes its card. `Err` if
    /// the wanted half, or both, are in use, or a card is invalid.
    fn take_side(&mut self, now: Duration, bus: &dyn Bus) -> Result<(), String> {
        let mut free = [false; 2];
        let mut owners = [None; 2];
        let mut former = None;
        for side in 0..2 {
            let Some(card) = card::read(&self.at.halves[side])? else {
                free[side] = true;
                continue;
            };
            owners[side] = card.id;
            if card.id.is_some() && card.id == self.at.id {
                // The card is that of an earlier session of this end.
                former = Some(side);
            }
            let left = card.id.and_then(|id| bus.has(id)) == Some(false);
            free[side] = left || self.silence(side, card.incarnation, now) > STALE;
        }
        let named = |side: usize| owners[side].map_or(String::new(), |id| format!(" (peer {id})"));
        let side = match (self.wanted.map(usize::from), former) {
            (Some(side), _) if free[side] || former == Some(side) => side,
            (Some(side), _) => {
                return Err(format!("side {side} is in use{}: use side={}", named(side), 1 - side));
            }
            (None, Some(side)) => side,
            // Prefer the half that this side used before.
            (None, None) if free[self.side] => self.side,
            (None, None) if free[1 - self.side] => 1 - self.side,
            (None, None) => {
                let (a, b) = (named(0), named(1));
                return Err(format!("both sides of the shared memory are in use{a}{b}"));
            }
        };
        if former == Some(1 - side) {
            card::set_incarnation(&self.at.halves[1 - side], 0);
        }
        self.side = side;
        self.incarnation = mix::next(&mut self.seed);
        card::set_incarnation(self.ours(), 0);
        self.write_card();
        card::set_echo(self.ours(), 0);
        card::set_incarnation(self.ours(), self.incarnation);
        self.stage = Stage::Settling(now + SETTLE);
        Ok(())
    }

    fn write_card(&self) {
        let vectors = self.at.vectors.len() as u32;
        let (id, size) = (self.at.id, self.at.size);
        card::write(self.ours(), &Card { id, vectors, size, incarnation: 0, echo: 0 });
    }

    fn is_still_ours(&self) -> Result<(), String> {
        if card::incarnation(self.ours()) == self.incarnation {
            return Ok(());
        }
        Err(format!("another process has claimed side {} of the shared memory", self.side))
    }

    /// Completes the claim and starts the watcher of the doorbells. `Err` if another process has
    /// overwritten the incarnation, or the watcher fails.
    fn settle(&mut self, now: Duration) -> Result<(), String> {
        self.is_still_ours()?;
        // Write the card again: a process that lost the race may have overwritten fields.
        self.write_card();
        self.watcher = self.events.watch(self.ours()).map_err(|e| format!("doorbells: {e}"))?;
        self.stage = Stage::In;
        self.beat.1 = now;
        Ok(())
    }

    /// Checks that the half is still owned, changes the heartbeat and polls the other side.
    fn meet(&mut self, now: Duration, bus: &dyn Bus) -> Standing {
        if let Err(why) = self.is_still_ours() {
            // The new owner's card stays: `leave` clears the incarnation only while the half is
            // owned.
            return self.lose(why, now + TAKEN_REST);
        }
        if now >= self.beat.1 + BEAT {
            self.beat = (self.beat.0.wrapping_add(1), now);
            card::set_beat(self.ours(), self.beat.0);
        }
        let met = self.read_peer(now, bus);
        match met {
            Ok(card) if self.up && card.incarnation != self.known => {
                self.lose("the peer was restarted".to_owned(), now + REST)
            }
            Ok(card) => self.shake_hands(&card, bus),
            Err(why) if self.up => self.lose(why, now + REST),
            Err(why) => Standing::Down(why),
        }
    }

    /// Card of the peer; `Err` with the reason if there is no live peer, or its card is invalid or
    /// has another memory size.
    fn read_peer(&mut self, now: Duration, bus: &dyn Bus) -> Result<Card, String> {
        let Some(card) = card::read(self.theirs())? else {
            let why = if self.up { "the peer closed the link" } else { "waiting for a peer" };
            return Err(why.to_owned());
        };
        if card.size != self.at.size {
            let (theirs, ours) = (card.size, self.at.size);
            return Err(format!("the shared memory has {theirs} bytes at the peer, {ours} here"));
        }
        let id = card.id.map_or(String::new(), |id| format!(" {id}"));
        if card.id.and_then(|id| bus.has(id)) == Some(false) {
            return Err(format!("the peer{id} has left the device"));
        }
        if self.silence(1 - self.side, card.incarnation, now) > SILENCE {
            return Err(format!("the peer{id} does not update its heartbeat"));
        }
        Ok(card)
    }

    fn shake_hands(&mut self, card: &Card, bus: &dyn Bus) -> Standing {
        if self.up {
            return Standing::Up { fresh: false };
        }
        if card.incarnation != self.known {
            card::clear(self.ours());
            card::set_echo(self.ours(), card.incarnation);
            self.known = card.incarnation;
        }
        if card.echo != self.incarnation {
            return Standing::Down("waiting for the peer's handshake".to_owned());
        }
        match self.make_bells(card, bus) {
            Ok(bells) => {
                self.bells = bells;
                self.up = true;
                Standing::Up { fresh: true }
            }
            Err(why) => Standing::Down(why),
        }
    }

    fn make_bells(&self, card: &Card, bus: &dyn Bus) -> Result<Vec<Arc<dyn Doorbell>>, String> {
        let count = Arc::new(AtomicU64::new(self.incarnation));
        let bell = |bit| -> Result<Arc<dyn Doorbell>, String> {
            let via = bus.via(card.id, card::vector(bit, card.vectors), card.vectors)?;
            let (half, count) = (self.theirs().clone(), count.clone());
            Ok(Arc::new(PeerDoorbell { half, bit, via, count }))
        };
        (0..DOORBELLS).map(bell).collect()
    }

    fn lose(&mut self, why: String, rest_until: Duration) -> Standing {
        self.leave(rest_until);
        self.why_out.clone_from(&why);
        Standing::Down(why)
    }

    /// Leaves the half, signals the peer and ends the link. The next claim is not before
    /// `rest_until`.
    pub(super) fn leave(&mut self, rest_until: Duration) {
        if !matches!(self.stage, Stage::Out(_)) && self.is_still_ours().is_ok() {
            card::set_incarnation(self.ours(), 0);
        }
        if let Some(bell) = self.bells.first() {
            // Ignore a failed doorbell: the peer's control thread also polls once a second.
            let _ = bell.ring();
        }
        self.bells.clear();
        self.watcher = None;
        (self.up, self.known) = (false, 0);
        self.stage = Stage::Out(rest_until);
        self.why_out = "resting".to_owned();
    }

    pub(super) fn link_event(&self) -> BorrowedFd<'_> {
        self.events.link()
    }

    pub(super) fn window_len(&self) -> u32 {
        (self.ours().len() - card::WINDOW) as u32
    }

    pub(super) fn windows(&self) -> Option<MemoryWindows> {
        self.up.then(|| MemoryWindows {
            inbound: self.ours().clone(),
            inbound_len: self.window_len(),
            outbound: self.theirs().clone(),
            outbound_len: self.window_len(),
            offset: card::WINDOW,
        })
    }

    pub(super) fn spad_read(&self, pad: usize) -> u32 {
        if !self.up {
            return 0;
        }
        // Pairs with the Release store in peer_spad_write: scratchpads written earlier are visible.
        u64::from_le(self.ours().word(card::pad(pad)).load(Ordering::Acquire)) as u32
    }

    pub(super) fn peer_spad_write(&self, pad: usize, value: u32) {
        if self.up {
            let word = self.theirs().word(card::pad(pad));
            // Pairs with the Acquire load in spad_read: scratchpads written earlier are visible.
            word.store(u64::from(value).to_le(), Ordering::Release);
        }
    }

    pub(super) fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        self.bells.get(bit).cloned()
    }

    pub(super) fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.events.get(bit).cloned()
    }

    pub(super) fn is_second(&self) -> bool {
        self.side == 1
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.leave(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests;
