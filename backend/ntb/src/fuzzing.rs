//! Targets for fuzzing and property tests. Each target accepts any bytes and must not panic. An
//! access outside the window panics too. The fuzzer (`cargo xtask fuzz`) and the tests call the
//! same functions.

pub(crate) mod board;
mod endpoint;
mod joined;
mod transport;

use std::io;
use std::sync::Arc;

use mqnet_netdev::fuzzing::{Input, receive};
use mqnet_netdev::limits::{FRAME_MAX, MTU_MAX};
use mqnet_netdev::{Burst, Caps, FrameMeta, Offloads, OwningTx, Queue, QueuePairStats};
use mqnet_shmem::{Preference, Region, Span, Window, prefer};
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::{Layer, VnetHdr};

use crate::hw::{Doorbell, ivshmem, memfd};
use crate::layout::{Geometry, PADS, VERSION_MAX, VERSION_MIN, control};
use crate::link::{Offer, OfferError, agree};
use crate::mailbox::ControlMessage;
use crate::rx::RxHalf;
use crate::shared::{Common, Words};
use crate::tx::TxHalf;

pub use endpoint::endpoint;
pub use joined::{Cable, joined};
pub use transport::transport;

/// Runs the input as the bytes of a peer before the link is up: hello message, control message and
/// scratchpads.
pub fn handshake(data: &[u8]) {
    let _ = memfd::check_hello(data);
    let mut input = Input(data);
    let body = std::array::from_fn(|_| input.u64());
    if let Ok(letter) = ControlMessage::decode(&body) {
        assert!(!letter.word.why.contains(char::is_control));
        assert!(ControlMessage::decode(&letter.encode()).is_ok());
    }
    let mut input = Input(data);
    let caps = Caps {
        layer: Layer::Ethernet,
        channels: 64,
        wanted: Some(u16::from(input.u8() % 64) + 1),
        mtu: None,
        mtu_found: None,
        mtu_max: MTU_MAX,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::ALL,
        tx_offloads: Offloads::from_bits(u32::from(input.u8())),
        rx_fixed: Offloads::NONE,
    };
    let versions = (VERSION_MIN, VERSION_MAX);
    let ours = Offer {
        versions,
        generation: 1,
        window: 2 << 20,
        caps,
        rings: Default::default(),
        membership: None,
    };
    let honest = input.u8() % 2 == 0;
    let mut pads = if honest { ours.encode() } else { [0; PADS] };
    for _ in 0..input.u8() % 32 {
        pads[usize::from(input.u8()) % PADS] = input.u64() as u32;
    }
    let window = if honest { 2 << 20 } else { input.u64() as u32 };
    let refusal = match Offer::decode(&pads, window).and_then(|theirs| agree(&ours, &theirs, 0)) {
        Ok(agreement) => {
            assert!(agreement.plan.frame_max <= agreement.inbound.frame_max());
            assert!(agreement.plan.frame_max <= agreement.outbound.frame_max());
            return;
        }
        Err(refusal) => refusal.encode(),
    };
    let (code, a, b) = refusal;
    assert!(!OfferError::text(code, a, b, true).is_empty());
    assert!(!OfferError::text(input.u64() as u32, input.u64() as u32, b, false).is_empty());
}

/// Runs the input as the byte stream of an ivshmem server.
pub fn ivshmem(data: &[u8]) {
    ivshmem::check_stream(data);
}

struct Mute;

impl Doorbell for Mute {
    fn ring(&self) -> io::Result<()> {
        Ok(())
    }
}

const WINDOW: usize = 8192;
const FRAME: u32 = 1518;

/// Queue pair with two windows of plain memory.
struct Pair {
    geometry: Geometry,
    inbound: Arc<Region>,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test counts"))]
    stats: Arc<QueuePairStats>,
    rx: RxHalf,
    tx: TxHalf,
}

fn pair(generation: u32, depth: u32) -> Option<Pair> {
    let geometry = Geometry::divide(WINDOW as u32, 1, 0, depth);
    let region = || Region::private(WINDOW, false, None).ok().map(Arc::new);
    let (inbound, outbound) = (region()?, region()?);
    let event = Arc::new(EventFd::new().ok()?);
    let stats: Arc<QueuePairStats> = Arc::default();
    let common = || Common {
        channel: 0,
        generation,
        inbound: Words::new(inbound.clone(), 0, &geometry, 0),
        outbound: Words::new(outbound.clone(), 0, &geometry, 0),
        peer_bell: Arc::new(Mute),
        event: event.clone(),
        stats: stats.clone(),
    };
    let ring =
        |region: &Arc<Region>| Window::new(region.clone(), geometry.ring_at(0), geometry.ring);
    let rx = RxHalf::new(common(), ring(&inbound), FRAME);
    let tx = TxHalf::new(common(), ring(&outbound), geometry.depth);
    Some(Pair { geometry, inbound, stats, rx, tx })
}

/// Runs the input as writes of a peer into the window, mixed with calls of both halves of a queue
/// pair. Ends at the first fault, as the engine does.
pub fn ring(data: &[u8]) {
    let mut input = Input(data);
    let generation = u32::from(input.u8()).max(1);
    // Full depth, or a depth below the length of the ring.
    let depth = if generation % 2 == 0 { u32::MAX } else { 2048 };
    prefer(if generation & 2 == 0 { Preference::Cached } else { Preference::Streamed });
    let Some(mut pair) = pair(generation, depth) else { return };
    let words = [control::TAIL, control::CREDIT, control::TAKEN, control::RX_ARM, control::TX_ARM];
    for _ in 0..400 {
        let step = input.u8();
        let done = match step % 8 {
            // Steps 0 to 3: the peer writes an index of the right generation, any control word, or
            // any bytes of the ring.
            0 => {
                let index = (input.u64() % (2 * u64::from(pair.geometry.ring))) & !15;
                let word = u64::from(generation) << 32 | index;
                write_control(&pair, words[usize::from(step >> 3) % 2], word);
                Ok(())
            }
            1 => {
                let value = input.u64();
                write_control(&pair, words[usize::from(step >> 3) % words.len()], value);
                Ok(())
            }
            2 | 3 => {
                let ring = pair.geometry.ring as usize;
                let at = pair.geometry.ring_at(0) + usize::from(step >> 3) * 32 % (ring - 16);
                let number = u64::from(input.u8()) << 48;
                store(&pair, at, if step % 8 == 2 { 0 } else { input.u64() });
                store(&pair, at + 8, number | (u64::from(input.u8()) * 8));
                Ok(())
            }
            // Steps 4 to 7: the queue pair under test receives, sends or arms.
            4 => receive(&mut pair.rx, 1..=FRAME, usize::from(step >> 3)),
            5 => send(&mut pair.tx, usize::from(step >> 3) * 48 + 1),
            6 => pair.rx.arm(0).map(drop),
            _ => pair.tx.arm(FRAME).map(drop),
        };
        if done.is_err() || input.0.is_empty() {
            return;
        }
    }
}

fn write_control(pair: &Pair, word: usize, value: u64) {
    store(pair, pair.geometry.control(0, word), value);
}

fn store(pair: &Pair, at: usize, value: u64) {
    pair.inbound.word(at & !7).store(value, std::sync::atomic::Ordering::Relaxed);
}

fn send(tx: &mut TxHalf, len: usize) -> Result<(), mqnet_netdev::Fault> {
    let bytes = vec![7; len.min(FRAME as usize)];
    {
        let mut burst = Burst::new();
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(&bytes));
        tx.submit(&burst, 0)?;
    }
    if let Some(mut room) = tx.reserve(FRAME)? {
        room.head.copy_from(Span::of(&bytes));
        tx.commit(&FrameMeta { len: bytes.len() as u32, hdr: VnetHdr::default() });
    }
    tx.flush()
}

#[cfg(test)]
mod tests {
    use mqnet_netdev::OwningTx;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // Rule: no bytes of a peer make the handshake panic, or agree to frames that do not fit a
        // ring.
        #[test]
        fn handshake_survives_anything(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::handshake(&data);
        }

        // Rule: no bytes of a peer make a queue pair panic or access memory outside its window. No
        // frame breaks the contract of `OwningRx`.
        #[test]
        fn ring_survives_anything(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::ring(&data);
        }

        // Rule: no bytes of a peer in scratchpads, slots and credits make the function panic or
        // access memory outside its windows. No frame breaks the contract of `OwningRx`.
        #[test]
        fn transport_survives_anything(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::transport(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        // Rule: no messages, registers, scratchpads, DMA ranges or slots of a guest make the
        // function panic or access memory outside its regions. No frame breaks the contract of
        // `OwningRx`.
        #[test]
        fn endpoint_survives_anything(data in prop::collection::vec(any::<u8>(), 0..1000)) {
            super::endpoint(&data);
        }
    }

    // Rule: the depth limits the bytes in use, and the ring still wraps at its full length. The
    // writer then does not touch cache lines that were just read.
    #[test]
    fn a_ring_holds_its_depth() {
        let mut pair = super::pair(1, 2048).unwrap();
        let (size, depth) = (pair.geometry.ring, 2048);
        assert!(size > depth);
        let mut credit = 0;
        for _ in 0..20 {
            let before = pair.stats.tx.bytes.get();
            for _ in 0..100 {
                super::send(&mut pair.tx, 112).unwrap();
            }
            // Each record has 128 bytes: a header of 16 and the frame of 112.
            let placed = (pair.stats.tx.bytes.get() - before) as u32 / 112 * 128;
            assert!(placed <= depth && placed > depth - 128, "{placed} of {depth}");
            assert!(!pair.tx.is_drained().unwrap());
            credit = (credit + placed) % (2 * size);
            super::write_control(&pair, super::control::CREDIT, 1 << 32 | u64::from(credit));
            assert!(pair.tx.is_drained().unwrap());
        }
        assert!(pair.stats.tx.bytes.get() > 2 * u64::from(size), "it has wrapped");
    }
}
