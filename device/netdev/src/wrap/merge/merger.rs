//! From frames as they come to bursts with fewer of them.

use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_wire::offload::{MERGED_HEADERS_MAX, Merge, Part};

use super::Merging;
use crate::limits::{BURST_FRAMES, BURST_MORE_PIECES};
use crate::wrap::pieces::{Pieces, payload, read_head, sums};
use crate::{Burst, ChannelStats, Fault, Frame, Offloads};

/// Bursts that pass unseen after others have been looked at in vain, at most.
const UNSEEN_MAX: u32 = 64;

/// The headers of a frame that goes out.
type Head = [u8; MERGED_HEADERS_MAX];

/// How the queue behind takes frames of a burst from a number on.
type To<'a> = dyn FnMut(&Burst<'_>, usize) -> Result<usize, Fault> + 'a;

/// Frames that become one.
struct Run {
    frames: u16,
    /// Bytes of their headers, and of the frame that they become.
    headers: u16,
    len: u32,
    hdr: VnetHdr,
}

/// What one burst came to.
struct Sent {
    /// Frames of the source that were taken.
    frames: usize,
    /// The queue takes no more.
    is_full: bool,
    /// Some of them could become one.
    found: bool,
}

pub(super) struct Merger {
    how: Merging,
    stats: Arc<ChannelStats>,
    /// One for each frame of a burst that goes out.
    heads: Box<[Head]>,
    /// Bursts to be passed on unseen.
    unseen: u32,
    /// How many the next time.
    next_unseen: u32,
}

/// Pieces of the payload of a frame behind so many bytes of headers.
fn payload_of<'a>(burst: &Burst<'a>, frame: &Frame<'a>, headers: usize) -> Option<Pieces<'a>> {
    let len = (frame.len as usize).checked_sub(headers)?;
    payload(frame.head, burst.more(frame), headers, len)
}

/// Two frames that may be parts of one, as far as their lengths tell.
fn look_alike(one: &Frame<'_>, next: &Frame<'_>) -> bool {
    // Ethernet, IPv4 and UDP have 42 bytes, less without Ethernet: what has no payload is shorter.
    next.len <= one.len && next.len > 28 && !one.hdr.is_large() && !next.hdr.is_large()
}

impl Merger {
    pub(super) fn new(how: Merging, stats: Arc<ChannelStats>) -> Self {
        let heads = vec![[0; MERGED_HEADERS_MAX]; BURST_FRAMES / 2].into_boxed_slice();
        Self { how, stats, heads, unseen: 0, next_unseen: 1 }
    }

    /// Sends the frames from number `from` on; `to` is how the queue behind takes a burst. Returns
    /// how many were taken.
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
        self.look(burst, from, &mut to)
    }

    #[inline(never)]
    fn look(&mut self, burst: &Burst<'_>, from: usize, to: &mut To<'_>) -> Result<usize, Fault> {
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
        // What was taken before must be released by the caller: the next call tells.
        failed.filter(|_| done == 0).map_or(Ok(done), Err)
    }

    /// One burst of what becomes of the frames from number `from` on.
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
            // There was no room for a large frame: for some of its parts there may be.
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
    /// What becomes of frames: each in one run, in order. The headers of those that become larger
    /// are made in `heads`, in order.
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
            if frames.get(at + 1).is_some_and(|next| look_alike(&frames[at], next))
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

    /// Lets frames follow the first of `frames` as long as they continue it. The frame after them
    /// is returned if it could begin another.
    fn extend(
        &self,
        burst: &Burst<'_>,
        frames: &[Frame<'_>],
        first: &Part,
        merge: &mut Merge,
    ) -> Option<Part> {
        let mut pieces = None;
        for two in frames.windows(2) {
            if !look_alike(&two[0], &two[1]) {
                return None;
            }
            let part = self.part(burst, &two[1])?;
            if !merge.goes_on_with(&part) {
                return Some(part);
            }
            // Nothing is summed up that would stay alone anyway.
            let before = match pieces {
                Some(pieces) => pieces,
                None => sound(burst, &frames[0], first).unwrap_or(BURST_MORE_PIECES),
            };
            let more = sound(burst, &two[1], &part)?;
            // One burst has room for one frame in so many pieces.
            if before + more > BURST_MORE_PIECES {
                return Some(part);
            }
            merge.push(&part);
            pieces = Some(before + more);
        }
        None
    }

    /// A frame as a part, if it is of a kind that is taken.
    fn part(&self, burst: &Burst<'_>, frame: &Frame<'_>) -> Option<Part> {
        let (head, n) = read_head::<MERGED_HEADERS_MAX>(frame, burst.more(frame));
        let part = Part::find(frame.hdr, frame.len, &head[..n], self.layer)?;
        let kind = match (part.is_tcp(), part.is_v6()) {
            (true, false) => Offloads::TSO4,
            (true, true) => Offloads::TSO6,
            (false, _) => Offloads::USO4.or(Offloads::USO6),
        };
        self.takes.has(kind).then_some(part)
    }
}

/// In how many pieces the payload of a frame lies, if its checksum is right.
fn sound(burst: &Burst<'_>, frame: &Frame<'_>, part: &Part) -> Option<usize> {
    let pieces = payload_of(burst, frame, part.headers())?;
    part.is_sound(|| sums(&pieces)).then_some(pieces.len())
}

/// Puts what becomes of the first of `frames` into a burst; false when it is full.
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
