//! Test with frames of all sizes from one guest to another.

use std::collections::HashMap;

use mqnet_netdev::{Burst, OwningRx, OwningTx};
use mqnet_shmem::copies;
use mqnet_testkit::virtq::{Buf, Shape};
use mqnet_vhost_user::{GuestRx, GuestTx};
use mqnet_wire::VnetHdr;

use crate::bench::{Guest, HDR, gso, header, shapes};

/// Pseudo-random number that `n` and `salt` determine.
fn chance(n: u64, salt: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 29;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 32
}

/// Header and bytes of frame `n`. The length is 64 bytes, up to that of an Ethernet frame, or up to
/// that of the largest frame.
fn frame(n: u64) -> (VnetHdr, Vec<u8>) {
    let len = match chance(n, 1) % 20 {
        0 => 1 + chance(n, 2) % 65_000,
        1..8 => 64,
        _ => 1 + chance(n, 3) % 1514,
    };
    let len = len.max(54);
    let hdr = if chance(n, 4).is_multiple_of(3) { gso(n as u16 | 1) } else { VnetHdr::default() };
    let seed = chance(n, 5);
    (hdr, (0..len).map(|i| (seed.rotate_left((i % 61) as u32) ^ i) as u8).collect())
}

const SLOT: u32 = 66_000;

/// Guest that sends frames, numbered from 0.
struct Sender {
    guest: Guest,
    half: GuestTx,
    slots: Vec<u64>,
    next: u64,
    back: u64,
}

impl Sender {
    fn new(shape: Shape) -> Self {
        let mut guest = Guest::new(shape, false);
        let slots = (0..=shape.size).map(|_| guest.memory.alloc(SLOT, 64)).collect();
        let half = guest.tx_half();
        Self { guest, half, slots, next: 0, back: 0 }
    }

    /// Makes as many frames below number `end` available as fit the ring.
    fn fill(&mut self, end: u64) {
        while self.guest.driver.used().is_some() {
            self.back += 1;
        }
        while self.next < end {
            let n = self.next;
            let (hdr, bytes) = frame(n);
            let at = self.slots[(n % self.slots.len() as u64) as usize];
            self.guest.memory.write(at, &header(hdr));
            self.guest.memory.write(at + u64::from(HDR), &bytes);
            let whole = HDR + bytes.len() as u32;
            // Split the frame at random offsets, sometimes within the header.
            let mut cuts: Vec<u32> = (0..chance(n, 6) % 5)
                .map(|i| 1 + (chance(n, 7 + i) % u64::from(whole - 1)) as u32)
                .collect();
            if chance(n, 20).is_multiple_of(4) {
                cuts.push(HDR);
            }
            if chance(n, 21).is_multiple_of(50) {
                cuts = (1..30).map(|i| whole * i / 30).filter(|&cut| cut > 0).collect();
            }
            cuts.extend([0, whole]);
            cuts.sort_unstable();
            cuts.dedup();
            let pieces = cuts.windows(2).map(|cut| Buf {
                at: at + u64::from(cut[0]),
                len: cut[1] - cut[0],
                write: false,
            });
            let pieces: Vec<Buf> = pieces.collect();
            let driver = &mut self.guest.driver;
            let indirect = pieces.len() > 6 || chance(n, 22).is_multiple_of(2);
            let added = if indirect {
                driver.add_indirect(&self.guest.memory, &pieces)
            } else {
                driver.add(&pieces)
            };
            if added.is_none() {
                break;
            }
            self.next += 1;
        }
        self.guest.driver.publish();
    }
}

/// Guest that receives frames and checks them.
struct Receiver {
    guest: Guest,
    half: GuestRx,
    posted: HashMap<u16, Vec<Buf>>,
    spare: Vec<Vec<Buf>>,
    seen: u64,
}

impl Receiver {
    fn new(shape: Shape, mergeable: bool) -> Self {
        let mut guest = Guest::new(shape, mergeable);
        let mut spare = Vec::new();
        for i in 0..u64::from(shape.size) {
            let lens: &[u32] = match (mergeable, i % 3) {
                (true, 0) => &[1526],
                (true, 1) => &[4096],
                (true, _) => &[2000, 3000, 8],
                (false, 0) => &[66_000],
                (false, _) => &[12, 1514, 64_500],
            };
            // The first eight chains together hold the largest frame.
            let lens = if mergeable && i < 8 { &[20_000] } else { lens };
            spare.push(crate::bench::bufs(&mut guest.memory, lens, true));
        }
        let half = guest.rx_half();
        Self { guest, half, posted: HashMap::new(), spare, seen: 0 }
    }

    fn post(&mut self) {
        while let Some(bufs) = self.spare.pop() {
            let driver = &mut self.guest.driver;
            let id = if bufs.len() > 1 {
                driver.add_indirect(&self.guest.memory, &bufs)
            } else {
                driver.add(&bufs)
            };
            let Some(id) = id else {
                self.spare.push(bufs);
                break;
            };
            self.posted.insert(id, bufs);
        }
        self.guest.driver.publish();
    }

    /// Returns the bytes of the next used chain; `None` if there is none.
    fn chain(&mut self) -> Option<Vec<u8>> {
        let (id, len) = self.guest.driver.used()?;
        let bufs = self.posted.remove(&id).unwrap();
        let mut bytes = Vec::new();
        for buf in &bufs {
            bytes.extend(self.guest.memory.read(buf.at, buf.len));
        }
        assert!(bytes.len() >= len as usize);
        bytes.truncate(len as usize);
        self.spare.push(bufs);
        Some(bytes)
    }

    /// Checks all frames received so far.
    fn check(&mut self) {
        while let Some(mut bytes) = self.chain() {
            let buffers = u16::from_le_bytes([bytes[10], bytes[11]]);
            for _ in 1..buffers {
                bytes.extend(self.chain().expect("a frame comes whole"));
            }
            let (hdr, expected) = frame(self.seen);
            assert_eq!(VnetHdr::from_bytes(bytes.first_chunk().unwrap()), hdr);
            assert!(bytes[12..] == expected[..], "frame {} differs", self.seen);
            self.seen += 1;
        }
    }
}

/// One poll of a lane.
fn step(from: &mut GuestTx, to: &mut GuestRx) {
    let taken = {
        let mut burst = Burst::new();
        from.peek(&mut burst, 64).unwrap();
        to.submit(&burst, 0).unwrap()
    };
    to.flush().unwrap();
    from.release(taken).unwrap();
}

// Goal: 100,000 frames of all sizes and splits arrive in order with every byte, in small split and
// packed rings, with and without mergeable buffers. Every frame is copied once, or twice if it has
// more buffers than `FRAME_PIECES_MAX`. Every chain is returned.
#[test]
fn every_byte_crosses_once() {
    for (i, (shape, mergeable)) in shapes(32).enumerate() {
        let frames = 12_500;
        let mut sender = Sender::new(shape);
        let other = Shape { packed: shape.packed ^ (i % 3 == 0), size: 64, ..shape };
        let mut receiver = Receiver::new(other, mergeable);
        let before = copies::bytes();
        let mut idle = 0;
        while receiver.seen < frames {
            let seen = receiver.seen;
            sender.fill(frames);
            receiver.post();
            step(&mut sender.half, &mut receiver.half);
            receiver.check();
            idle = if receiver.seen == seen { idle + 1 } else { 0 };
            assert!(idle < 3, "frame {seen} does not cross ({shape:?}, mergeable {mergeable})");
        }
        sender.fill(frames);
        assert_eq!(sender.back, frames);
        let lens = (0..frames).map(|n| {
            let len = frame(n).1.len() as u64;
            let is_long = chance(n, 21).is_multiple_of(50);
            if is_long { 2 * len } else { len }
        });
        assert_eq!(copies::bytes() - before, lens.sum::<u64>());
        let (rx, tx) = (&sender.guest.stats.rx, &receiver.guest.stats.tx);
        assert_eq!((rx.packets.get(), tx.packets.get()), (frames, frames));
        assert_eq!(rx.bytes.get(), tx.bytes.get());
        assert_eq!((rx.drops.total(), tx.drops.total()), (0, 0));
    }
}
