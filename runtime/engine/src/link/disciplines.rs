//! Disciplines of a running link: what tc changes and shows.

use mqnet_qdisc::{Command, TcError, Tree};

use super::Link;
use crate::egress::Full;

impl Link {
    /// What is attached to the egress of a side: to frames that leave through that function.
    pub fn tree(&self, side: usize) -> &Tree {
        &self.trees[side]
    }

    /// Carries out a command of tc; traffic that waits is kept. `Ok(false)`: nothing is different.
    pub fn tc(&mut self, side: usize, command: &Command) -> Result<bool, TcError> {
        let max = self.ends.iter().map(|end| end.caps().channels).min().unwrap_or(1);
        let channels = self.running.as_ref().map_or(1, |running| running.plan.channels);
        self.trees[side].apply(command, channels, max)
    }

    /// What happens when the sink of a side is full and nothing is attached.
    pub fn full(&self, _side: usize) -> Full {
        Full::Stop
    }

    /// See [`full`](Self::full).
    pub fn set_full(&mut self, _side: usize, _full: Full) {}
}
