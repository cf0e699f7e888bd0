//! Doorbells of the other side, and events of this side's doorbells.
//!
//! A ring changes a word in the other side's half, and then interrupts that side if possible. A
//! side with fewer than two interrupt vectors runs a thread that polls its words and signals the
//! workers' events. With one vector, the thread also waits for the interrupt and finds the
//! doorbells in the words.

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

/// Poll intervals of the words, shortly after a ring and long after the last one. A worker polls
/// its lanes for a millisecond after traffic; after a longer sleep some more latency is
/// acceptable.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(4)];
/// Poll interval of a side with an interrupt, as a safety check.
const SAFETY_INTERVAL: Duration = Duration::from_millis(100);

/// Offset of the device register that interrupts a peer.
const DOORBELL: usize = 12;

/// Method to interrupt a peer.
#[derive(Clone, Debug)]
pub(super) enum Via {
    /// No interrupt: the peer polls its words.
    Nothing,
    /// Eventfd for which the peer or its VMM waits.
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
    /// Next value for a word, shared by all doorbells of the side so that no value is used twice.
    pub(super) count: Arc<AtomicU64>,
}

impl Doorbell for PeerDoorbell {
    fn ring(&self) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // Pairs with the Acquire load in Body::poll: the writes before the ring are visible.
        self.half.word(doorbell(self.bit)).store(number.to_le(), Ordering::Release);
        match &self.via {
            Via::Nothing => Ok(()),
            Via::Event(event) => event.ring(),
            Via::Register(registers, value) => {
                // Pairs with the load of the word after an interrupt: orders the word before the
                // register.
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
    /// True if the watcher signals the events, false if the device does.
    watched: bool,
    interrupt: Option<Arc<EventFd>>,
}

impl Events {
    pub(super) fn new(vectors: &[Arc<EventFd>]) -> io::Result<Self> {
        // The link's event is drained and the queues' events are not: the link needs its own
        // vector.
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

    /// Starts a watcher for the doorbell words in `half`; `None` if the device signals the
    /// events.
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

    /// Signals the events of doorbells that were rung; true if there were any.
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
                // An error is ignored: the event belongs to this process, and a closed one has no
                // waiter.
                let _ = event.ring();
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until `look` returns true, without a limit: the test runner ends a test that hangs.
    fn until(look: impl Fn() -> bool) {
        while !look() {
            poll::pause(Duration::from_millis(1));
        }
    }

    fn half() -> Arc<Region> {
        Arc::new(Region::shared("test", 512 << 10, false).unwrap())
    }

    fn is_rung(event: &EventFd) -> bool {
        poll::is_readable(event.as_fd()).unwrap()
    }

    // Goal: without interrupts, and with one interrupt for all doorbells, each ring signals the
    // event of its doorbell and no other.
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

    // Goal: with two or more interrupts there is no watcher, and queue pairs share the
    // interrupts.
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
