//! Our page pool against DPDK's `rte_mempool`: on one thread, and freed on another.

use std::hint::{black_box, spin_loop};
use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use mqnet_counters::Padded;
use mqnet_pktbuf::{Page, PagePool, PoolConfig};
use mqnet_rings::{return_ring, spsc};

use super::pingpong::{Slice, one_cpu_slice, two_cpu_slice};
use super::report::Report;
use super::{Own, Peers, Result, Rival, Session};

const BULK: usize = 32;
/// As many as the peer's pool has objects, plus one.
const PAGES: u32 = 8192;
const PEER: &str = "rte_mempool cache 512";
/// The same pool as packets use it: each object has a header to check and to reset.
const MBUF: &str = "rte_pktmbuf cache 512";

type Batch = ArrayVec<Page, BULK>;

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let mut peers = Peers::start(session);
    peers.note(report);
    let mut pool = new_pool()?;
    let mut burst = alloc_and_free(&mut pool);
    let mut slice = || one_cpu_slice(session.cpus[0], session.slice, &mut burst);
    let name = "alloc+free, one CPU, bulk 32";
    let rivals = [Rival { who: PEER, verb: "pool1" }, Rival { who: MBUF, verb: "mbuf1" }];
    report.cases.push(session.versus(&mut peers, name, &rivals, &mut [("mqnet", &mut slice)])?);
    drop(burst);
    close(pool)?;

    let mut pool = new_pool()?;
    let mut slice = || freed_elsewhere(session, &mut pool);
    let name = "freed on the other CPU, bulk 32";
    let rivals = [Rival { who: PEER, verb: "pool" }, Rival { who: MBUF, verb: "mbuf" }];
    let mut alone = || numbers_alone(session);
    let ours: &mut [Own<'_>] = &mut [("mqnet", &mut slice), ("the numbers alone", &mut alone)];
    report.cases.push(session.versus(&mut peers, name, &rivals, ours)?);
    close(pool)
}

pub(super) fn new_pool() -> Result<PagePool> {
    let config = PoolConfig { pages: PAGES, ..PoolConfig::default() };
    PagePool::new(&config).map_err(|error| format!("cannot make a page pool: {error}").into())
}

/// A benchmark that loses pages measures nothing.
fn close(pool: PagePool) -> Result<()> {
    pool.close()?;
    Ok(())
}

/// A bulk out of the pool and back on its owner's thread.
pub(super) fn alloc_and_free(pool: &mut PagePool) -> impl FnMut() -> usize {
    let mut pages = Batch::new();
    move || {
        let n = pool.alloc_bulk(&mut pages, BULK);
        black_box(&mut pages);
        pool.free_bulk(&mut pages);
        n
    }
}

/// What a pool's returner collects, and its owner takes home at a time: two bulks.
const HOME: usize = 2 * BULK;

/// Entries of the hand-over ring: as many bulks as the peer's ring of 1024 pointers has room for.
const HANDED_OVER: u32 = 31;

/// Carries batches from one thread to another: batches lie in slots, and a ring carries the slots'
/// numbers. Page handles cannot be copied into a ring themselves. The locks are never contended:
/// a slot is used again only when the ring says that it is free (one batch is being filled and
/// one emptied beyond those in the ring). Each slot has cache lines of its own.
struct Slots<T>([Padded<Mutex<ArrayVec<T, BULK>>>; HANDED_OVER as usize + 2]);

impl<T> Slots<T> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Padded(Mutex::new(ArrayVec::new()))))
    }

    fn with<R>(&self, slot: u32, f: impl FnOnce(&mut ArrayVec<T, BULK>) -> R) -> R {
        f(&mut self.0[slot as usize].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn after(&self, slot: u32) -> u32 {
        if slot as usize + 1 == self.0.len() { 0 } else { slot + 1 }
    }
}

/// The thread that fills batches.
struct Giver<'a, T> {
    slots: &'a Slots<T>,
    ring: spsc::Producer<u32>,
    slot: u32,
}

impl<T> Giver<'_, T> {
    /// Hands over a batch that `fill` fills.
    fn give(&mut self, fill: impl FnOnce(&mut ArrayVec<T, BULK>)) {
        // A batch that did not fit into the ring stays in its slot for the next attempt.
        let filled = self.slots.with(self.slot, |batch| {
            if batch.is_empty() {
                fill(batch);
            }
            !batch.is_empty()
        });
        if filled && self.ring.push(&[self.slot]) == 1 {
            self.slot = self.slots.after(self.slot);
        } else {
            spin_loop();
        }
    }
}

/// The thread that empties them.
struct Taker<'a, T> {
    slots: &'a Slots<T>,
    ring: spsc::Consumer<u32>,
}

impl<T> Taker<'_, T> {
    /// Takes a batch, which `empty` empties; how many were in it.
    fn take(&mut self, empty: impl FnOnce(&mut ArrayVec<T, BULK>)) -> usize {
        let mut slot = [0];
        if self.ring.pop(&mut slot) == 0 {
            spin_loop();
            return 0;
        }
        self.slots.with(slot[0], |batch| {
            let n = batch.len();
            empty(batch);
            n
        })
    }
}

fn hand_over<T>(slots: &Slots<T>) -> (Giver<'_, T>, Taker<'_, T>) {
    let (producer, consumer) = spsc::ring::<u32>(HANDED_OVER);
    (Giver { slots, ring: producer, slot: 0 }, Taker { slots, ring: consumer })
}

fn freed_elsewhere(session: &Session, pool: &mut PagePool) -> Result<Slice> {
    let slots = Slots::new();
    let (mut giver, mut taker) = hand_over(&slots);
    let mut returner = pool.returner();
    let produce = || {
        giver.give(|batch| {
            pool.alloc_bulk(batch, BULK);
        });
    };
    let consume = || taker.take(|batch| returner.free_bulk(batch));
    let slice = two_cpu_slice(session.cpus, session.slice, produce, consume)?;
    // What is still under way goes home by the same road.
    while taker.take(|batch| returner.free_bulk(batch)) > 0 {}
    slots.with(giver.slot, |batch| pool.free_bulk(batch));
    Ok(slice)
}

/// The same road there and back for numbers that are nobody's pages: the hand-over, and the pool's
/// own ring home, as many at a time as there. What the pool takes longer is the pool.
fn numbers_alone(session: &Session) -> Result<Slice> {
    let slots = Slots::new();
    let (mut giver, mut taker) = hand_over(&slots);
    let (back, mut home) = return_ring::ring(PAGES);
    let mut free: Vec<u32> = (0..PAGES).collect();
    let mut come = [0; HOME];
    let produce = || {
        giver.give(|batch| {
            if free.len() < BULK {
                let n = home.drain(&mut come);
                free.extend_from_slice(&come[..n]);
            }
            batch.extend(free.drain(free.len() - BULK.min(free.len())..));
        });
    };
    let mut magazine = ArrayVec::<u32, HOME>::new();
    let consume = move || {
        taker.take(|batch| {
            magazine.extend(batch.drain(..));
            if magazine.is_full() {
                // There is room for all numbers that there are.
                back.push(black_box(&magazine));
                magazine.clear();
            }
        })
    };
    two_cpu_slice(session.cpus, session.slice, produce, consume)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: both bursts give every page back, so that the pool can be closed.
    #[test]
    fn nothing_is_lost() {
        let mut pool = new_pool().unwrap();
        let mut burst = alloc_and_free(&mut pool);
        assert_eq!((0..100).map(|_| burst()).sum::<usize>(), 3200);
        drop(burst);
        close(pool).unwrap();
    }

    // Goal: slots are used in a circle.
    #[test]
    fn slots_go_round() {
        let slots = Slots::<u32>::new();
        let round = (0..slots.0.len()).fold(0, |slot, _| slots.after(slot));
        assert_eq!(round, 0);
    }
}
