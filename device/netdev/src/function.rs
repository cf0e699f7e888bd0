//! A function: the control-plane half of the contract.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{Caps, Channel, ChannelStats, Plan};

/// Whether a function can carry traffic now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// Not now; the text says why and what would help.
    Down(String),
    /// Yes. `session` changes whenever the peer was lost in between: channels of an older session
    /// must be closed and opened anew.
    Up {
        /// Number of this life of the link.
        session: u64,
        /// What both ends can do, as far as this function knows.
        caps: Caps,
    },
}

/// Why channels could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{function}: {what}")]
pub struct OpenError {
    /// Which function.
    pub function: String,
    /// What failed and the knob to turn.
    pub what: String,
}

/// One opened way to reach a peer. Only the control thread calls it.
pub trait Function: Send {
    /// Its endpoint address, for messages.
    fn name(&self) -> &str;

    /// What it can do before anything is known of a peer.
    fn caps(&self) -> Caps;

    /// Tells what the other function of the link can do. A function with a peer announces it
    /// there. Called once, before the first [`poll_link`](Self::poll_link).
    fn set_partner(&mut self, partner: &Caps);

    /// Makes progress with the link and says how it stands. Called after every event and at least
    /// every 100 ms.
    fn poll_link(&mut self, now: Duration) -> LinkStatus;

    /// Descriptors whose readiness asks for a [`poll_link`](Self::poll_link).
    fn events(&self) -> Vec<BorrowedFd<'_>>;

    /// Opens the channels of the plan: `plan.channels` of them, in order.
    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError>;

    /// Takes the channels back, all of them, when the link is over. `why` goes to the peer, if
    /// there is one.
    fn close(&mut self, channels: Vec<Channel>, why: &str);

    /// Tells whether frames sent through this function go anywhere: a function that is a network
    /// interface shows it as its carrier.
    fn set_carrier(&mut self, up: bool);

    /// Statistics of every channel that there can be; they outlive the channels.
    fn stats(&self) -> &[Arc<ChannelStats>];

    /// Frames that the system dropped before our RX queues saw them, if it counts them; for a TAP,
    /// what its ring had no room for.
    fn dropped_outside(&mut self) -> Option<u64> {
        None
    }

    /// True when workers should be placed from the high end of the CPU list, because the other end
    /// of the link, on the same machine, begins at the low one.
    fn takes_high_cpus(&self) -> bool {
        false
    }
}
