//! Software segmentation of frames that the kernel refuses.
//!
//! A kernel, or a program attached to the device, may refuse large frames although the device
//! offers the offload. Causes are an unknown GSO type and a lack of memory. Such a frame is
//! segmented, and its checksums are completed. After several refusals in a row, the function no
//! longer offers that offload. Sources and coalescing then create no more frames that need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mqnet_netdev::wrap::offload::{Finish, Parts};
use mqnet_netdev::{Burst, Fault, Frame, Offloads, QueuePairStats};
use mqnet_shmem::Span;
use mqnet_wire::{GsoKind, Layer, VnetHdr};

/// Number of consecutive refusals of one kind after which the offload is withdrawn. A refusal
/// counts only if the kernel then accepted the segments of the frame.
const MOST: u8 = 8;

/// Offloads that the kernel refuses, shared by all queues of a device and its function.
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

/// Offload that a frame needs; of several, the one that kernels refuse most often.
/// [`Offloads::NONE`] if the frame needs none.
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

/// Refusal state of one queue.
pub(crate) struct Fallback {
    layer: Layer,
    frame_max: u32,
    refused: Refused,
    /// Number of consecutive refusals of each offload.
    consecutive: [u8; 6],
    /// Segmenter, created at the first refusal.
    parts: Option<Parts>,
}

impl Fallback {
    pub(crate) fn new(layer: Layer, frame_max: u32, refused: Refused) -> Self {
        Self { layer, frame_max, refused, consecutive: [0; 6], parts: None }
    }

    /// True while segments of the last refused frame remain to be sent.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.parts.as_ref().is_some_and(Parts::is_begun)
    }

    /// Sends a frame as segments; `to` sends a burst of segments like `submit`. Returns `None`
    /// for a frame that cannot be segmented, otherwise true if all segments were accepted. After
    /// false, the next call with the same frame continues.
    #[cold]
    pub(crate) fn send(
        &mut self,
        (frame, more): (&Frame<'_>, &[Span<'_>]),
        stats: &Arc<QueuePairStats>,
        to: impl FnMut(&Burst<'_>, usize) -> Result<usize, Fault>,
    ) -> Result<Option<bool>, Fault> {
        let Self { layer, frame_max, .. } = *self;
        let how = || Finish { layer, takes: Offloads::NONE, frame_max };
        self.parts.get_or_insert_with(|| Parts::new(how(), stats.clone())).send(frame, more, to)
    }

    /// Counts a refused frame after its segments were accepted.
    pub(crate) fn note_refused(&mut self, hdr: VnetHdr) {
        let kind = kind_of(hdr);
        if kind == Offloads::NONE {
            return;
        }
        let count = &mut self.consecutive[kind.bits().trailing_zeros() as usize];
        *count = count.saturating_add(1);
        if *count >= MOST {
            self.refused.add(kind);
        }
    }

    /// Resets the counts of the kinds of frames that the kernel accepted.
    #[inline]
    pub(crate) fn note_taken(&mut self, frames: &[Frame<'_>]) {
        if self.consecutive != [0; 6] {
            self.reset(frames);
        }
    }

    #[cold]
    fn reset(&mut self, frames: &[Frame<'_>]) {
        for kind in frames.iter().map(|frame| kind_of(frame.hdr)) {
            if let Some(count) = self.consecutive.get_mut(kind.bits().trailing_zeros() as usize) {
                *count = 0;
            }
        }
    }
}
