//! Emulation for single frames that a queue rejected.

use std::sync::Arc;

use mqnet_shmem::Span;
use mqnet_wire::offload::UNFINISHED_HEADERS_MAX;

use super::Finish;
use super::finisher::{Finisher, Work};
use crate::wrap::pieces::read_head;
use crate::{Burst, Fault, Frame, QueuePairStats};

/// Segments and completes single frames for the queue that rejected them.
pub struct Parts(Finisher);

impl Parts {
    /// Creates the emulation for a queue that accepts frames as described by `how`. `stats` are the
    /// statistics of the queue's channel.
    pub fn new(how: Finish, stats: Arc<QueuePairStats>) -> Self {
        Self(Finisher::new(how, stats))
    }

    /// True if a frame is partly sent.
    pub fn is_begun(&self) -> bool {
        self.0.progress.is_begun()
    }

    /// Sends the segments of a frame; `to` sends and counts a burst of them. Returns `None`,
    /// without sending, if the frame needs no emulation, cannot be segmented or completed, or has
    /// too many memory segments. Otherwise returns true if all segments were accepted. A frame that
    /// is submitted again resumes at its next segment.
    pub fn send(
        &mut self,
        frame: &Frame<'_>,
        more: &[Span<'_>],
        to: impl FnMut(&Burst<'_>, usize) -> Result<usize, Fault>,
    ) -> Result<Option<bool>, Fault> {
        let how = self.0.how();
        let (head, n) = read_head::<UNFINISHED_HEADERS_MAX>(frame, more);
        if how.passes(frame.hdr, frame.len) || matches!(how.work(frame, &head[..n]), Work::Drop(_))
        {
            // Discard the progress: this frame is not the partly sent one.
            self.0.clear_progress();
            return Ok(None);
        }
        let mut burst = Burst::new();
        if !burst.push_pieces(frame.hdr, frame.len, frame.head, more) {
            return Ok(None);
        }
        self.0.send(&burst, 0, to).map(|taken| Some(taken == 1))
    }
}
