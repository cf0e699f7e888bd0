//! Helpers shared by the fuzz targets of all functions.

use std::ops::RangeInclusive;

use mqnet_shmem::Span;

use crate::limits::BURST_FRAMES;
use crate::{Burst, Fault, OwningRx};

/// Reader of a fuzzer's input that returns zeros after its end.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// Reads the next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Reads the next 2 bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// Reads the next 8 bytes.
    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.u8()))
    }
}

/// Peeks a burst, checks every frame against the contract, and releases all but the last `leave`
/// frames. Panics if the length of a frame is outside `lens` or differs from its segments, or if
/// the header does not match the frame.
pub fn receive(
    rx: &mut dyn OwningRx,
    lens: RangeInclusive<u32>,
    leave: usize,
) -> Result<(), Fault> {
    let shown = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, BURST_FRAMES)?;
        for frame in burst.frames() {
            assert!(lens.contains(&frame.len), "a frame of {} bytes", frame.len);
            let more = burst.more(frame).iter().map(Span::len).sum::<usize>();
            assert_eq!(frame.head.len() + more, frame.len as usize);
            assert!(frame.hdr.check(frame.len).is_ok());
        }
        burst.frames().len()
    };
    rx.release(shown - leave.min(shown))
}
