//! Comparison of the single-producer single-consumer ring with DPDK's `rte_ring`: a hop between two
//! CPUs, and push and pop on one CPU. Between CPUs only whole bulks are moved; on one CPU a bulk
//! always fits.

use std::hint::{black_box, spin_loop};

use mqnet_counters::Padded;
use mqnet_rings::spsc;

use super::pingpong::{Slice, one_cpu_slice, two_cpu_slice};
use super::report::Report;
use super::{Peers, Result, Rival, Session};

pub(super) const ENTRIES: u32 = 1024;
pub(super) const BULK: usize = 32;
const PEER: &str = "rte_ring SP/SC";
/// Number of rings. A ring's rate depends reproducibly on its place in memory, so successive slices
/// use different rings, also in the peer (`peers/slices.c`).
const RINGS: usize = 8;

/// Both ends of a ring, each with the entries of its thread, in separate cache lines. Without the
/// padding, the addresses would decide if the ends share a cache line.
struct Apart {
    from: Padded<(spsc::SpscProducer<u64>, [u64; BULK])>,
    into: Padded<(spsc::SpscConsumer<u64>, [u64; BULK])>,
}

impl Apart {
    fn new() -> Self {
        let (producer, consumer) = spsc::ring::<u64>(ENTRIES);
        Self { from: Padded((producer, [1; BULK])), into: Padded((consumer, [0; BULK])) }
    }
}

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let mut peers = Peers::start(session);
    peers.note(report);
    let mut rings: Vec<Apart> = (0..RINGS).map(|_| Apart::new()).collect();
    let mut turns = 0;
    let mut hop = || {
        turns += 1;
        let ring = &mut rings[turns % RINGS];
        two_cpus(session, &mut ring.from.0, &mut ring.into.0)
    };
    let rivals = [Rival { who: PEER, verb: "ring" }];
    let name = "hop CPU to CPU, bulk 32";
    report.cases.push(session.versus(&mut peers, name, &rivals, &mut [("mqnet", &mut hop)])?);

    let (mut producer, mut consumer) = spsc::ring::<u64>(ENTRIES);
    let mut burst = both_ways(&mut producer, &mut consumer);
    let mut slice = || one_cpu_slice(session.cpus[0], session.slice, &mut burst);
    let rivals = [Rival { who: PEER, verb: "ring1" }];
    let name = "in and out, one CPU, bulk 32";
    report.cases.push(session.versus(&mut peers, name, &rivals, &mut [("mqnet", &mut slice)])?);
    Ok(())
}

/// Creates a closure that pushes a bulk, pops it on the same thread and returns the number of
/// popped entries.
pub(super) fn both_ways(
    producer: &mut spsc::SpscProducer<u64>,
    consumer: &mut spsc::SpscConsumer<u64>,
) -> impl FnMut() -> usize {
    let entries = [1u64; BULK];
    let mut out = [0u64; BULK];
    move || {
        producer.push(black_box(&entries));
        let n = consumer.pop(&mut out);
        black_box(&out);
        n
    }
}

fn two_cpus(
    session: &Session,
    (producer, entries): &mut (spsc::SpscProducer<u64>, [u64; BULK]),
    (consumer, out): &mut (spsc::SpscConsumer<u64>, [u64; BULK]),
) -> Result<Slice> {
    let produce = || {
        if !producer.push_bulk(black_box(&*entries)) {
            spin_loop();
        }
    };
    let consume = || {
        if !consumer.pop_bulk(out) {
            spin_loop();
            return 0;
        }
        black_box(&mut *out);
        BULK
    };
    two_cpu_slice(session.cpus, session.slice, produce, consume)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the number returned by a burst on one CPU equals the number of entries that went
    // through the ring.
    #[test]
    fn bursts_move_whole_bulks() {
        let (mut producer, mut consumer) = spsc::ring::<u64>(ENTRIES);
        let mut burst = both_ways(&mut producer, &mut consumer);
        assert_eq!((0..100).map(|_| burst()).sum::<usize>(), 3200);
    }
}
