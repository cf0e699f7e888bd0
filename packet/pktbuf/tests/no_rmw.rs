//! The owner of a pool executes no atomic read-modify-write, whatever it does per packet.
#![cfg(not(loom))]

use std::collections::VecDeque;

use mqnet_pktbuf::{Frag, PagePool, PoolConfig};
use mqnet_rings::primitive::counted::executed;

const PACKETS: u64 = 100_000;

fn pool() -> PagePool {
    PagePool::new(&PoolConfig { pages: 1024, ..PoolConfig::default() }).unwrap()
}

/// A driver's life: a ring full of buffers of `len` bytes, of which the oldest goes and a new one
/// comes, `PACKETS` times. `give` takes those that go.
fn traffic(pool: &mut PagePool, len: u32, mut give: impl FnMut(&mut PagePool, Frag)) {
    let mut ring: VecDeque<Frag> = (0..512).map(|_| pool.alloc_frag(len).unwrap()).collect();
    for _ in 0..PACKETS {
        let frag = ring.pop_front().unwrap();
        give(pool, frag);
        ring.push_back(pool.alloc_frag(len).unwrap());
    }
    ring.into_iter().for_each(|frag| pool.free_frag(frag));
}

// Goal: with buffers that share pages, as with whole pages, the owner's path of a packet has not
// one atomic read-modify-write.
#[test]
fn none_for_a_packet() {
    for len in [1536, 4096] {
        let mut pool = pool();
        let before = executed();
        traffic(&mut pool, len, PagePool::free_frag);
        assert_eq!(executed() - before, 0, "buffers of {len} bytes");
        pool.close().unwrap();
    }
}

// Goal: nor has it when every packet comes back from another thread, which has one for a magazine
// of 64; and the counter that says so does count.
#[test]
fn none_for_a_packet_freed_elsewhere() {
    let mut pool = pool();
    let mut home = pool.returner();
    let (away, back) = std::sync::mpsc::sync_channel::<Frag>(64);
    let giver = std::thread::spawn(move || {
        let before = executed();
        while let Ok(frag) = back.recv() {
            home.free_frag(frag);
        }
        home.flush();
        executed() - before
    });
    let before = executed();
    traffic(&mut pool, 1536, |_, frag| away.send(frag).unwrap());
    assert_eq!(executed() - before, 0, "the owner");
    drop(away);
    let theirs = giver.join().unwrap();
    assert!((PACKETS / 64..PACKETS / 16).contains(&theirs), "the other thread: {theirs}");
    pool.drain();
    assert_eq!(pool.foreign(), PACKETS);
    pool.close().unwrap();
}
