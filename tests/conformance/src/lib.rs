//! Conformance suite of every backend: checks the contract of `mqnet_netdev` on a [`Rig`].
//!
//! A rig consists of two queues of a backend that are joined by the backend's data path: a frame
//! sent to `tx` arrives at `rx`, through a kernel or a shared window.

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

use mqnet_netdev::{Burst, QueuePairStats, Recv, Rx, Tx};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

/// Ethertype of the suite's frames ("local experimental"). The kernel ignores these frames, and the
/// suite ignores frames of other types.
pub const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Bytes before the payload of a test frame.
const HEADER: usize = 14;

/// Backend under test.
pub struct Rig {
    pub name: &'static str,
    pub tx: Tx,
    pub rx: Rx,
    pub tx_stats: Arc<QueuePairStats>,
    pub rx_stats: Arc<QueuePairStats>,
    pub frame_max: u32,
    /// False if the path drops frames instead of reporting a full queue, as a TAP does with a full
    /// kernel ring.
    pub lossless: bool,
    /// Resources that the queues need, released when the rig is dropped.
    pub keep: Box<dyn std::any::Any>,
}

/// Test frame: broadcast, with a number, and with a payload that depends on the number.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let len = len.max(HEADER + 4);
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.extend(ETHERTYPE);
    bytes.extend(number.to_le_bytes());
    bytes.extend((bytes.len()..len).map(|i| (i as u32).wrapping_mul(number | 1) as u8));
    bytes
}

/// Number of a test frame; `None` for any other frame. Panics on a damaged frame.
pub fn number_of(bytes: &[u8]) -> Option<u32> {
    if bytes.get(12..14) != Some(&ETHERTYPE[..]) {
        return None;
    }
    let number = u32::from_le_bytes(bytes.get(14..18)?.try_into().ok()?);
    assert!(bytes == frame(number, bytes.len()), "frame {number} is damaged");
    Some(number)
}

/// Sends one burst; returns the number of accepted frames.
pub fn send(tx: &mut Tx, frames: &[Vec<u8>]) -> usize {
    let mut burst = Burst::new();
    for bytes in frames {
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
    }
    let taken = tx.submit(&burst, 0).expect("submit");
    tx.flush().expect("flush");
    taken
}

/// Receives up to `budget` frames of at most `frame_max` bytes. An owning queue releases all but
/// the last `keep` frames; the next call receives these again.
pub fn receive(rx: &mut Rx, frame_max: u32, budget: usize, keep: usize) -> Vec<Vec<u8>> {
    match rx {
        Rx::Syscall(rx) => {
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
        Rx::Owning(rx) => {
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
    /// Sends one burst through the rig's TX queue (see [`send`]).
    pub fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        send(&mut self.tx, frames)
    }

    /// Receives frames from the rig's RX queue (see [`receive`]).
    pub fn receive(&mut self, budget: usize, keep: usize) -> Vec<Vec<u8>> {
        receive(&mut self.rx, self.frame_max, budget, keep)
    }

    /// Receives frames until none is ready; returns the numbers of the test frames.
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
