//! Segmentation and checksums of the frames of a burst, for the inner queue.

use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_wire::offload::{Cut, Sum, UNFINISHED_HEADERS_MAX, checksum_end, fill_checksum};

use super::{Finish, GsoProgress, PARTIAL};
use crate::limits::BURST_FRAMES;
use crate::wrap::pieces::{payload, read_head, sums};
use crate::{Burst, DropReason, Fault, Frame, Offloads, QueuePairStats};

/// Maximum number of bursts submitted per call: a frame may become 65,535 segments, and other lanes
/// must run too.
const ROUNDS_MAX: u32 = 64;

/// Buffer for the first bytes of a frame.
type Head = [u8; UNFINISHED_HEADERS_MAX];

/// First bytes of an input frame, read once. A peer can modify them at any time, and modified
/// headers of a partly sent frame would result in other segments.
#[derive(Clone)]
struct Original {
    head: Head,
    len: usize,
}

/// Progress of a partly sent frame.
struct Partial {
    hdr: VnetHdr,
    len: u32,
    original: Original,
    /// Index of the next segment.
    next: u32,
}

/// Emulation that a frame needs.
pub(super) enum Work {
    /// Fill in the checksum. The value is the end of the checksum field, within the header bytes
    /// read.
    Checksum(usize),
    /// Fill in the checksum. The value is the start of the field, which ends beyond the header
    /// bytes read.
    FarChecksum(usize),
    Cut(Cut),
    Drop(DropReason),
}

/// Description of an output frame.
struct Made {
    /// True if this is the last output frame of its input frame.
    last: bool,
    /// True if the checksum was filled in.
    summed: bool,
}

/// Submits the frames of a burst from an index on to the inner queue. Returns the number accepted.
type To<'a> = dyn FnMut(&Burst<'_>, usize) -> Result<usize, Fault> + 'a;

/// Result of one submitted burst.
enum Round {
    Sent {
        made: ArrayVec<Made, BURST_FRAMES>,
        taken: usize,
    },
    /// The first frame cannot be segmented or completed, and is dropped.
    Dropped(DropReason),
}

/// Reason why a burst ends.
enum Stop {
    Full,
    Drop(DropReason),
}

pub(super) struct Finisher {
    how: Finish,
    stats: Arc<QueuePairStats>,
    /// Header buffers, one for each output frame of a burst.
    heads: Box<[Head]>,
    /// Original headers, one for each input frame of a burst; those of a partly sent frame come
    /// first.
    originals: Box<[Original]>,
    partial: Option<Partial>,
    pub(super) progress: GsoProgress,
}

/// An output burst with the description of its frames.
struct Out<'a> {
    burst: Burst<'a>,
    made: ArrayVec<Made, BURST_FRAMES>,
    heads: std::slice::IterMut<'a, Head>,
}

impl<'a> Out<'a> {
    fn push(
        &mut self,
        hdr: VnetHdr,
        len: u32,
        head: Span<'a>,
        more: &[Span<'a>],
        made: Made,
    ) -> Result<(), Stop> {
        if !self.burst.push_pieces(hdr, len, head, more) {
            // Drop a frame that an empty burst cannot hold: it exceeds the limit of segments.
            let is_alone = self.made.is_empty();
            return Err(if is_alone { Stop::Drop(DropReason::BadHeader) } else { Stop::Full });
        }
        self.made.push(made);
        Ok(())
    }

    fn head(&mut self) -> Result<&'a mut Head, Stop> {
        if self.burst.is_full() {
            return Err(Stop::Full);
        }
        self.heads.next().ok_or(Stop::Full)
    }

    /// Appends a frame, or its GSO segments from `first` on; an error ends the burst. `original`
    /// buffers the headers of the frame: copied from the frame if `first` is 0, otherwise used
    /// again.
    fn add(
        &mut self,
        how: &Finish,
        frame: &Frame<'a>,
        more: &[Span<'a>],
        (first, original): (u32, &mut Original),
    ) -> Result<(), Stop> {
        if self.burst.is_full() {
            return Err(Stop::Full);
        }
        if how.passes(frame.hdr, frame.len) {
            let made = Made { last: true, summed: false };
            return self.push(frame.hdr, frame.len, frame.head, more, made);
        }
        if first == 0 {
            (original.head, original.len) = read_head(frame, more);
        }
        let Original { head, len } = original;
        match how.work(frame, &head[..*len]) {
            Work::Drop(reason) => Err(Stop::Drop(reason)),
            Work::Checksum(end) => {
                let room = self.head()?;
                let own = &mut room[..end];
                own.copy_from_slice(&head[..end]);
                let rest = payload(frame.head, more, end, frame.len as usize - end);
                let Some(rest) = rest else { return Err(Stop::Drop(DropReason::BadHeader)) };
                if fill_checksum(frame.hdr, own, sums(&rest)).is_none() {
                    return Err(Stop::Drop(DropReason::BadHeader));
                }
                let made = Made { last: true, summed: true };
                self.push(VnetHdr::default(), frame.len, Span::of(own), &rest, made)
            }
            Work::FarChecksum(field) => self.far_checksum(frame, more, field),
            Work::Cut(cut) => (first..cut.count())
                .try_for_each(|at| self.segment(how, frame, more, (cut, at), head)),
        }
    }

    /// Fills in a checksum at any offset; the two bytes of the field become a separate memory
    /// segment.
    #[cold]
    fn far_checksum(
        &mut self,
        frame: &Frame<'a>,
        more: &[Span<'a>],
        field: usize,
    ) -> Result<(), Stop> {
        let own = &mut self.head()?[..2];
        let len = frame.len as usize;
        let start = usize::from(frame.hdr.fields().csum_start);
        let part = |from: usize, to: usize| {
            let pieces = payload(frame.head, more, from, to - from);
            pieces.ok_or(Stop::Drop(DropReason::BadHeader))
        };
        let mut sum = Sum::new();
        sums(&part(start, len)?).for_each(|(piece, len)| sum.add(piece, len));
        own.copy_from_slice(&sum.field());
        let mut pieces = part(0, field)?;
        let all = std::iter::once(Span::of(own)).chain(part(field + 2, len)?);
        for piece in all {
            pieces.try_push(piece).map_err(|_| Stop::Drop(DropReason::BadHeader))?;
        }
        let Some((head, rest)) = pieces.split_first() else { return Ok(()) };
        let made = Made { last: true, summed: true };
        self.push(VnetHdr::default(), frame.len, *head, rest, made)
    }

    fn segment(
        &mut self,
        how: &Finish,
        frame: &Frame<'a>,
        more: &[Span<'a>],
        (cut, number): (Cut, u32),
        head: &Head,
    ) -> Result<(), Stop> {
        let own = &mut self.head()?[..cut.headers()];
        let segment = cut.segment(number, head, own);
        let Some(rest) = payload(frame.head, more, segment.at, segment.payload) else {
            return Err(Stop::Drop(DropReason::BadHeader));
        };
        let summed = !how.takes.has(Offloads::CSUM);
        let mut hdr = segment.hdr;
        if summed {
            if fill_checksum(hdr, own, sums(&rest)).is_none() {
                return Err(Stop::Drop(DropReason::BadHeader));
            }
            hdr = VnetHdr::default();
        }
        let made = Made { last: number + 1 == cut.count(), summed };
        self.push(hdr, segment.len(), Span::of(own), &rest, made)
    }
}

impl Finish {
    /// Determines the emulation for a frame that does not [pass](Self::passes) unchanged.
    pub(super) fn work(&self, frame: &Frame<'_>, head: &[u8]) -> Work {
        if frame.hdr.check(frame.len).is_err() {
            return Work::Drop(DropReason::BadHeader);
        }
        if frame.hdr.is_large() {
            return match Cut::new(frame.hdr, frame.len, head, self.layer) {
                None => Work::Drop(DropReason::BadHeader),
                Some(cut) if cut.longest() > self.frame_max => Work::Drop(DropReason::GsoOverMtu),
                Some(cut) => Work::Cut(cut),
            };
        }
        if frame.len > self.frame_max {
            return Work::Drop(DropReason::TooLong);
        }
        match checksum_end(frame.hdr) {
            Some(end) if end <= head.len() => Work::Checksum(end),
            Some(end) => Work::FarChecksum(end - 2),
            None => Work::Drop(DropReason::BadHeader),
        }
    }
}

impl Finisher {
    pub(super) fn new(how: Finish, stats: Arc<QueuePairStats>) -> Self {
        let heads = vec![[0; UNFINISHED_HEADERS_MAX]; BURST_FRAMES].into_boxed_slice();
        let original = Original { head: [0; UNFINISHED_HEADERS_MAX], len: 0 };
        let originals = vec![original; BURST_FRAMES].into_boxed_slice();
        Self { how, stats, heads, originals, partial: None, progress: GsoProgress::default() }
    }

    pub(super) fn in_hand(&self) -> GsoProgress {
        self.progress.clone()
    }

    pub(super) fn how(&self) -> &Finish {
        &self.how
    }

    pub(super) fn frame_max(&self) -> u32 {
        self.how.frame_max
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        self.stats.tx.drops.count(reason, 1);
    }

    /// Sends the frames from index `from` on; `to` submits a burst to the inner queue. Returns the
    /// number of input frames accepted.
    #[inline]
    pub(super) fn send(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        to: impl FnMut(&Burst<'_>, usize) -> Result<usize, Fault>,
    ) -> Result<usize, Fault> {
        let (how, mut to) = (&self.how, to);
        let frames = &burst.frames()[from..];
        if frames.iter().all(|frame| how.passes(frame.hdr, frame.len)) {
            if self.partial.is_some() && !frames.is_empty() {
                // Discard the progress: another frame was submitted than the partly sent one.
                self.clear_progress();
            }
            return to(burst, from);
        }
        self.finish(burst, from, &mut to)
    }

    pub(super) fn clear_progress(&mut self) {
        self.partial = None;
        self.progress.set(PARTIAL, false);
    }

    /// Index of the GSO segment at which sending of `frame` resumes; 0 if it is not the partly sent
    /// frame.
    fn resume(&mut self, frame: &Frame<'_>, more: &[Span<'_>]) -> u32 {
        // Ignore the progress if the lane dropped the frame and cleared the flag.
        let partial = self.partial.take().filter(|_| self.progress.is_begun());
        self.clear_progress();
        let Some(Partial { hdr, len, original, next }) = partial else { return 0 };
        let same =
            (hdr, len) == (frame.hdr, frame.len) && read_head(frame, more).0 == original.head;
        if !same {
            return 0;
        }
        self.originals[0] = original;
        next
    }

    /// Records the progress of `frame`. The original headers of the frame are the first in
    /// `originals`.
    fn record_progress(&mut self, frame: &Frame<'_>, next: u32) {
        let original = self.originals[0].clone();
        self.partial = Some(Partial { hdr: frame.hdr, len: frame.len, original, next });
        self.progress.set(PARTIAL, true);
    }

    #[inline(never)]
    fn finish(&mut self, burst: &Burst<'_>, from: usize, to: &mut To<'_>) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        let (mut done, mut next) = (0, self.resume(&frames[0], burst.more(&frames[0])));
        let mut failed = None;
        let mut rounds = 0..ROUNDS_MAX;
        while done < frames.len() && rounds.next().is_some() {
            match self.send_some(burst, &frames[done..], next, to) {
                Ok(Round::Dropped(reason)) => {
                    self.count_drop(reason);
                    (done, next) = (done + 1, 0);
                }
                Ok(Round::Sent { made, taken }) => {
                    let before = done;
                    self.count(&made[..taken], &mut done, &mut next);
                    if next > 0 {
                        self.originals.swap(0, done - before);
                    }
                    if taken < made.len() {
                        break;
                    }
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        if next > 0 {
            self.record_progress(&frames[done], next);
        }
        // Ignore a fault after accepted frames, which the caller must release first. The next call
        // to the inner queue fails again.
        failed.filter(|_| done == 0).map_or(Ok(done), Err)
    }

    /// Sends one burst of output frames, made of `frames`; the first frame begins at GSO segment
    /// `first`.
    fn send_some(
        &mut self,
        burst: &Burst<'_>,
        frames: &[Frame<'_>],
        mut first: u32,
        to: &mut To<'_>,
    ) -> Result<Round, Fault> {
        let Self { how, heads, originals, .. } = self;
        let (made, heads) = (ArrayVec::new(), heads.iter_mut());
        let mut out = Out { burst: Burst::new(), made, heads };
        for (frame, original) in frames.iter().zip(originals) {
            let resumed = (std::mem::take(&mut first), original);
            match out.add(how, frame, burst.more(frame), resumed) {
                Ok(()) => {}
                Err(Stop::Drop(reason)) if out.made.is_empty() => {
                    return Ok(Round::Dropped(reason));
                }
                Err(_) => break,
            }
        }
        let taken = to(&out.burst, 0)?;
        Ok(Round::Sent { made: out.made, taken })
    }

    /// Counts the output frames that the inner queue accepted, and advances `done` and `next`.
    fn count(&self, made: &[Made], done: &mut usize, next: &mut u32) {
        for frame in made {
            if frame.last {
                (*done, *next) = (*done + 1, 0);
            } else {
                *next += 1;
            }
        }
        let tx = &self.stats.tx;
        tx.segments.add(made.iter().filter(|frame| !frame.last).count() as u64);
        tx.checksums.add(made.iter().filter(|frame| frame.summed).count() as u64);
    }
}
