//! The owner of a pool executes no atomic read-modify-write per packet.
#![cfg(not(loom))]

use std::collections::VecDeque;

use mqnet_pktbuf::{Frag, PagePool, PoolConfig};
use mqnet_rings::primitive::counted::executed;

const PACKETS: u64 = 100_000;

fn pool() -> PagePool {
    PagePool::new(&PoolConfig { pages: 1024, ..PoolConfig::default() }).unwrap()
}

/// Models a driver's ring full of buffers of `len` bytes. The oldest buffer is passed to `free` and
/// a new one is allocated, `PACKETS` times.
fn traffic(pool: &mut PagePool, len: u32, mut free: impl FnMut(&mut PagePool, Frag)) {
    let mut ring: VecDeque<Frag> = (0..512).map(|_| pool.alloc_frag(len).unwrap()).collect();
    for _ in 0..PACKETS {
        let frag = ring.pop_front().unwrap();
        free(pool, frag);
        ring.push_back(pool.alloc_frag(len).unwrap());
    }
    ring.into_iter().for_each(|frag| pool.free_frag(frag));
}

// Goal: the owner executes no atomic read-modify-write per packet, with whole pages and with
// buffers that share pages.
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

// Goal: the owner executes no atomic read-modify-write either if every packet is freed on another
// thread. (That thread executes some per magazine of 64, which also proves that the counter
// counts.)
#[test]
fn owner_executes_no_rmw_per_foreign_free() {
    let mut pool = pool();
    let mut returner = pool.returner();
    let (tx, rx) = std::sync::mpsc::sync_channel::<Frag>(64);
    let thread = std::thread::spawn(move || {
        let before = executed();
        while let Ok(frag) = rx.recv() {
            returner.free_frag(frag);
        }
        returner.flush();
        executed() - before
    });
    let before = executed();
    traffic(&mut pool, 1536, |_, frag| tx.send(frag).unwrap());
    assert_eq!(executed() - before, 0, "the owner");
    drop(tx);
    let theirs = thread.join().unwrap();
    assert!((PACKETS / 64..PACKETS / 16).contains(&theirs), "the other thread: {theirs}");
    pool.drain();
    assert_eq!(pool.foreign(), PACKETS);
    pool.close().unwrap();
}
