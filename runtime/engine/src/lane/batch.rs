//! Frames of a source without memory that are received into memory of the lane's own, several of
//! them together: so that those of a flow can be merged before they go on, or because the sink has
//! no room for the largest frame, which may come. A large frame goes alone: it waits for none.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BUDGET, BURST_BYTES, BURST_FRAMES};
use mqnet_netdev::{Burst, Fault, FrameMeta, Recv, RxBorrows, Tx};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::VnetHdr;

use super::{Polled, Rest};

/// Frames that are received together because the sink has no room for the largest one: few, as they
/// wait here if it has no room for them either.
const BESIDE: usize = 16;

/// A frame of up to so many bytes is copied rather than left to wait until there is room for the
/// largest one: that costs less than to stop and to go on.
const SMALL: u32 = 16 << 10;

/// Which frames are received together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// All.
    Gathers,
    /// Small ones that come while there is not enough room in the memory of the sink.
    Beside,
    /// None any more.
    Leaves,
}

/// Where they are received, one behind the other: what lies together stays in the caches.
pub(super) struct Batch {
    bytes: Vec<u8>,
    room: u32,
    frames: ArrayVec<(u32, FrameMeta), BURST_FRAMES>,
    /// So many of them have been sent.
    sent: usize,
    /// The last poll found several: it is worth looking for more before the first is sent.
    is_busy: bool,
    used: Use,
    /// Its lane is to leave: nothing more is received, or a lane whose sink is slower than its
    /// source would never be empty.
    closed: bool,
    /// Length of the frame that was received last, here or by others: the next is likely such a
    /// one.
    last: u32,
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
        let (frames, used) = (ArrayVec::new(), Use::Gathers);
        Self { bytes, room, frames, sent: 0, is_busy: false, used, closed: false, last: 0 }
    }

    /// What it is for from now on; what waits in it goes first whatever that is.
    pub(super) fn set_use(&mut self, used: Use) {
        self.used = used;
    }

    /// Nothing more is received into it (`true`), whatever it is for.
    pub(super) fn close(&mut self, on: bool) {
        self.closed = on;
    }

    /// True when small frames go through it that have no room elsewhere.
    pub(super) fn is_beside(&self) -> bool {
        self.used == Use::Beside
    }

    /// True when it is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        self.used == Use::Leaves && self.waiting() == 0
    }

    /// Where others note the length of each frame.
    pub(super) fn last(&mut self) -> &mut u32 {
        &mut self.last
    }

    /// Room that the sink must have for the first frame that waits, if one does.
    pub(super) fn needs(&self) -> Option<u32> {
        self.frames.get(self.sent).map(|(_, frame)| frame.len)
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
                    self.last = frame.len;
                    self.frames.push((at as u32, frame));
                    at += frame.len as usize;
                    let stays_small = self.used != Use::Beside || frame.len <= SMALL;
                    if frame.hdr.is_large() || !stays_small {
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
            if self.closed {
                return ended(frames, Rest::Empty);
            }
            if frames >= BUDGET || self.used == Use::Leaves {
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

    /// Takes up to `budget` frames as long as small ones come, or whatever comes (`any`), though
    /// there is not room for the largest: that one would wait here, and is better received where it
    /// belongs.
    pub(super) fn carry_beside(
        &mut self,
        rx: &mut dyn RxBorrows,
        tx: &mut Tx,
        budget: usize,
        any: bool,
    ) -> Result<Polled, Fault> {
        let mut frames = 0;
        let ended = |frames, rest| Ok(Polled { frames, sent: 0, rest });
        while any || (!self.closed && self.last <= SMALL) {
            if frames >= budget {
                return ended(frames, Rest::Budget);
            }
            let got = self.fill(rx, BESIDE.min(budget - frames))?;
            frames += got.frames;
            if !self.send(tx)? {
                return ended(frames, Rest::Full);
            }
            if got.is_empty {
                return ended(frames, Rest::Empty);
            }
        }
        ended(frames, Rest::Full)
    }
}
