//! Many frames in one system call, without a copy.

use std::io;
use std::os::fd::BorrowedFd;

use mqnet_sysio::uring::{WRITES_MAX, WriteRing, Written};
use mqnet_sysio::vectored::RawRange;

use super::{MORE_MAX, Span};

/// Writer that does [`write_from`](super::write_from) for up to [`FRAMES_MAX`](Self::FRAMES_MAX)
/// frames in one call, each with a header of `H` bytes.
pub struct BatchWriter<const H: usize> {
    ring: WriteRing,
    /// Buffers that the kernel reads during a call, reused to avoid allocation.
    headers: Vec<[u8; H]>,
    ranges: Vec<RawRange>,
    /// End index of each frame's ranges.
    ends: Vec<usize>,
}

// SAFETY: the ranges are only used in the call that stored them.
unsafe impl<const H: usize> Send for BatchWriter<H> {}

impl<const H: usize> BatchWriter<H> {
    /// Maximum number of frames per call.
    pub const FRAMES_MAX: usize = WRITES_MAX;

    /// Creates the writer; see [`WriteRing::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            ring: WriteRing::new()?,
            headers: Vec::with_capacity(WRITES_MAX),
            ranges: Vec::with_capacity(2 * WRITES_MAX + MORE_MAX),
            ends: Vec::with_capacity(WRITES_MAX),
        })
    }

    /// Writes `frames` (header, head, further segments) in order, up to the first frame that cannot
    /// be written or has more than 64 further segments.
    pub fn write<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        frames: impl Iterator<Item = ([u8; H], Span<'a>, &'a [Span<'a>])> + Clone,
    ) -> Written {
        let frames = frames.take(WRITES_MAX).take_while(|(_, _, more)| more.len() <= MORE_MAX);
        let Self { ring, headers, ranges, ends } = self;
        headers.clear();
        headers.extend(frames.clone().map(|(header, ..)| header));
        ranges.clear();
        ends.clear();
        for (header, (_, head, more)) in headers.iter().zip(frames) {
            ranges.push(RawRange::new(header.as_ptr().cast_mut(), H));
            ranges.push(head.raw());
            ranges.extend(more.iter().map(Span::raw));
            ends.push(ranges.len());
        }
        let mut start = 0;
        let writes = ends.iter().map(|&end| &ranges[std::mem::replace(&mut start, end)..end]);
        // SAFETY: headers, and every segment during 'a, are readable for the call. No write is
        // pending afterwards.
        unsafe { ring.write_each(fd, writes) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    // Goal: every frame arrives as header, head and further segments, in order, for all numbers of
    // frames and segments. A frame with too many segments ends the batch.
    #[test]
    fn frames_arrive_in_their_parts() {
        let mut batch = match BatchWriter::<2>::new() {
            Ok(batch) => batch,
            Err(e) => return println!("skipped: no io_uring: {e}"),
        };
        let bytes: Vec<u8> = (0..=255).collect();
        let (mut reader, writer) = std::io::pipe().unwrap();
        mqnet_sysio::process::set_nonblocking(writer.as_fd()).unwrap();
        for count in [1, 2, 5, 63, 64, 70] {
            let pieces: Vec<Vec<Span<'_>>> = (0..count)
                .map(|i| (0..i % 4).map(|k| Span::of(&bytes[i + k..][..k + 1])).collect())
                .collect();
            let frames = pieces
                .iter()
                .enumerate()
                .map(|(i, more)| ([i as u8, 0xff], Span::of(&bytes[..i % 3]), &more[..]));
            let done = batch.write(writer.as_fd(), frames.clone());
            assert!(done.broken.is_none(), "{done:?}");
            assert_eq!(done.writes, count.min(64));
            let mut want = Vec::new();
            for (i, more) in pieces.iter().take(64).enumerate() {
                want.extend([i as u8, 0xff]);
                want.extend(&bytes[..i % 3]);
                (0..more.len()).for_each(|k| want.extend(&bytes[i + k..][..k + 1]));
            }
            let mut got = vec![0; want.len()];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(got, want, "{count}");
        }
        let many = [Span::of(b"x"); MORE_MAX + 1];
        let frames = [&many[..1], &many[..MORE_MAX], &many, &many[..1]];
        let frames = frames.iter().map(|more| ([0; 2], Span::of(b"h"), *more));
        assert_eq!(batch.write(writer.as_fd(), frames).writes, 2);
    }
}
