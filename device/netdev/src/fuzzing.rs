//! What the fuzz targets of all functions share.

use std::ops::RangeInclusive;

use mqnet_shmem::Span;

use crate::limits::BURST_FRAMES;
use crate::{Burst, Fault, RxBrings};

/// Takes numbers from the input, zeros when it has ended.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The next 2.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// The next 8.
    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.u8()))
    }
}

/// Shows what has come, all of which must keep the contract, and releases all but `leave` frames.
/// Panics at a frame that has another length than its pieces or none of `lens`, or a header that
/// does not go with it.
pub fn receive(
    rx: &mut dyn RxBrings,
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
