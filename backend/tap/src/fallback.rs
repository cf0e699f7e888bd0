//! Frames that the kernel refuses as they are, sent as their parts.
//!
//! A kernel, or a program in front of it, may refuse large frames that its offloads promise to
//! take: of a type that it does not know, or longer than it has memory for. Such a frame is cut,
//! and its checksums are filled in. After several refusals in a row the function takes no more
//! frames of that kind, so that none is made: neither by sources nor by coalescing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mqnet_netdev::wrap::offload::{Finish, Parts};
use mqnet_netdev::{Burst, ChannelStats, Fault, Frame, Offloads};
use mqnet_shmem::Span;
use mqnet_wire::{GsoKind, Layer, VnetHdr};

/// Refusals of one kind in a row, of frames whose parts were taken, after which it is taken no
/// more.
const MOST: u8 = 8;

/// Kinds of frames that the kernel refuses, known to all queues of a device and its function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused(Arc<AtomicU32>);

impl Refused {
    pub(crate) fn get(&self) -> Offloads {
        Offloads::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn add(&self, kind: Offloads) {
        self.0.fetch_or(kind.bits(), Ordering::Relaxed);
    }
}

/// How a frame is unfinished, as the offload that is likeliest to be refused.
fn kind_of(hdr: VnetHdr) -> Offloads {
    match hdr.gso() {
        Some(GsoKind::Tcp4 | GsoKind::Tcp6) if hdr.has_ecn() => Offloads::TSO_ECN,
        Some(GsoKind::Tcp4) => Offloads::TSO4,
        Some(GsoKind::Tcp6) => Offloads::TSO6,
        Some(GsoKind::Udp) => Offloads::USO4.or(Offloads::USO6),
        Some(GsoKind::None) if hdr.needs_checksum() => Offloads::CSUM,
        _ => Offloads::NONE,
    }
}

/// What one queue knows of refusals.
pub(crate) struct Fallback {
    layer: Layer,
    frame_max: u32,
    refused: Refused,
    /// Refusals of each offload since a frame of it was taken.
    in_a_row: [u8; 6],
    /// Made at the first refusal.
    parts: Option<Parts>,
}

impl Fallback {
    pub(crate) fn new(layer: Layer, frame_max: u32, refused: Refused) -> Self {
        Self { layer, frame_max, refused, in_a_row: [0; 6], parts: None }
    }

    /// Some parts of the frame that was refused last are still to be sent.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.parts.as_ref().is_some_and(Parts::is_begun)
    }

    /// Sends a frame as its parts; `to` sends a burst of them as `submit` does. `None` for a frame
    /// that has none, else whether it was taken: otherwise it goes on when it is shown again.
    #[cold]
    pub(crate) fn send(
        &mut self,
        (frame, more): (&Frame<'_>, &[Span<'_>]),
        stats: &Arc<ChannelStats>,
        to: impl FnMut(&Burst<'_>, usize) -> Result<usize, Fault>,
    ) -> Result<Option<bool>, Fault> {
        let Self { layer, frame_max, .. } = *self;
        let how = || Finish { layer, takes: Offloads::NONE, frame_max };
        self.parts.get_or_insert_with(|| Parts::new(how(), stats.clone())).send(frame, more, to)
    }

    /// The kernel refused such a frame, and took its parts.
    pub(crate) fn note_refused(&mut self, hdr: VnetHdr) {
        let kind = kind_of(hdr);
        if kind == Offloads::NONE {
            return;
        }
        let count = &mut self.in_a_row[kind.bits().trailing_zeros() as usize];
        *count = count.saturating_add(1);
        if *count >= MOST {
            self.refused.add(kind);
        }
    }

    /// The kernel took such frames.
    #[inline]
    pub(crate) fn note_taken(&mut self, frames: &[Frame<'_>]) {
        if self.in_a_row != [0; 6] {
            self.reset(frames);
        }
    }

    #[cold]
    fn reset(&mut self, frames: &[Frame<'_>]) {
        for kind in frames.iter().map(|frame| kind_of(frame.hdr)) {
            if let Some(count) = self.in_a_row.get_mut(kind.bits().trailing_zeros() as usize) {
                *count = 0;
            }
        }
    }
}
