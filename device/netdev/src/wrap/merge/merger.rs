//! Coalescing of the frames of a burst into fewer, larger frames.

use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_wire::offload::{MERGED_HEADERS_MAX, Merge, MergeCandidate};

use super::Merging;
use crate::limits::{BURST_FRAMES, BURST_MORE_PIECES};
use crate::wrap::pieces::{Pieces, payload, read_head, sums};
use crate::{Burst, Fault, Frame, Offloads, QueuePairStats};

/// Maximum number of bursts forwarded without inspection after an inspection without a match.
const UNSEEN_MAX: u32 = 64;

/// Buffer for the headers of a coalesced frame.
type Head = [u8; MERGED_HEADERS_MAX];

/// Submits the frames of a burst from an index on to the inner queue. Returns the number accepted.
type To<'a> = dyn FnMut(&Burst<'_>, usize) -> Result<usize, Fault> + 'a;

/// Consecutive frames that become one output frame.
struct Run {
    frames: u16,
    /// Length of the headers of each frame in bytes.
    headers: u16,
    len: u32,
    hdr: VnetHdr,
}

/// Result of one submitted burst.
struct Sent {
    /// Number of input frames accepted.
    frames: usize,
    /// True if the queue is full.
    is_full: bool,
    /// True if some input frames could be coalesced.
    found: bool,
}

pub(super) struct Merger {
    how: Merging,
    stats: Arc<QueuePairStats>,
    /// Header buffers, one for each coalesced frame of a burst.
    heads: Box<[Head]>,
    /// Number of bursts that are still forwarded without inspection.
    unseen: u32,
    /// Number of bursts to forward without inspection after the next inspection without a match.
    next_unseen: u32,
}

/// Payload segments of a frame with `headers` bytes of headers; `None` if the frame is shorter or
/// has too many segments.
fn payload_of<'a>(burst: &Burst<'a>, frame: &Frame<'a>, headers: usize) -> Option<Pieces<'a>> {
    let len = (frame.len as usize).checked_sub(headers)?;
    payload(frame.head, burst.more(frame), headers, len)
}

/// True if the lengths and virtio headers allow that two frames are coalesced.
fn may_be_one(one: &Frame<'_>, next: &Frame<'_>) -> bool {
    // Exclude frames without payload: Ethernet, IPv4 and UDP headers have 42 bytes, or 28 without
    // Ethernet.
    next.len <= one.len && next.len > 28 && !one.hdr.is_large() && !next.hdr.is_large()
}

impl Merger {
    pub(super) fn new(how: Merging, stats: Arc<QueuePairStats>) -> Self {
        let heads = vec![[0; MERGED_HEADERS_MAX]; BURST_FRAMES / 2].into_boxed_slice();
        Self { how, stats, heads, unseen: 0, next_unseen: 1 }
    }

    /// Sends the frames from index `from` on; `to` submits a burst to the inner queue. Returns the
    /// number of input frames accepted.
    #[inline]
    pub(super) fn send(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        mut to: impl FnMut(&Burst<'_>, usize) -> Result<usize, Fault>,
    ) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        if frames.len() < 2 {
            return to(burst, from);
        }
        if self.unseen > 0 {
            self.unseen -= 1;
            return to(burst, from);
        }
        self.inspect(burst, from, &mut to)
    }

    #[inline(never)]
    fn inspect(&mut self, burst: &Burst<'_>, from: usize, to: &mut To<'_>) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        let (mut done, mut found) = (0, false);
        let mut failed = None;
        while done < frames.len() {
            match self.send_some(burst, from + done, to) {
                Ok(sent) => {
                    (done, found) = (done + sent.frames, found | sent.found);
                    if sent.is_full {
                        break;
                    }
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        (self.unseen, self.next_unseen) = match (found, self.next_unseen) {
            (true, _) => (0, 1),
            (false, n) => (n, UNSEEN_MAX.min(2 * n)),
        };
        // Ignore a fault after accepted frames, which the caller must release first. The next call
        // to the inner queue fails again.
        failed.filter(|_| done == 0).map_or(Ok(done), Err)
    }

    /// Sends one burst of output frames, made of the input frames from index `from` on.
    fn send_some(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        to: &mut To<'_>,
    ) -> Result<Sent, Fault> {
        let Self { how, stats, heads, .. } = self;
        let frames = &burst.frames()[from..];
        let runs = how.find_runs(burst, frames, heads);
        if runs.len() == frames.len() {
            let taken = to(burst, from)?;
            return Ok(Sent { frames: taken, is_full: taken < frames.len(), found: false });
        }
        let mut out = Burst::new();
        let mut at = 0;
        let mut heads = heads.iter();
        for run in &runs {
            if !push(&mut out, burst, &frames[at..], run, &mut heads) {
                break;
            }
            at += usize::from(run.frames);
        }
        let shown = out.frames().len();
        debug_assert!(shown > 0, "a burst has room for each run alone");
        let taken = to(&out, 0)?;
        let mut sent: usize = runs[..taken].iter().map(|run| usize::from(run.frames)).sum();
        stats.tx.merged.add((sent - taken) as u64);
        let is_full = taken < shown;
        if is_full && runs[taken].frames > 1 {
            // Submit the small frames of the rejected large frame: some of them may fit.
            sent += match to(burst, from + sent) {
                Ok(more) => more,
                Err(fault) if sent == 0 => return Err(fault),
                Err(_) => 0,
            };
        }
        Ok(Sent { frames: sent, is_full, found: true })
    }
}

impl Merging {
    /// Groups frames into runs, in order. Writes the headers of each coalesced frame to `heads`, in
    /// order.
    fn find_runs(
        &self,
        burst: &Burst<'_>,
        frames: &[Frame<'_>],
        heads: &mut [Head],
    ) -> ArrayVec<Run, BURST_FRAMES> {
        let mut runs = ArrayVec::new();
        let mut heads = heads.iter_mut();
        let (mut at, mut known) = (0, None);
        while at < frames.len() {
            let mut run = Run { frames: 1, headers: 0, len: 0, hdr: VnetHdr::default() };
            let first = known.take();
            if frames.get(at + 1).is_some_and(|next| may_be_one(&frames[at], next))
                && let Some(first) = first.or_else(|| self.part(burst, &frames[at]))
            {
                let mut merge = Merge::new(first, self.frame_max);
                known = self.extend(burst, &frames[at..], &first, &mut merge);
                if merge.count() > 1 {
                    let Some(head) = heads.next() else { break };
                    (*head, _) = read_head(&frames[at], burst.more(&frames[at]));
                    let hdr = merge.finish(head);
                    let (frames, headers) = (merge.count() as u16, first.headers() as u16);
                    run = Run { frames, headers, len: merge.len(), hdr };
                }
            }
            at += usize::from(run.frames);
            runs.push(run);
        }
        runs
    }

    /// Appends the frames after the first of `frames` to `merge` while each continues the run.
    /// Returns the frame that ended the run if it can begin another run, otherwise `None`.
    fn extend(
        &self,
        burst: &Burst<'_>,
        frames: &[Frame<'_>],
        first: &MergeCandidate,
        merge: &mut Merge,
    ) -> Option<MergeCandidate> {
        let mut pieces = None;
        for two in frames.windows(2) {
            if !may_be_one(&two[0], &two[1]) {
                return None;
            }
            let part = self.part(burst, &two[1])?;
            if !merge.goes_on_with(&part) {
                return Some(part);
            }
            // Verify the checksum of the first frame only when a second one follows.
            let before = match pieces {
                Some(pieces) => pieces,
                None => sound(burst, &frames[0], first).unwrap_or(BURST_MORE_PIECES),
            };
            let more = sound(burst, &two[1], &part)?;
            // Limit the segments of the coalesced frame to those of one burst.
            if before + more > BURST_MORE_PIECES {
                return Some(part);
            }
            merge.push(&part);
            pieces = Some(before + more);
        }
        None
    }

    /// Parses a frame as part of a run; `None` if the frame cannot be coalesced, or the queue has
    /// no segmentation offload for this kind of frame.
    fn part(&self, burst: &Burst<'_>, frame: &Frame<'_>) -> Option<MergeCandidate> {
        let (head, n) = read_head::<MERGED_HEADERS_MAX>(frame, burst.more(frame));
        let part = MergeCandidate::find(frame.hdr, frame.len, &head[..n], self.layer)?;
        let kind = match (part.is_tcp(), part.is_v6()) {
            (true, false) => Offloads::TSO4,
            (true, true) => Offloads::TSO6,
            (false, _) => Offloads::USO4.or(Offloads::USO6),
        };
        self.takes.has(kind).then_some(part)
    }
}

/// Number of payload segments of a frame; `None` if the frame's checksum is wrong, or the segments
/// are too many.
fn sound(burst: &Burst<'_>, frame: &Frame<'_>, part: &MergeCandidate) -> Option<usize> {
    let pieces = payload_of(burst, frame, part.headers())?;
    part.is_sound(|| sums(&pieces)).then_some(pieces.len())
}

/// Appends the output frame of a run, the first `run.frames` of `frames`, to a burst. Returns false
/// if the burst has no space for the output frame.
fn push<'a>(
    out: &mut Burst<'a>,
    burst: &Burst<'a>,
    frames: &[Frame<'a>],
    run: &Run,
    heads: &mut std::slice::Iter<'a, Head>,
) -> bool {
    if run.frames == 1 {
        let frame = &frames[0];
        return out.push_pieces(frame.hdr, frame.len, frame.head, burst.more(frame));
    }
    let headers = usize::from(run.headers);
    let mut all = Pieces::new();
    for frame in &frames[..usize::from(run.frames)] {
        let Some(pieces) = payload_of(burst, frame, headers) else { return false };
        if all.try_extend_from_slice(&pieces).is_err() {
            return false;
        }
    }
    let Some(head) = heads.next() else { return false };
    out.push_pieces(run.hdr, run.len, Span::of(&head[..headers]), &all)
}
