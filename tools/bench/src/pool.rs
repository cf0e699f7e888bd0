//! Comparison of the page pool with DPDK's `rte_mempool`: free on the same thread, and free on
//! another thread.

use std::hint::{black_box, spin_loop};

use arrayvec::ArrayVec;
use mqnet_counters::Padded;
use mqnet_pktbuf::{Page, PagePool, PoolConfig};
use mqnet_rings::{return_ring, spsc};

use super::pingpong::{Slice, one_cpu_slice, two_cpu_slice};
use super::report::Report;
use super::{Own, Peers, Result, Rival, Session};

const BULK: usize = 32;
/// Number of pages; the peer's pool has one object less.
const PAGES: u32 = 8192;
const PEER: &str = "rte_mempool cache 512";
/// DPDK's pool of packet buffers, which checks and resets the header of each object.
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

/// Closes the pool. An error means lost pages and makes the benchmark invalid.
fn close(pool: PagePool) -> Result<()> {
    pool.close()?;
    Ok(())
}

/// Allocates and frees a bulk of pages on the owner's thread.
pub(super) fn alloc_and_free(pool: &mut PagePool) -> impl FnMut() -> usize {
    let mut pages = Batch::new();
    move || {
        let n = pool.alloc_bulk(&mut pages, BULK);
        black_box(&mut pages);
        pool.free_bulk(&mut pages);
        n
    }
}

/// Size of a batch of foreign buffers that are returned to the pool's owner: two bulks.
const HOME: usize = 2 * BULK;

/// Entries of the ring between the two threads, as in the peer.
const HANDED_OVER: u32 = 1024;

/// Allocating thread's ring end and the batch that the ring has not accepted yet.
struct Giver<T> {
    ring: spsc::SpscProducer<T>,
    batch: ArrayVec<T, BULK>,
}

impl<T: Send> Giver<T> {
    /// Pushes a batch that `fill` provides, completely or not at all, as the peer does.
    fn give(&mut self, fill: impl FnOnce(&mut ArrayVec<T, BULK>)) {
        if !self.batch.is_full() {
            fill(&mut self.batch);
        }
        if !self.batch.is_full() || !self.ring.push_bulk_from(&mut self.batch) {
            spin_loop();
        }
    }
}

/// Freeing thread's ring end and the received batch.
struct Taker<T> {
    ring: spsc::SpscConsumer<T>,
    batch: ArrayVec<T, BULK>,
}

impl<T: Send> Taker<T> {
    /// Takes a batch and passes it to `empty`; returns the number of its objects, 0 if there is no
    /// batch.
    fn take(&mut self, empty: impl FnOnce(&mut ArrayVec<T, BULK>)) -> usize {
        if !self.ring.pop_bulk_into(&mut self.batch) {
            spin_loop();
            return 0;
        }
        empty(black_box(&mut self.batch));
        BULK
    }
}

fn hand_over<T: Send>() -> (Padded<Giver<T>>, Padded<Taker<T>>) {
    let (producer, consumer) = spsc::ring(HANDED_OVER);
    let giver = Giver { ring: producer, batch: ArrayVec::new() };
    (Padded(giver), Padded(Taker { ring: consumer, batch: ArrayVec::new() }))
}

fn freed_elsewhere(session: &Session, pool: &mut PagePool) -> Result<Slice> {
    let (mut giver, mut taker) = hand_over();
    let mut returner = pool.returner();
    let produce = || {
        giver.0.give(|batch| {
            pool.alloc_bulk(batch, BULK);
        });
    };
    let consume = || taker.0.take(|batch| returner.free_bulk(batch));
    let slice = two_cpu_slice(session.cpus, session.slice, produce, consume)?;
    // Return the pages that are still in the ring, so that the pool can be closed.
    while taker.0.take(|batch| returner.free_bulk(batch)) > 0 {}
    pool.free_bulk(&mut giver.0.batch);
    Ok(slice)
}

/// Measures the hand-over ring and the return ring with numbers instead of pages, with equal batch
/// sizes. The difference from `freed_elsewhere` is the cost of the pool.
fn numbers_alone(session: &Session) -> Result<Slice> {
    let (mut giver, mut taker) = hand_over();
    let (back, mut returns) = return_ring::ring(PAGES);
    let mut free: Vec<u32> = (0..PAGES).collect();
    let mut come = [0; HOME];
    let produce = || {
        giver.0.give(|batch| {
            if free.len() < BULK {
                let n = returns.drain(&mut come);
                free.extend_from_slice(&come[..n]);
            }
            let rest = free.len() - batch.remaining_capacity().min(free.len());
            // The batch has space for the entries from `rest`.
            let _ = batch.try_extend_from_slice(&free[rest..]);
            free.truncate(rest);
        });
    };
    let mut back = Padded((back, ArrayVec::<u32, HOME>::new()));
    let consume = || {
        let (back, magazine) = &mut back.0;
        taker.0.take(|batch| {
            // The magazine takes the whole batch: batches are full, and two batches fill a
            // magazine.
            let fits = magazine.try_extend_from_slice(batch);
            debug_assert!(fits.is_ok(), "{fits:?}");
            batch.clear();
            if magazine.is_full() {
                // The return ring has space for all numbers in use.
                back.push(magazine);
                magazine.clear();
            }
        })
    };
    two_cpu_slice(session.cpus, session.slice, produce, consume)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: both bursts return every page, so that the pool can be closed.
    #[test]
    fn nothing_is_lost() {
        let mut pool = new_pool().unwrap();
        let mut burst = alloc_and_free(&mut pool);
        assert_eq!((0..100).map(|_| burst()).sum::<usize>(), 3200);
        drop(burst);
        close(pool).unwrap();
    }
}
