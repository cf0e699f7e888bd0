//! Tests of frames with a checksum that the device has validated (DATA_VALID) and left undefined.

use mqnet_netdev::{Burst, Channel, Rx};
use mqnet_wire::{VnetFields, VnetHdr};

use super::device::{Behaviour, CORRECT, FEATURES, IN_ORDER, Vring};
use super::world_of;

const DATA_VALID: [u8; 10] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const BEGUN: VnetFields =
    VnetFields { flags: 1, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 34, csum_offset: 16 };

/// TCP frame over IPv4 with a checksum field of 0.
fn tcp(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54];
    (frame[12], frame[14], frame[23], frame[46]) = (8, 0x45, 6, 0x50);
    frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

fn slow_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for (at, byte) in parts.concat().iter().enumerate() {
        sum += u32::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of `bytes` and of the pseudo header for `frame`, which has `len` bytes.
fn sum(frame: &[u8], len: usize, bytes: &[u8]) -> u16 {
    slow_sum(&[&frame[26..34], &[0, 6], &((len - 34) as u16).to_be_bytes(), bytes])
}

fn receive(channel: &mut Channel) -> (VnetHdr, Vec<u8>) {
    let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
    let frame = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).unwrap();
        let [frame] = burst.frames() else { panic!("one frame was sent") };
        let mut bytes = Vec::new();
        for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
            let mut part = vec![0; piece.len()];
            piece.read_header(&mut part);
            bytes.extend(part);
        }
        (frame.hdr, bytes)
    };
    rx.release(1).unwrap();
    frame
}

/// Sends a frame in two buffers, with its first `first` bytes in the first buffer.
fn send(vring: &mut Vring, frame: &[u8], first: usize) {
    vring.send(2, DATA_VALID, &frame[..first]);
    let (id, at, _) = vring.take().unwrap();
    vring.write(at, &frame[first..]);
    vring.give(id.into(), (frame.len() - first) as u32);
}

// Goal: a frame with an omitted checksum is received with a partial checksum, for any split into
// buffers. If bytes follow the packet, its checksum is completed.
#[test]
fn left_out_checksums_become_partial() {
    for (order, behaviour) in [("any", CORRECT), ("order", IN_ORDER)] {
        let (device, _function, mut channel) = world_of(&format!("vouched-{order}"), behaviour);
        let mut vring = device.vring(0);
        for (payload, first) in [(1000, None), (0, None), (1000, Some(51)), (800, Some(20))] {
            let mut frame = tcp(payload);
            match first {
                None => vring.send(1, DATA_VALID, &frame),
                Some(first) => send(&mut vring, &frame, first),
            }
            let begun = sum(&frame, frame.len(), &[]);
            frame[50..52].copy_from_slice(&begun.to_be_bytes());
            assert_eq!(receive(&mut channel), (VnetHdr::new(BEGUN), frame), "{first:?}");
        }
        for first in [None, Some(51)] {
            let mut frame = tcp(2);
            let len = frame.len();
            frame.extend([0xa5; 4]);
            match first {
                None => vring.send(1, DATA_VALID, &frame),
                Some(first) => send(&mut vring, &frame, first),
            }
            let complete = !sum(&frame, len, &frame[34..len]);
            frame[50..52].copy_from_slice(&complete.to_be_bytes());
            assert_eq!(receive(&mut channel), (VnetHdr::default(), frame), "{first:?}");
        }
    }
}

// Goal: a frame with DATA_VALID that is a fragment, or is neither TCP nor UDP, passes unchanged.
// All frames of a device that may not omit checksums pass unchanged too.
#[test]
fn other_validated_frames_pass_unchanged() {
    let (device, _function, mut channel) = world_of("vouched-other", CORRECT);
    let mut vring = device.vring(0);
    let mut fragment = tcp(100);
    fragment[20] = 0x20;
    let mut icmp = tcp(100);
    icmp[23] = 1;
    for frame in [vec![7; 64], fragment, icmp] {
        vring.send(1, DATA_VALID, &frame);
        assert_eq!(receive(&mut channel), (VnetHdr::default(), frame));
    }
    let behaviour = Behaviour { features: FEATURES & !2, ..CORRECT };
    let (device, _function, mut channel) = world_of("vouched-never", behaviour);
    device.vring(0).send(1, DATA_VALID, &tcp(100));
    assert_eq!(receive(&mut channel), (VnetHdr::default(), tcp(100)));
}
