//! Tests with a UDP socket instead of a TAP. The socket refuses frames of more than 65,507 bytes,
//! header included, with EMSGSIZE.

use std::net::UdpSocket;
use std::time::Duration;

use mqnet_netdev::Offloads;
use mqnet_shmem::SpanMut;
use mqnet_wire::{Layer, VnetFields};

use super::*;
use crate::fallback::Refused;

const HEADERS: usize = 54;
const MSS: u16 = 1448;

struct Kernel {
    queue: TapTx,
    refused: Refused,
    socket: UdpSocket,
    sent: u64,
}

impl Kernel {
    fn new() -> Self {
        let [ours, socket] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        ours.connect(socket.local_addr().unwrap()).unwrap();
        ours.set_nonblocking(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let (refused, stats) = (Refused::default(), Arc::new(QueuePairStats::default()));
        let fallback = Fallback::new(Layer::Ethernet, 65_554, refused.clone());
        let fd = Arc::new(OwnedFd::from(ours));
        Self {
            queue: TapTx { channel: 0, fd, stats, batch: None, fallback },
            refused,
            socket,
            sent: 0,
        }
    }

    fn submit(&mut self, hdr: VnetHdr, bytes: &[u8]) {
        let mut burst = Burst::new();
        burst.push(hdr, bytes.len() as u32, Span::of(bytes));
        assert_eq!(self.queue.submit(&burst, 0).unwrap(), 1);
        self.sent += 1;
        let tx = &self.queue.stats.tx;
        let gone = tx.packets.get() + tx.drops.total();
        assert_eq!(gone, self.sent + tx.segments.get(), "every frame is counted");
    }

    /// Returns the headers and frames that have arrived at the socket.
    fn taken(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut taken = Vec::new();
        let mut room = vec![0; 1 << 16];
        while let Ok(n) = self.socket.recv(&mut room) {
            let (header, frame) = room[..n].split_at(VNET_HDR_LEN);
            taken.push((header.to_vec(), frame.to_vec()));
        }
        taken
    }
}

/// TCP segment with `payload` bytes and the checksum of its pseudo header.
fn tcp(payload: usize) -> (VnetHdr, Vec<u8>) {
    let mut frame = vec![0x02; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(((payload + 40) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let ip = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    let pseudo = [&frame[26..34], &[0, 6], &((payload + 20) as u16).to_be_bytes()].concat();
    let pseudo = sum(&pseudo);
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    frame.extend((0..payload).map(|at| (at % 251) as u8));
    let hdr = VnetHdr::new(VnetFields {
        flags: 1,
        gso_type: 1,
        hdr_len: HEADERS as u16,
        gso_size: MSS,
        csum_start: 34,
        csum_offset: 16,
    });
    (hdr, frame)
}

/// Internet checksum without the final complement.
fn sum(bytes: &[u8]) -> u16 {
    let word = |two: &[u8]| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn has_valid_checksums(frame: &[u8]) -> bool {
    let len = (frame.len() - 34) as u16;
    let all = [&frame[26..34], &[0, 6], &len.to_be_bytes(), &frame[34..]].concat();
    sum(&frame[14..34]) == 0xffff && sum(&all) == 0xffff
}

// Rule: a refused large frame arrives as segments with valid checksums and the whole payload.
// Nothing counts as dropped.
#[test]
fn refused_frame_is_sent_as_its_parts() {
    let mut kernel = Kernel::new();
    let (hdr, frame) = tcp(65_495);
    kernel.submit(hdr, &frame);
    let taken = kernel.taken();
    assert_eq!(taken.len(), 65_495_usize.div_ceil(MSS.into()));
    let mut payload: Vec<u8> = Vec::new();
    for (header, part) in &taken {
        assert_eq!(header[..10], [0; 10]);
        assert!(has_valid_checksums(part));
        payload.extend(&part[HEADERS..]);
    }
    assert!(payload == frame[HEADERS..], "the payload is another");
    assert_eq!(kernel.queue.stats.tx.drops.total(), 0);
    assert_eq!(kernel.refused.get(), Offloads::NONE, "one refusal is not the rule");
}

// Rule: an offload is withdrawn after eight consecutive refusals, not earlier. An accepted frame
// resets the count.
#[test]
fn repeated_refusals_withdraw_the_offload() {
    let mut kernel = Kernel::new();
    let (large, small) = (tcp(65_495), tcp(3000));
    for _ in 0..7 {
        kernel.submit(large.0, &large.1);
        kernel.taken();
    }
    kernel.submit(small.0, &small.1);
    assert_eq!(kernel.taken(), [(small.0.to_bytes().to_vec(), small.1.clone())]);
    for _ in 0..7 {
        kernel.submit(large.0, &large.1);
        kernel.taken();
    }
    assert_eq!(kernel.refused.get(), Offloads::NONE);
    kernel.submit(large.0, &large.1);
    assert_eq!(kernel.refused.get(), Offloads::TSO4);
}

// Rule: a refused frame that cannot be segmented is dropped as refused; later frames are sent.
#[test]
fn refused_frame_without_parts_is_dropped() {
    let mut kernel = Kernel::new();
    let (_, frame) = tcp(65_495);
    kernel.submit(VnetHdr::default(), &frame);
    assert_eq!(kernel.queue.stats.tx.drops.get(DropReason::Refused), 1);
    let (hdr, frame) = tcp(100);
    kernel.submit(hdr, &frame);
    assert_eq!(kernel.taken().len(), 1);
}

// Rule: a received frame that exceeds the buffer or the largest frame is dropped with that reason,
// never truncated. Header flags other than a partial checksum are not passed on.
#[test]
fn received_frames_are_whole_or_dropped() {
    let [ours, kernel] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    ours.set_nonblocking(true).unwrap();
    let to = ours.local_addr().unwrap();
    let (fd, stats) = (Arc::new(OwnedFd::from(ours)), Arc::new(QueuePairStats::default()));
    let mut rx = TapRx { channel: 0, fd, frame_max: 1522, stats: stats.clone() };
    let mut receive = |flags: u8, len: usize, room: usize| {
        let mut frame = vec![0; VNET_HDR_LEN + len];
        frame[0] = flags;
        kernel.send_to(&frame, to).unwrap();
        let mut bytes = vec![0; room];
        let room = SpanMut::of(&mut bytes);
        match rx.recv(&mut Segments::new(room, SpanMut::empty())).unwrap() {
            Recv::Frame(frame) => Ok((frame.len, frame.hdr)),
            Recv::Dropped { reason, .. } => Err(reason),
            Recv::Empty => panic!("a frame was sent"),
        }
    };
    for flags in [0, 2, 4, 6] {
        assert_eq!(receive(flags, 1000, 2000), Ok((1000, VnetHdr::default())), "{flags}");
    }
    assert_eq!(receive(0, 1000, 1000), Ok((1000, VnetHdr::default())));
    assert_eq!(receive(0, 1001, 1000), Err(DropReason::BufferTooSmall));
    assert_eq!(receive(0, 1500, 1000), Err(DropReason::BufferTooSmall));
    assert_eq!(receive(0, 1523, 2000), Err(DropReason::TooLong));
    assert_eq!((stats.rx.packets.get(), stats.rx.drops.total()), (8, 3));
}
