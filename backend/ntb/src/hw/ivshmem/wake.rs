//! Doorbells of the other side, and the events that this side's doorbells signal.
//!
//! A ring changes a word in the other side's half, then interrupts that side if it has interrupt
//! vectors. A side with fewer than two vectors runs a thread that polls the words and signals the
//! workers' events. With one vector, the thread also waits for the interrupt, and finds in the
//! words which doorbells were rung.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{poll, process};

use super::card::{DOORBELLS, doorbell, vector};
use crate::hw::Doorbell;

/// Shortest and longest poll interval of the words without an interrupt; the interval doubles after
/// each poll without a ring. Workers poll their lanes for a millisecond after traffic, so the
/// longer interval adds latency only after a pause.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(4)];
/// Poll interval of the words with an interrupt, in case an interrupt was lost.
const SAFETY_INTERVAL: Duration = Duration::from_millis(100);

/// Offset of the device register Doorbell, which interrupts a peer.
const DOORBELL: usize = 12;

/// Method to interrupt a peer.
#[derive(Clone, Debug)]
pub(super) enum Via {
    /// No interrupt: the peer polls its words.
    Nothing,
    /// Eventfd that interrupts the peer: a process or a VMM waits for it.
    Event(Arc<EventFd>),
    /// Device registers, and the value for the doorbell register.
    Register(Arc<Region>, u32),
}

/// Doorbell of the other side.
#[derive(Debug)]
pub(super) struct PeerDoorbell {
    pub(super) half: Arc<Region>,
    pub(super) bit: usize,
    pub(super) via: Via,
    /// Next value for a doorbell word. All doorbells of the side share the counter, so that every
    /// ring changes its word.
    pub(super) count: Arc<AtomicU64>,
}

impl Doorbell for PeerDoorbell {
    fn ring(&self) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // Pairs with the Acquire load in Body::poll: makes the writes before the ring visible.
        self.half.word(doorbell(self.bit)).store(number.to_le(), Ordering::Release);
        match &self.via {
            Via::Nothing => Ok(()),
            Via::Event(event) => event.ring(),
            Via::Register(registers, value) => {
                // Pairs with the load of the word after an interrupt: the word is written before
                // the register.
                fence(Ordering::SeqCst);
                registers.set_register(DOORBELL, *value);
                Ok(())
            }
        }
    }
}

/// Events of this side's doorbells.
#[derive(Debug)]
pub(super) struct Events {
    by_bit: Vec<Arc<EventFd>>,
    /// True if the watcher signals the events; false if the device's interrupts do.
    watched: bool,
    interrupt: Option<Arc<EventFd>>,
}

impl Events {
    pub(super) fn new(vectors: &[Arc<EventFd>]) -> io::Result<Self> {
        // The link needs a vector that no queue uses, because only the link's event is drained. One
        // vector cannot serve both.
        let watched = vectors.len() < 2;
        let of_bit = |bit| match watched {
            true => EventFd::new().map(Arc::new),
            false => Ok(vectors[vector(bit, vectors.len() as u32) as usize].clone()),
        };
        let by_bit = (0..DOORBELLS).map(of_bit).collect::<io::Result<Vec<_>>>()?;
        let interrupt = vectors.first().filter(|_| watched).cloned();
        Ok(Self { by_bit, watched, interrupt })
    }

    pub(super) fn get(&self, bit: usize) -> Option<&Arc<EventFd>> {
        self.by_bit.get(bit)
    }

    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.by_bit[0].as_fd()
    }

    pub(super) fn drain_link(&self) {
        self.by_bit[0].drain();
    }

    /// Starts a watcher for the doorbell words in `half`; `None` if interrupts signal the events.
    pub(super) fn watch(&self, half: &Arc<Region>) -> io::Result<Option<Watcher>> {
        if !self.watched {
            return Ok(None);
        }
        let stop = Arc::new(EventFd::new()?);
        let mut body = Body {
            half: half.clone(),
            seen: [0; DOORBELLS],
            events: self.by_bit.clone(),
            interrupt: self.interrupt.clone(),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("mqnet-doorbells".to_owned());
        let run = move || {
            if let Err(e) = process::restrict_thread(&[]) {
                tracing::warn!("ivshmem: a thread could not drop its privileges: {e}");
            }
            body.run();
        };
        let thread = Some(thread.spawn(run)?);
        Ok(Some(Watcher { stop, thread }))
    }
}

/// Thread that polls doorbell words until this handle is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let stopped = self.stop.ring();
        if let (Some(thread), Ok(())) = (self.thread.take(), stopped) {
            let _ = thread.join();
        }
    }
}

struct Body {
    half: Arc<Region>,
    seen: [u64; DOORBELLS],
    events: Vec<Arc<EventFd>>,
    interrupt: Option<Arc<EventFd>>,
    stop: Arc<EventFd>,
}

impl Body {
    fn run(&mut self) {
        let mut pause = POLL_INTERVALS[0];
        loop {
            let mut fds = vec![self.stop.as_fd()];
            fds.extend(self.interrupt.as_ref().map(|event| event.as_fd()));
            let waited = poll::wait_readable(&fds, pause);
            if waited.is_err() || poll::is_readable(self.stop.as_fd()).unwrap_or(true) {
                return;
            }
            let rung = self.poll();
            pause = match (&self.interrupt, rung) {
                (Some(_), _) => SAFETY_INTERVAL,
                (None, true) => POLL_INTERVALS[0],
                (None, false) => (pause * 2).min(POLL_INTERVALS[1]),
            };
        }
    }

    /// Signals the events of all doorbells with a changed word. Returns true if there were any.
    fn poll(&mut self) -> bool {
        if let Some(interrupt) = &self.interrupt {
            // Drain the interrupt before the words are read: a later ring interrupts again.
            interrupt.drain();
        }
        let mut any = false;
        for (bit, (seen, event)) in self.seen.iter_mut().zip(&self.events).enumerate() {
            // Pairs with the Release store in PeerDoorbell::ring: the writes before the ring are
            // visible.
            let value = self.half.word(doorbell(bit)).load(Ordering::Acquire);
            if value != *seen {
                (*seen, any) = (value, true);
                // Ignore an error: the eventfd belongs to this process, and an eventfd with a full
                // counter is readable anyway.
                let _ = event.ring();
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until `is_done` returns true. The wait has no limit: the test runner ends a test that
    /// hangs.
    fn until(is_done: impl Fn() -> bool) {
        while !is_done() {
            poll::pause(Duration::from_millis(1));
        }
    }

    fn half() -> Arc<Region> {
        Arc::new(Region::shared("test", 512 << 10, false).unwrap())
    }

    fn is_rung(event: &EventFd) -> bool {
        poll::is_readable(event.as_fd()).unwrap()
    }

    // Rule: with no interrupt vector, and with one for all doorbells, each ring signals the event
    // of its doorbell and no other event.
    #[test]
    fn events_map_to_their_rings() {
        for with_interrupt in [false, true] {
            let interrupt = Arc::new(EventFd::new().unwrap());
            let vectors = if with_interrupt { vec![interrupt.clone()] } else { Vec::new() };
            let events = Events::new(&vectors).unwrap();
            let half = half();
            let watcher = events.watch(&half).unwrap();
            assert!(watcher.is_some());
            let via = if with_interrupt { Via::Event(interrupt) } else { Via::Nothing };
            let bell = PeerDoorbell { half, bit: 5, via, count: Arc::new(AtomicU64::new(1)) };
            for _ in 0..3 {
                bell.ring().unwrap();
                until(|| is_rung(events.get(5).unwrap()));
                events.get(5).unwrap().drain();
            }
            let rung = (0..DOORBELLS).filter(|&bit| is_rung(events.get(bit).unwrap())).count();
            assert_eq!(rung, 0);
        }
    }

    // Rule: with two or more vectors there is no watcher. The events of doorbells are then the
    // vectors' events, and queue pairs share them.
    #[test]
    fn interrupts_are_used_as_they_are() {
        let vectors: Vec<_> = (0..3).map(|_| Arc::new(EventFd::new().unwrap())).collect();
        let events = Events::new(&vectors).unwrap();
        assert!(events.watch(&half()).unwrap().is_none());
        let same =
            |bit: usize, vector: usize| Arc::ptr_eq(events.get(bit).unwrap(), &vectors[vector]);
        assert!(same(0, 0) && same(1, 1) && same(2, 2) && same(3, 1));
    }
}
