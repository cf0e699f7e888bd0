//! Backends with their environment: the peer, the kernel or the program.

mod bridge;
mod kernel;
mod plain;
mod vduse;
mod virtio;

use std::ops::RangeInclusive;
use std::time::Duration;

use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::{Caps, Function};

pub use bridge::{Bridge, Hardware};
pub use kernel::{Nics, Taps};
pub use plain::{Loopbacks, Nothing, Ports};
pub use vduse::Vduse;
pub use virtio::Virtio;

/// Destination of the frames sent through an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Frames arrive at the end that sends them.
    Itself,
    /// Frames arrive at the other end.
    Other,
    /// Frames arrive at the program ([`Setup::take_outside`]).
    Outside,
    /// Frames are discarded.
    Nowhere,
}

/// Kind of loss of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The end was closed.
    Closed,
    /// The process of the end has ended without a close.
    Killed,
}

/// One function, or two joined functions, with their environment.
pub trait Setup {
    /// Name of the backend.
    fn name(&self) -> String;

    /// Name of the rig.
    fn rig_name(&self) -> &'static str;

    /// Number of functions.
    fn ends(&self) -> usize {
        2
    }

    /// Creates the function of an end. May be called again after that function was dropped.
    fn make(&mut self, end: usize) -> Box<dyn Function>;

    /// Possible numbers of channels.
    fn channels(&self) -> RangeInclusive<u16> {
        1..=4
    }

    /// False if the path between the ends drops frames while it is full.
    fn lossless(&self) -> bool {
        true
    }

    /// True if the number of channels can change within one session.
    fn can_change(&self) -> bool {
        self.channels().count() > 1
    }

    /// Largest test frame in bytes.
    fn frame_max(&self) -> usize {
        1500
    }

    /// Destination of the frames that the ends send.
    fn delivery(&self) -> Delivery {
        Delivery::Other
    }

    /// End that must be open before `end` can be up; `None` if `end` does not depend on another
    /// end.
    fn follows(&self, _end: usize) -> Option<usize> {
        None
    }

    /// True if `end` goes down after this loss of the other end.
    fn notices(&self, _end: usize, _loss: Loss) -> bool {
        false
    }

    /// True if descriptors of closed channels are kept for later use.
    fn keeps_descriptors(&self) -> bool {
        false
    }

    /// Runs the environment of the functions once per poll.
    fn turn(&mut self, _now: Duration) {}

    /// Called when an end has opened its channels.
    fn opened(&mut self, _end: usize, function: &mut dyn Function) {
        function.set_carrier(true);
    }

    /// Removes the medium that joins the ends. Returns the ends that must go down; empty if the
    /// medium cannot be removed.
    fn unplug(&mut self) -> Vec<usize> {
        Vec::new()
    }

    /// Restores the medium.
    fn plug(&mut self) {}

    /// Sends a frame from the program to the function; false if the queue is full.
    fn send_outside(&mut self, _channel: usize, _frame: &[u8]) -> bool {
        false
    }

    /// Takes the frames that the program has received from the function, each with its channel.
    fn take_outside(&mut self) -> Vec<(usize, Vec<u8>)> {
        Vec::new()
    }
}

/// Capabilities of a function at the other end of a link that requests `channels` channels.
pub fn partner(channels: u16) -> Caps {
    Caps { wanted: Some(channels), ..Loopback::new(64).caps() }
}
