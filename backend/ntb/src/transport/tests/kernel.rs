//! Test double of the kernel's end. Its arithmetic of slots, credits and bits is independent of
//! the implementation under test.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use mqnet_shmem::{AtomicTable, Region};

use crate::fuzzing::board::Board;

/// Guest memory behind one window.
struct Ram(Vec<(u64, AtomicTable)>);

impl Ram {
    fn byte(&self, at: u64) -> &std::sync::atomic::AtomicU8 {
        let (start, table) = self.0.iter().rev().find(|(start, _)| *start <= at).unwrap();
        table.byte((at - start) as u32)
    }
}

/// Access to bytes of guest memory or of a window.
trait Bytes {
    fn get(&self, at: u64) -> u8;
    fn set(&self, at: u64, value: u8);

    fn word(&self, at: u64) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|n| self.get(at + n)))
    }

    fn set_word(&self, at: u64, value: u32) {
        value.to_le_bytes().iter().zip(at..).for_each(|(byte, at)| self.set(at, *byte));
    }
}

impl Bytes for Ram {
    fn get(&self, at: u64) -> u8 {
        self.byte(at).load(SeqCst)
    }

    fn set(&self, at: u64, value: u8) {
        self.byte(at).store(value, SeqCst);
    }
}

impl Bytes for AtomicTable {
    fn get(&self, at: u64) -> u8 {
        self.byte(at as u32).load(SeqCst)
    }

    fn set(&self, at: u64, value: u8) {
        self.byte(at as u32).store(value, SeqCst);
    }
}

#[derive(Default)]
pub(super) struct Qp {
    /// True if the netdev has opened the pair.
    pub(super) ready: bool,
    /// True if the pair carries frames.
    pub(super) up: bool,
    rx: u64,
    rx_count: u32,
    tx: u64,
    tx_count: u32,
    /// Received frames that the test has not checked.
    pub(super) got: VecDeque<Vec<u8>>,
    /// Remaining attempts to send a link-down slot into a full ring, one every 10 ms; `None` if no
    /// slot is pending.
    parting: Option<u32>,
    /// True if slots of an earlier session may be in the ring; such slots stop the reader.
    is_stale: bool,
    /// Number of link-down slots received.
    pub(super) downs: u32,
}

/// Division of the peer's memory into mappings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cuts {
    None,
    /// Mappings of this number of bytes, a multiple of the page size.
    Each(u64),
}

pub(super) struct Kernel {
    board: Arc<Board>,
    pub(super) qps: Vec<Qp>,
    mws: usize,
    pub(super) mtu: u64,
    cuts: Cuts,
    ram: Vec<Ram>,
    windows: Vec<AtomicTable>,
    /// True if the transport's link is up.
    pub(super) linked: bool,
}

const LINKS: usize = 1;

impl Kernel {
    pub(super) fn new(board: Arc<Board>, qps: usize, mtu: u64, cuts: Cuts) -> Self {
        let table =
            |region: &Arc<Region>| AtomicTable::new(region.clone(), Board::place(0), board.size);
        let windows = board.inbound.iter().map(|region| table(region).unwrap()).collect();
        Self {
            mws: board.inbound.len(),
            qps: (0..qps).map(|_| Qp::default()).collect(),
            board,
            mtu,
            cuts,
            ram: Vec::new(),
            windows,
            linked: false,
        }
    }

    fn pad(&self, at: usize) -> u32 {
        self.board.spads[1][at].load(SeqCst)
    }

    pub(super) fn write_pad(&self, at: usize, value: u32) {
        self.board.spads[0][at].store(value, SeqCst);
    }

    /// Scratchpads and values of the handshake, in order.
    pub(super) fn handshake_writes(&self) -> Vec<(usize, u32)> {
        let mut writes = Vec::new();
        for window in 0..self.mws {
            writes.push((4 + 2 * window, 0));
            writes.push((5 + 2 * window, self.board.size));
        }
        writes.extend([(3, self.mws as u32), (2, self.qps.len() as u32), (0, 4)]);
        writes
    }

    /// Work that the kernel repeats every 10 ms.
    pub(super) fn tick(&mut self) {
        if !self.linked {
            self.handshake_writes().into_iter().for_each(|(at, value)| self.write_pad(at, value));
            let same = self.pad(0) == 4
                && self.pad(2) == self.qps.len() as u32
                && self.pad(3) == self.mws as u32;
            if !same {
                return;
            }
            self.set_up_windows();
        }
        for qp in 0..self.qps.len() {
            self.part_from(qp);
            self.link_work(qp);
        }
    }

    fn set_up_windows(&mut self) {
        self.ram.clear();
        for window in 0..self.mws {
            let len =
                u64::from(self.pad(4 + 2 * window)) << 32 | u64::from(self.pad(5 + 2 * window));
            let lens = match self.cuts {
                Cuts::None => vec![len],
                Cuts::Each(size) => {
                    let whole = vec![size; (len / size) as usize];
                    let rest = len % size;
                    whole.into_iter().chain((rest > 0).then_some(rest)).collect()
                }
            };
            let regions = self.board.map(window, &lens);
            let mut start = 0;
            let mut tables = Vec::new();
            for (region, len) in regions.into_iter().zip(lens) {
                tables.push((start, AtomicTable::new(region, 0, len as u32).unwrap()));
                start += len;
            }
            self.ram.push(Ram(tables));
        }
        self.linked = true;
        for qp in 0..self.qps.len() {
            let (_, _, part) = self.part(qp);
            let _ = part;
            self.reset(qp);
        }
    }

    /// Part of a pair: window, first byte, bytes without the credit word.
    fn part(&self, qp: usize) -> (usize, u64, u64) {
        let window = qp % self.mws;
        let sharing = (0..self.qps.len()).filter(|other| other % self.mws == window).count() as u64;
        let bytes = u64::from(self.board.size) / sharing;
        let earlier = (0..qp).filter(|other| other % self.mws == window).count() as u64;
        (window, earlier * bytes, bytes - 4)
    }

    /// Bytes of a slot and number of slots.
    fn slots(&self, qp: usize) -> (u64, u64) {
        let (_, _, bytes) = self.part(qp);
        let size = self.mtu.min(bytes / 2);
        (size, bytes / size)
    }

    fn reset(&mut self, qp: usize) {
        let (window, at, bytes) = self.part(qp);
        let (_, slots) = self.slots(qp);
        self.ram[window].set_word(at + bytes, slots as u32 - 1);
        let pair = &mut self.qps[qp];
        (pair.up, pair.is_stale, pair.parting) = (false, false, None);
        (pair.rx, pair.rx_count, pair.tx, pair.tx_count) = (0, 0, 0, 0);
    }

    fn link_work(&mut self, qp: usize) {
        if let Some(seen) = self.begin_link_work(qp) {
            self.end_link_work(qp, seen);
        }
    }

    /// First half of the work for opening a pair: reads QP_LINKS. `None` if the pair needs no
    /// opening. mqnet may poll before the second half.
    pub(super) fn begin_link_work(&self, qp: usize) -> Option<u32> {
        let works = self.linked && self.qps[qp].ready && !self.qps[qp].up;
        works.then(|| self.pad(LINKS))
    }

    /// Second half of the work for opening a pair: writes QP_LINKS with the pair's bit.
    pub(super) fn end_link_work(&mut self, qp: usize, seen: u32) {
        self.write_pad(LINKS, seen | 1 << qp);
        self.qps[qp].up = seen & 1 << qp != 0;
    }

    pub(super) fn part_from_all(&mut self) {
        (0..self.qps.len()).for_each(|qp| self.part_from(qp));
    }

    /// Opens pairs like the netdev.
    pub(super) fn open(&mut self, qps: std::ops::Range<usize>) {
        for qp in qps {
            self.qps[qp].ready = true;
            self.link_work(qp);
        }
    }

    /// Closes a pair like the netdev.
    pub(super) fn close(&mut self, qp: usize) {
        self.qps[qp].ready = false;
        if !self.linked {
            return;
        }
        let seen = self.pad(LINKS);
        self.write_pad(LINKS, seen & !(1 << qp));
        self.qps[qp].parting = Some(100);
        self.part_from(qp);
    }

    /// Closes a pair that comes up at the same time. No link-down slot is sent, because the pair
    /// is not up yet, and the pair has no netdev afterwards.
    pub(super) fn close_while_opening(&mut self, qp: usize) {
        let seen = self.pad(LINKS);
        self.write_pad(LINKS, seen & !(1 << qp));
        self.qps[qp].ready = false;
        self.reset(qp);
    }

    /// Sends the pending link-down slot of a pair, with up to 100 attempts, and then resets the
    /// pair.
    fn part_from(&mut self, qp: usize) {
        let Some(left) = self.qps[qp].parting else { return };
        if !self.qps[qp].up || left == 0 || self.put(qp, &[], 3).is_ok() {
            self.reset(qp);
        } else {
            self.qps[qp].parting = Some(left - 1);
        }
    }

    /// Closes and opens a pair without a poll of mqnet in between.
    pub(super) fn reopen(&mut self, qp: usize) {
        self.close(qp);
        self.open(qp..qp + 1);
        self.qps[qp].is_stale = self.qps[qp].up;
    }

    /// Number of free slots in a pair's ring to mqnet.
    pub(super) fn room(&self, qp: usize) -> u64 {
        let (window, at, bytes) = self.part(qp);
        let (_, slots) = self.slots(qp);
        let tail = u64::from(self.ram[window].word(at + bytes));
        let head = self.qps[qp].tx;
        if tail >= head { tail - head } else { slots + tail - head }
    }

    fn put(&mut self, qp: usize, frame: &[u8], flags: u32) -> Result<(), ()> {
        if self.room(qp) == 0 {
            return Err(());
        }
        let (window, at, _) = self.part(qp);
        let (size, slots) = self.slots(qp);
        let pair = &mut self.qps[qp];
        let slot = at + pair.tx * size;
        let header = slot + size - 12;
        let memory = &self.windows[window];
        memory.set_word(header + 4, frame.len() as u32);
        memory.set_word(header, pair.tx_count);
        frame.iter().zip(slot..).for_each(|(byte, at)| memory.set(at, *byte));
        memory.set_word(header + 8, flags);
        pair.tx = (pair.tx + 1) % slots;
        pair.tx_count = pair.tx_count.wrapping_add(1);
        self.board.events[2 + qp].ring().unwrap();
        Ok(())
    }

    /// Sends a frame; `Err` if the ring is full or the pair is down.
    pub(super) fn send(&mut self, qp: usize, frame: &[u8]) -> Result<(), ()> {
        if self.qps[qp].up { self.put(qp, frame, 1) } else { Err(()) }
    }

    /// Receives up to `most` frames of a pair; returns their number.
    pub(super) fn receive(&mut self, qp: usize, most: usize) -> usize {
        let mut taken = 0;
        while taken < most && self.qps[qp].up {
            let (window, at, bytes) = self.part(qp);
            let (size, slots) = self.slots(qp);
            let pair = &mut self.qps[qp];
            let slot = at + pair.rx * size;
            let header = slot + size - 12;
            let memory = &self.ram[window];
            let flags = memory.word(header + 8);
            if flags & 1 == 0 {
                break;
            }
            if flags & 2 != 0 {
                memory.set_word(header + 8, 0);
                pair.downs += 1;
                self.reset(qp);
                break;
            }
            if memory.word(header) != pair.rx_count && pair.is_stale {
                break;
            }
            assert_eq!(memory.word(header), pair.rx_count, "packet number of pair {qp}");
            let len = u64::from(memory.word(header + 4));
            assert!((1..=size - 12).contains(&len), "length {len} of pair {qp}");
            pair.got.push_back((slot..slot + len).map(|at| memory.get(at)).collect());
            memory.set_word(header + 8, 0);
            self.windows[window].set_word(at + bytes, pair.rx as u32);
            pair.rx = (pair.rx + 1) % slots;
            pair.rx_count = pair.rx_count.wrapping_add(1);
            taken += 1;
        }
        taken
    }

    /// Writes a word in the header of slot `slot` of mqnet's window: field 0 number, 4 length, 8
    /// flags.
    pub(super) fn write_header(&self, qp: usize, slot: u64, field: u64, value: u32) {
        let (window, at, _) = self.part(qp);
        let (size, _) = self.slots(qp);
        self.windows[window].set_word(at + (slot + 1) * size - 12 + field, value);
    }

    /// Writes the credit for mqnet's transmissions.
    pub(super) fn write_credit(&self, qp: usize, value: u32) {
        let (window, at, bytes) = self.part(qp);
        self.windows[window].set_word(at + bytes, value);
    }

    pub(super) fn slot_count(&self, qp: usize) -> u64 {
        self.slots(qp).1
    }

    /// Resets the state after a loss of the hardware link.
    pub(super) fn relink(&mut self) {
        self.linked = false;
        self.qps.iter_mut().for_each(|qp| *qp = Qp { ready: qp.ready, ..Qp::default() });
    }
}
