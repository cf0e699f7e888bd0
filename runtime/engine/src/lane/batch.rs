//! Frames of a source without memory, several of them together, so that those of a flow can be
//! merged before they go on. A large frame goes alone: it waits for none.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BUDGET, BURST_BYTES, BURST_FRAMES};
use mqnet_netdev::{Burst, Fault, FrameMeta, Recv, RxBorrows, Tx};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

use super::{Polled, Rest};

/// Where they are received, one behind the other: what lies together stays in the caches.
pub(super) struct Batch {
    bytes: Vec<u8>,
    room: u32,
    frames: ArrayVec<(u32, FrameMeta), BURST_FRAMES>,
    /// So many of them have been sent.
    sent: usize,
    /// The last poll found several: it is worth looking for more before the first is sent.
    is_busy: bool,
    /// Nothing more is received.
    leaves: bool,
}

/// What a look at the source found.
struct Filled {
    /// Frames that left it.
    frames: usize,
    is_empty: bool,
}

impl Batch {
    /// For frames that need so much room.
    pub(super) fn new(room: u32) -> Self {
        let bytes = vec![0; BURST_BYTES + room as usize];
        let frames = ArrayVec::new();
        Self { bytes, room, frames, sent: 0, is_busy: false, leaves: false }
    }

    /// Receives nothing more; true when nothing waits.
    pub(super) fn leave(&mut self) -> bool {
        self.leaves = true;
        self.waiting() == 0
    }

    /// It goes on.
    pub(super) fn stay(&mut self) {
        self.leaves = false;
    }

    /// True when it is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        self.leaves && self.waiting() == 0
    }

    /// Frames that wait for their sink.
    pub(super) fn waiting(&self) -> usize {
        self.frames.len() - self.sent
    }

    fn bytes_of(&self, (at, frame): &(u32, FrameMeta)) -> &[u8] {
        &self.bytes[*at as usize..][..frame.len as usize]
    }

    /// Gives away the frames that wait.
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

    /// Receives up to `most` frames.
    fn fill(&mut self, rx: &mut dyn RxBorrows, most: usize) -> Result<Filled, Fault> {
        let (mut frames, mut at) = (0, 0);
        while frames < most && at <= BURST_BYTES {
            let room = SpanMut::of(&mut self.bytes[at..at + self.room as usize]);
            match rx.recv(&mut Segments::new(room, SpanMut::empty()))? {
                Recv::Empty => return Ok(Filled { frames, is_empty: true }),
                Recv::Dropped { .. } => frames += 1,
                Recv::Frame(frame) => {
                    frames += 1;
                    self.frames.push((at as u32, frame));
                    at += frame.len as usize;
                    if frame.hdr.is_large() {
                        break;
                    }
                }
            }
        }
        Ok(Filled { frames, is_empty: false })
    }

    /// Sends what waits; false when the sink is full.
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

    /// Moves up to a budget of frames.
    pub(super) fn carry(&mut self, rx: &mut dyn RxBorrows, tx: &mut Tx) -> Result<Polled, Fault> {
        let mut frames = 0;
        let ended = |frames, rest| Ok(Polled { frames, sent: 0, rest });
        // A frame that comes alone goes at once.
        let mut most = if self.is_busy { BURST_FRAMES } else { 1 };
        loop {
            if !self.send(tx)? {
                return ended(frames, Rest::Full);
            }
            if frames >= BUDGET || self.leaves {
                return ended(frames, Rest::Budget);
            }
            let got = self.fill(rx, most.min(BUDGET - frames))?;
            frames += got.frames;
            most = BURST_FRAMES;
            if got.is_empty {
                self.is_busy = frames > 2;
                let rest = if self.send(tx)? { Rest::Empty } else { Rest::Full };
                return ended(frames, rest);
            }
            self.is_busy |= frames > 2;
        }
    }
}
