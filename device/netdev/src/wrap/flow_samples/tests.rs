use std::collections::VecDeque;

use mqnet_shmem::SpanMut;
use mqnet_wire::VnetHdr;

use super::*;
use crate::{Armed, FrameMeta, Queue, WakeSource};

/// Frames of three segments of one byte each, with the bucket in the first two bytes.
struct Fake(VecDeque<Vec<u8>>);

fn fake(buckets: &[u8]) -> Fake {
    Fake(buckets.iter().map(|&bucket| vec![bucket, bucket, 0]).collect())
}

/// Bucket in the first byte; `None` unless there are three bytes and the first two are equal.
fn bucket_of(headers: &[u8]) -> Option<usize> {
    (headers.len() == 3 && headers[0] == headers[1]).then(|| usize::from(headers[0]))
}

impl Queue for Fake {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Fake {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        for frame in self.0.iter().take(budget) {
            let more = [Span::of(&frame[1..2]), Span::of(&frame[2..])];
            burst.push_pieces(VnetHdr::default(), 3, Span::of(&frame[..1]), &more);
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.drain(..frames);
        Ok(())
    }
}

impl SyscallRx for Fake {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some(frame) = self.0.pop_front() else { return Ok(Recv::Empty) };
        let n = room.head.copy_from(Span::of(&frame));
        room.tail.copy_from(Span::of(&frame).skip(n));
        Ok(Recv::Frame(FrameMeta { len: 3, hdr: VnetHdr::default() }))
    }
}

fn counts(samples: &FlowSamples) -> Vec<u64> {
    samples.counts().collect()
}

// Goal: one frame of each burst is sampled, at another position each time and across its segments.
// The inner queue is unaffected; unknown buckets are ignored.
#[test]
fn one_frame_of_a_burst_is_sampled() {
    let samples = FlowSamples::new(4);
    let inner = Rx::Owning(Box::new(fake(&[0, 1, 2, 9])));
    let Rx::Owning(mut rx) = wrap_rx(inner, samples.clone(), Arc::new(bucket_of)) else {
        panic!("it brought memory");
    };
    for expected in [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [2, 1, 1, 0]] {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).unwrap();
        assert_eq!(burst.frames().len(), 4);
        drop(burst);
        assert_eq!(counts(&samples), expected);
    }
    rx.release(4).unwrap();
    let mut burst = Burst::new();
    rx.peek(&mut burst, 64).unwrap();
    assert_eq!((burst.frames().len(), counts(&samples)), (0, vec![2, 1, 1, 0]));
}

// Goal: of frames received singly, the first and every eighth after it are sampled, without bytes
// after the frame's end.
#[test]
fn one_of_eight_received_frames_is_sampled() {
    let samples = FlowSamples::new(4);
    let frames: Vec<u8> = (0..17).map(|i| if i % 8 == 0 { 2 } else { 1 }).collect();
    let inner = Rx::Syscall(Box::new(fake(&frames)));
    let Rx::Syscall(mut rx) = wrap_rx(inner, samples.clone(), Arc::new(bucket_of)) else {
        panic!("it borrowed memory");
    };
    for _ in 0..20 {
        let (mut head, mut tail) = ([0xff; 2], [0xff; 100]);
        let mut room = Segments::new(SpanMut::of(&mut head), SpanMut::of(&mut tail));
        rx.recv(&mut room).unwrap();
    }
    assert_eq!(counts(&samples), [0, 0, 3, 0]);
}
