//! One suite for every backend: what the contract of `mqnet_netdev` promises, checked on a [`Rig`].
//!
//! A rig is two queues of a backend joined by the real thing: what goes into `tx` comes out of
//! `rx`, through a kernel or a shared window.

#![forbid(unsafe_code)]

pub mod flows;
pub mod lifecycle;
pub mod resources;
pub mod rigs;
pub mod setups;
pub mod suite;
pub mod world;

use std::collections::VecDeque;
use std::sync::Arc;

use mqnet_netdev::{Burst, ChannelStats, Recv, Rx, Tx};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

/// Ethertype of the frames that the suite sends ("local experimental"); the kernel leaves them
/// alone, and everything else that a kernel says is not ours.
pub const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Bytes in front of the payload of a test frame.
const HEADER: usize = 14;

/// A backend under test.
pub struct Rig {
    pub name: &'static str,
    pub tx: Tx,
    pub rx: Rx,
    pub tx_stats: Arc<ChannelStats>,
    pub rx_stats: Arc<ChannelStats>,
    pub frame_max: u32,
    /// Most frames that may be on their way; `None` when the backend drops instead (a TAP whose
    /// kernel ring is full).
    pub lossless: bool,
    /// Keeps alive, and takes back, what the queues stand on.
    pub keep: Box<dyn std::any::Any>,
}

/// A test frame: broadcast, numbered, with a payload that depends on the number.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let len = len.max(HEADER + 4);
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.extend(ETHERTYPE);
    bytes.extend(number.to_le_bytes());
    bytes.extend((bytes.len()..len).map(|i| (i as u32).wrapping_mul(number | 1) as u8));
    bytes
}

/// The number of a test frame; `None` for a frame that is not one. Panics on a damaged one.
pub fn number_of(bytes: &[u8]) -> Option<u32> {
    if bytes.get(12..14) != Some(&ETHERTYPE[..]) {
        return None;
    }
    let number = u32::from_le_bytes(bytes.get(14..18)?.try_into().ok()?);
    assert!(bytes == frame(number, bytes.len()), "frame {number} is damaged");
    Some(number)
}

/// Sends one burst; returns how many frames were taken.
pub fn send(tx: &mut Tx, frames: &[Vec<u8>]) -> usize {
    let mut burst = Burst::new();
    for bytes in frames {
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
    }
    let taken = tx.submit(&burst, 0).expect("submit");
    tx.flush().expect("flush");
    taken
}

/// Takes up to `budget` frames of at most `frame_max` bytes, each as its bytes; releases all but
/// the last `keep` of them, which come again.
pub fn receive(rx: &mut Rx, frame_max: u32, budget: usize, keep: usize) -> Vec<Vec<u8>> {
    match rx {
        Rx::Borrows(rx) => {
            let mut out = Vec::new();
            let mut room = vec![0; frame_max as usize + 1];
            while out.len() < budget {
                let head = SpanMut::of(&mut room);
                let mut segments = Segments::new(head, SpanMut::empty());
                match rx.recv(&mut segments).expect("recv") {
                    Recv::Frame(f) => out.push(room[..f.len as usize].to_vec()),
                    Recv::Dropped { .. } => {}
                    Recv::Empty => break,
                }
            }
            out
        }
        Rx::Brings(rx) => {
            let out = {
                let mut burst = Burst::new();
                rx.peek(&mut burst, budget).expect("peek");
                let copy = |f: &mqnet_netdev::Frame<'_>| {
                    let mut bytes = vec![0; f.len as usize];
                    let mut at = f.head.read_header(&mut bytes);
                    for piece in burst.more(f) {
                        at += piece.read_header(&mut bytes[at..]);
                    }
                    assert_eq!(at, bytes.len(), "pieces do not add up");
                    bytes
                };
                burst.frames().iter().map(copy).collect::<Vec<_>>()
            };
            let taken = out.len() - keep.min(out.len());
            rx.release(taken).expect("release");
            out[..taken].to_vec()
        }
    }
}

impl Rig {
    /// See [`send`].
    pub fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        send(&mut self.tx, frames)
    }

    /// See [`receive`].
    pub fn receive(&mut self, budget: usize, keep: usize) -> Vec<Vec<u8>> {
        receive(&mut self.rx, self.frame_max, budget, keep)
    }

    /// Takes everything that is there now; the numbers of our frames.
    pub fn drain(&mut self) -> VecDeque<u32> {
        let mut numbers = VecDeque::new();
        loop {
            let frames = self.receive(64, 0);
            if frames.is_empty() {
                return numbers;
            }
            numbers.extend(frames.iter().filter_map(|f| number_of(f)));
        }
    }
}
