//! An open device.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use mqnet_port::{Driver, Receiver, Sender, Stats};

/// A queue was asked for that there is not, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// There are fewer queues.
    #[error("queue {queue}: the device has {queues} (queues)")]
    NoSuch {
        /// The number that was asked for.
        queue: u16,
        /// How many there are.
        queues: u16,
    },
    /// Somebody has it already. A `Sender` can be cloned; a `Receiver` is the only one.
    #[error("queue {0} was taken before")]
    Before(u16),
}

/// An open TUN, TAP or NIC. Dropped, it is closed: what waits for receivers is still received, then
/// they and the senders hear of it.
pub struct Device {
    name: String,
    queues: Mutex<Vec<Option<(Receiver, Sender)>>>,
    driver: Driver,
}

impl Device {
    pub(crate) fn new(name: String, ends: Vec<(Receiver, Sender)>, driver: Driver) -> Self {
        Self { name, queues: Mutex::new(ends.into_iter().map(Some).collect()), driver }
    }

    /// The kernel's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of its largest packet.
    pub fn mtu(&self) -> u32 {
        self.driver.plan().mtu
    }

    /// How many queues it has.
    pub fn queues(&self) -> u16 {
        self.driver.plan().channels
    }

    /// Both ends of a queue, once.
    pub fn queue(&self, queue: u16) -> Result<(Receiver, Sender), Taken> {
        let mut all = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = all.len() as u16;
        let place = all.get_mut(usize::from(queue)).ok_or(Taken::NoSuch { queue, queues })?;
        place.take().ok_or(Taken::Before(queue))
    }

    /// What was moved so far: `taken + segments = sent + merged + drops + waiting`, in
    /// each direction.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}
