use std::collections::VecDeque;

use super::*;
use crate::mix;

/// Numbers of the frames of one pair in transit, in both directions.
#[derive(Default)]
struct Flight {
    to_kernel: VecDeque<u32>,
    to_mqnet: VecDeque<u32>,
}

fn pick(seed: &mut u64, most: usize) -> usize {
    (mix::next(seed) % most as u64) as usize
}

fn mark(frame: &[u8]) -> u32 {
    let mark = u32::from_le_bytes(frame[..4].try_into().unwrap());
    assert!(frame == super::frame(mark, frame.len()), "bytes of frame {mark}");
    mark
}

/// Changes the number of open pairs, may reopen one of them, and returns the new number.
fn reopen(world: &mut World, flights: &mut [Flight], seed: &mut u64, before: usize) -> usize {
    let open = 1 + pick(seed, flights.len());
    (open..before).rev().for_each(|pair| world.kernel.close(pair));
    world.kernel.open(before.min(open)..open);
    // May close and reopen one pair before mqnet notices.
    let quick = pick(seed, 2 * open);
    if quick < open {
        world.kernel.reopen(quick);
    }
    for step in 0..400 {
        // Poll the queues of closed pairs, so that they find the end of their pair.
        for channel in (0..world.channels.len()).filter(|&n| n >= open || n == quick) {
            // A channel may have frames of another pair too.
            for got in world.receive(channel).unwrap() {
                let mark = Some(mark(&got));
                let front = |f: &&mut Flight| f.to_mqnet.front().copied() == mark;
                flights.iter_mut().find(front).unwrap().to_mqnet.pop_front();
            }
        }
        if quick < open {
            world.kernel.receive(quick, 100);
        }
        world.step_interleaved(|| pick(seed, 3) == 0);
        let done = world.kernel.qps.iter().all(|qp| qp.up == qp.ready);
        if done && world.channels.len() == open && step > 10 {
            break;
        }
    }
    assert_eq!(world.channels.len(), open, "{:?}", world.function.poll_link(world.now));
    for (pair, flight) in flights.iter_mut().enumerate() {
        if pair >= open || pair >= before || pair == quick {
            *flight = Flight::default();
            world.kernel.qps[pair].got.clear();
        }
    }
    open
}

/// Runs random actions with a random shape. Every frame must arrive once, unchanged and in order on
/// its pair, unless the pair was closed in between.
fn run(mut seed: u64) {
    let pairs = 1 + pick(&mut seed, 6);
    let shape = Shape {
        windows: 1 + pick(&mut seed, 3),
        size: [256 << 10, 128 << 10][pick(&mut seed, 2)],
        pairs,
        mtu: [2048, 1000, 1537][pick(&mut seed, 3)],
        cuts: [Cuts::None, Cuts::Each(4096), Cuts::Each(20480)][pick(&mut seed, 3)],
    };
    let mut world = World::new(shape);
    world.partner.mtu = Some(800);
    world.board.link_up();
    let mut open = 1 + pick(&mut seed, pairs);
    world.kernel.open(0..open);
    world.settle(open);
    let mut flights: Vec<Flight> = (0..pairs).map(|_| Flight::default()).collect();
    let mut next = 0u32;
    for _ in 0..600 {
        let pair = pick(&mut seed, open);
        let len = 60 + pick(&mut seed, 740);
        let flight = &mut flights[pair];
        match pick(&mut seed, 40) {
            0..10 => {
                let count = 1 + pick(&mut seed, 8);
                let frames: Vec<_> = (0..count as u32).map(|n| frame(next + n, len)).collect();
                let taken = world.send(pair, &frames).unwrap();
                flight.to_kernel.extend((0..taken as u32).map(|n| next + n));
                next += count as u32;
            }
            10..20 => {
                if world.kernel.send(pair, &frame(next, len)).is_ok() {
                    flight.to_mqnet.push_back(next);
                }
                next += 1;
            }
            20..28 => {
                world.kernel.receive(pair, 1 + pick(&mut seed, 20));
                for got in std::mem::take(&mut world.kernel.qps[pair].got) {
                    assert_eq!(Some(mark(&got)), flight.to_kernel.pop_front());
                }
            }
            28..36 => {
                for got in world.receive(pair).unwrap() {
                    assert_eq!(Some(mark(&got)), flight.to_mqnet.pop_front());
                }
            }
            36..39 => {
                let status = world.step();
                world.follow(&status);
            }
            _ => {
                open = reopen(&mut world, &mut flights, &mut seed, open);
            }
        }
    }
    for (pair, flight) in flights.iter_mut().enumerate().take(open) {
        for got in world.receive(pair).unwrap() {
            assert_eq!(Some(mark(&got)), flight.to_mqnet.pop_front());
        }
        world.kernel.receive(pair, 1000);
        for got in std::mem::take(&mut world.kernel.qps[pair].got) {
            assert_eq!(Some(mark(&got)), flight.to_kernel.pop_front());
        }
        assert!(flight.to_mqnet.is_empty() && flight.to_kernel.is_empty());
    }
}

// Goal: no frame is lost, duplicated, changed or reordered on a pair that stays open, for any
// actions of both ends. A failure prints the seed.
#[test]
fn random_runs_keep_every_frame() {
    for seed in 1..=200u64 {
        let result = std::panic::catch_unwind(|| run(seed));
        if let Err(e) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(e);
        }
    }
}
