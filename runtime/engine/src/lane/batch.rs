//! Batch of frames of a system-call source, received into memory of the lane. Frames are batched
//! for coalescing, or because the sink has no space for the largest frame that may arrive. A large
//! frame ends its batch, so that it does not wait.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BUDGET, BURST_BYTES, BURST_FRAMES};
use mqnet_netdev::{Burst, Fault, FrameMeta, Recv, SyscallRx, Tx};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

use super::{PollEnd, Polled};

/// Batch size while the sink has no space for the largest frame. The number is small, because the
/// frames wait in the batch if the sink has no space for them either.
const SMALL_BATCH: usize = 16;

/// Largest frame that is copied while the sink has no space for a largest frame. A copy costs less
/// than a stop and a wake.
const SMALL: u32 = 16 << 10;

/// Use of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// All frames are received into the batch, for coalescing.
    All,
    /// Small frames are received into the batch while the sink has too little space.
    Small,
    /// No frame is received into the batch.
    Unused,
}

/// Receive buffer with contiguous frames, which use few cache lines.
pub(super) struct Batch {
    bytes: Vec<u8>,
    room: u32,
    frames: ArrayVec<(u32, FrameMeta), BURST_FRAMES>,
    /// Number of frames of the batch that are already sent.
    sent: usize,
    /// True if the last poll found more than two frames, so that several frames are received before
    /// the first is sent.
    is_busy: bool,
    used: Use,
    /// True if nothing more is received, because the lane is being detached. With a sink slower
    /// than its source the lane would otherwise never be empty.
    closed: bool,
    /// Length of the last received frame, in the batch or in the sink's memory. The next frame
    /// likely has a similar length.
    last: u32,
}

/// Result of a receive loop.
struct Filled {
    /// Number of frames that left the source.
    frames: usize,
    is_empty: bool,
}

impl Batch {
    /// Creates a batch for frames of up to `room` bytes.
    pub(super) fn new(room: u32) -> Self {
        let bytes = vec![0; BURST_BYTES + room as usize];
        let (frames, used) = (ArrayVec::new(), Use::All);
        Self { bytes, room, frames, sent: 0, is_busy: false, used, closed: false, last: 0 }
    }

    /// Sets the use of the batch. Frames that wait in the batch are sent first with every use.
    pub(super) fn set_use(&mut self, used: Use) {
        self.used = used;
    }

    /// Stops receiving into the batch (`true`) or allows it, independently of the use.
    pub(super) fn close(&mut self, on: bool) {
        self.closed = on;
    }

    /// True if the batch receives small frames for lack of space in the sink.
    pub(super) fn is_for_small(&self) -> bool {
        self.used == Use::Small
    }

    /// True if the batch is unused and empty.
    pub(super) fn is_unused(&self) -> bool {
        self.used == Use::Unused && self.waiting() == 0
    }

    /// Length of the last frame, to be updated by a receiver that bypasses the batch.
    pub(super) fn last(&mut self) -> &mut u32 {
        &mut self.last
    }

    /// Length of the first waiting frame; `None` if no frame waits.
    pub(super) fn needs(&self) -> Option<u32> {
        self.frames.get(self.sent).map(|(_, frame)| frame.len)
    }

    /// Number of frames that wait for the sink.
    pub(super) fn waiting(&self) -> usize {
        self.frames.len() - self.sent
    }

    fn bytes_of(&self, (at, frame): &(u32, FrameMeta)) -> &[u8] {
        &self.bytes[*at as usize..][..frame.len as usize]
    }

    /// Removes and returns the waiting frames.
    pub(super) fn drain(&mut self) -> Vec<(Vec<u8>, VnetHdr)> {
        let own = |frame: &(u32, FrameMeta)| (self.bytes_of(frame).to_vec(), frame.1.hdr);
        let waiting = self.frames[self.sent..].iter().map(own).collect();
        self.clear();
        waiting
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.sent = 0;
    }

    /// Receives up to `most` frames, up to the capacity of the batch. A GSO frame ends the loop,
    /// and for [`Use::Small`] also a frame longer than [`SMALL`].
    fn fill(&mut self, rx: &mut dyn SyscallRx, most: usize) -> Result<Filled, Fault> {
        let (mut frames, mut at) = (0, 0);
        while frames < most && at <= BURST_BYTES {
            let room = SpanMut::of(&mut self.bytes[at..at + self.room as usize]);
            match rx.recv(&mut Segments::new(room, SpanMut::empty()))? {
                Recv::Empty => return Ok(Filled { frames, is_empty: true }),
                Recv::Dropped { .. } => frames += 1,
                Recv::Frame(frame) => {
                    frames += 1;
                    self.last = frame.len;
                    self.frames.push((at as u32, frame));
                    at += frame.len as usize;
                    let stays_small = self.used != Use::Small || frame.len <= SMALL;
                    if frame.hdr.is_large() || !stays_small {
                        break;
                    }
                }
            }
        }
        Ok(Filled { frames, is_empty: false })
    }

    /// Sends waiting frames. Returns false if the sink did not accept all of them.
    pub(super) fn send(&mut self, tx: &mut Tx) -> Result<bool, Fault> {
        if self.waiting() == 0 {
            return Ok(true);
        }
        let taken = {
            let mut burst = Burst::new();
            for frame in &self.frames[self.sent..] {
                burst.push(frame.1.hdr, frame.1.len, Span::of(self.bytes_of(frame)));
            }
            tx.submit(&burst, 0)?
        };
        self.sent += taken;
        let all = self.waiting() == 0;
        if all {
            self.clear();
        }
        tx.flush()?;
        Ok(all)
    }

    /// Moves up to a budget of frames through the batch.
    pub(super) fn carry(&mut self, rx: &mut dyn SyscallRx, tx: &mut Tx) -> Result<Polled, Fault> {
        let mut frames = 0;
        let ended = |frames, rest| Ok(Polled { frames, sent: 0, rest });
        // Receive only one frame while the source is not busy, so that a single frame does not
        // wait.
        let mut most = if self.is_busy { BURST_FRAMES } else { 1 };
        loop {
            if !self.send(tx)? {
                return ended(frames, PollEnd::Full);
            }
            if self.closed {
                return ended(frames, PollEnd::Empty);
            }
            if frames >= BUDGET || self.used == Use::Unused {
                return ended(frames, PollEnd::Budget);
            }
            let got = self.fill(rx, most.min(BUDGET - frames))?;
            frames += got.frames;
            most = BURST_FRAMES;
            if got.is_empty {
                self.is_busy = frames > 2;
                let rest = if self.send(tx)? { PollEnd::Empty } else { PollEnd::Full };
                return ended(frames, rest);
            }
            self.is_busy |= frames > 2;
        }
    }

    /// Moves up to `budget` frames through the batch while the sink has no space for a largest
    /// frame. Without `any`, ends with `Full` after a frame longer than [`SMALL`] or if the batch
    /// is closed: the next frame is better received in place.
    pub(super) fn carry_small(
        &mut self,
        rx: &mut dyn SyscallRx,
        tx: &mut Tx,
        budget: usize,
        any: bool,
    ) -> Result<Polled, Fault> {
        let mut frames = 0;
        let ended = |frames, rest| Ok(Polled { frames, sent: 0, rest });
        while any || (!self.closed && self.last <= SMALL) {
            if frames >= budget {
                return ended(frames, PollEnd::Budget);
            }
            let got = self.fill(rx, SMALL_BATCH.min(budget - frames))?;
            frames += got.frames;
            if !self.send(tx)? {
                return ended(frames, PollEnd::Full);
            }
            if got.is_empty {
                return ended(frames, PollEnd::Empty);
            }
        }
        ended(frames, PollEnd::Full)
    }
}
