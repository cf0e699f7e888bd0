//! Backends together with their environment: the peer, the kernel or the program.

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
    /// Same end.
    Itself,
    /// Other end.
    Other,
    /// Program: [`Setup::take_outside`].
    Outside,
    /// No destination: frames are discarded.
    Nowhere,
}

/// Loss of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Orderly close.
    Closed,
    /// Death of the process.
    Killed,
}

/// One function, or two joined functions, and their environment.
pub trait Setup {
    /// Name of the backend.
    fn name(&self) -> String;

    /// Name of the rig.
    fn rig_name(&self) -> &'static str;

    /// Number of functions.
    fn ends(&self) -> usize {
        2
    }

    /// Creates a function, also again after a drop.
    fn make(&mut self, end: usize) -> Box<dyn Function>;

    /// Numbers of channels that can be opened.
    fn channels(&self) -> RangeInclusive<u16> {
        1..=4
    }

    /// False when the path between the ends drops frames for lack of room.
    fn lossless(&self) -> bool {
        true
    }

    /// True when the number of channels can change within one session.
    fn can_change(&self) -> bool {
        self.channels().count() > 1
    }

    /// Largest test frame in bytes.
    fn frame_max(&self) -> usize {
        1500
    }

    /// Destination of frames.
    fn delivery(&self) -> Delivery {
        Delivery::Other
    }

    /// End that must be open before this one can be up.
    fn follows(&self, _end: usize) -> Option<usize> {
        None
    }

    /// True when `end` goes down after the loss of the other end.
    fn notices(&self, _end: usize, _loss: Loss) -> bool {
        false
    }

    /// True when descriptors of closed channels are kept for reuse.
    fn keeps_descriptors(&self) -> bool {
        false
    }

    /// Runs the environment of the functions.
    fn turn(&mut self, _now: Duration) {}

    /// Called when an end has opened its channels.
    fn opened(&mut self, _end: usize, function: &mut dyn Function) {
        function.set_carrier(true);
    }

    /// Removes the medium under the ends. Returns the ends that must go down: none when nothing can
    /// be removed.
    fn unplug(&mut self) -> Vec<usize> {
        Vec::new()
    }

    /// Restores the medium.
    fn plug(&mut self) {}

    /// Sends a frame to the function from the program behind it; false when there is no room.
    fn send_outside(&mut self, _channel: usize, _frame: &[u8]) -> bool {
        false
    }

    /// Frames that the program behind the function has received, with their channels.
    fn take_outside(&mut self) -> Vec<(usize, Vec<u8>)> {
        Vec::new()
    }
}

/// Capabilities of a function at the other end of a link that requests `channels` channels.
pub fn partner(channels: u16) -> Caps {
    Caps { wanted: Some(channels), ..Loopback::new(64).caps() }
}
