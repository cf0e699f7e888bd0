//! A frame that a queue has refused, sent as finished parts.

use std::sync::Arc;

use mqnet_shmem::Span;
use mqnet_wire::offload::UNFINISHED_HEADERS_MAX;

use super::Finish;
use super::finisher::{Finisher, Work};
use crate::wrap::pieces::read_head;
use crate::{Burst, ChannelStats, Fault, Frame};

/// Cuts single frames for the queue that owns it, which refused them.
pub struct Parts(Finisher);

impl Parts {
    /// For a queue that takes frames as `how` says, and whose channel counts in `stats`.
    pub fn new(how: Finish, stats: Arc<ChannelStats>) -> Self {
        Self(Finisher::new(how, stats))
    }

    /// Some parts of a frame are sent, and others are not.
    pub fn is_begun(&self) -> bool {
        self.0.hand.is_begun()
    }

    /// Sends the parts of a frame; `to` is how the queue sends a burst of them, which it counts.
    /// Returns `None` for a frame that cannot be cut or finished, and was not sent, else whether
    /// the queue took all of it; shown again a frame goes on with its next part.
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
            // It is another frame than the one of which some parts are sent.
            self.0.forget();
            return Ok(None);
        }
        let mut burst = Burst::new();
        if !burst.push_pieces(frame.hdr, frame.len, frame.head, more) {
            return Ok(None);
        }
        self.0.send(&burst, 0, to).map(|taken| Some(taken == 1))
    }
}
