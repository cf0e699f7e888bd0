//! Backends with what is behind them: the peer, the kernel or the program.

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

/// Place where frames arrive that are sent through an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// At the same end.
    Itself,
    /// At the other end.
    Other,
    /// At the program: [`Setup::take_outside`].
    Outside,
    /// Nowhere.
    Nowhere,
}

/// Event that an end undergoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is closed.
    Closed,
    /// Its process dies.
    Killed,
}

/// One function, or two that are joined, and what is behind them.
pub trait Setup {
    /// The backend's name.
    fn name(&self) -> String;

    /// The kind of it.
    fn rig_name(&self) -> &'static str;

    /// Number of functions.
    fn ends(&self) -> usize {
        2
    }

    /// Makes a function: at first, and again after it was dropped.
    fn make(&mut self, end: usize) -> Box<dyn Function>;

    /// Numbers of channels that can be opened.
    fn channels(&self) -> RangeInclusive<u16> {
        1..=4
    }

    /// False where what lies between the ends drops what it has no room for.
    fn lossless(&self) -> bool {
        true
    }

    /// True when there can be another number of them without a new life of the link.
    fn can_change(&self) -> bool {
        self.channels().count() > 1
    }

    /// Most bytes of a test frame.
    fn frame_max(&self) -> usize {
        1500
    }

    /// Where frames arrive.
    fn delivery(&self) -> Delivery {
        Delivery::Other
    }

    /// The end that must be open before this one can be up.
    fn follows(&self, _end: usize) -> Option<usize> {
        None
    }

    /// True when `end` goes down after the loss of the other end.
    fn notices(&self, _end: usize, _loss: Loss) -> bool {
        false
    }

    /// True when descriptors of channels that are closed are kept for later.
    fn keeps_descriptors(&self) -> bool {
        false
    }

    /// Makes progress behind the functions.
    fn turn(&mut self, _now: Duration) {}

    /// Called when an end has opened its channels.
    fn opened(&mut self, _end: usize, function: &mut dyn Function) {
        function.set_carrier(true);
    }

    /// Takes away what the ends stand on; those that must go down. None where nothing can be taken.
    fn unplug(&mut self) -> Vec<usize> {
        Vec::new()
    }

    /// Brings it back.
    fn plug(&mut self) {}

    /// Sends a frame to the function from the program behind it; false when there is no room.
    fn send_outside(&mut self, _channel: usize, _frame: &[u8]) -> bool {
        false
    }

    /// Frames that the program behind the function has got, with their channels.
    fn take_outside(&mut self) -> Vec<(usize, Vec<u8>)> {
        Vec::new()
    }
}

/// What the function at the other end of a link can do that wants so many channels.
pub fn partner(channels: u16) -> Caps {
    Caps { wanted: Some(channels), ..Loopback::new(64).caps() }
}
