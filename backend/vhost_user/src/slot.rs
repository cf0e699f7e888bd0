//! Parameters and state of one ring in the vhost-user protocol.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mqnet_sysio::eventfd::EventFd;

use crate::steer::receiver::Receiver;
use crate::vring::{Call, VringCell};

/// Ring with the parameters that the messages set.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) queue: u16,
    pub(crate) size: u16,
    /// Addresses in the VMM's process: descriptors, driver area, device area.
    pub(crate) areas: [u64; 3],
    pub(crate) base: u32,
    /// True if this process read `base` from the ring; false if the base comes only from the
    /// frontend.
    pub(crate) exact: bool,
    pub(crate) kick: Option<OwnedFd>,
    pub(crate) call: Option<OwnedFd>,
    pub(crate) error: Option<EventFd>,
    pub(crate) started: bool,
    pub(crate) enabled: bool,
    /// Hand-over cell of the ring.
    pub(crate) cell: Arc<VringCell>,
    /// Shared TX queue for all lanes, if the guest may select queues.
    pub(crate) receiver: Option<Arc<Receiver>>,
    /// Interrupt of the ring; `None` while the ring is out of service.
    pub(crate) interrupt: Option<Arc<Call>>,
    /// Reason why a started ring is not in service.
    pub(crate) why: Option<String>,
}

impl Slot {
    pub(crate) fn new(queue: u16) -> io::Result<Self> {
        Ok(Self {
            queue,
            size: 0,
            areas: [0; 3],
            base: 0,
            exact: false,
            kick: None,
            call: None,
            error: None,
            started: false,
            enabled: false,
            cell: Arc::new(VringCell::new()?),
            receiver: None,
            interrupt: None,
            why: None,
        })
    }

    pub(crate) fn is_served(&self) -> bool {
        self.interrupt.is_some()
    }

    /// Resets the ring to its initial state. The ring must be out of service.
    pub(crate) fn reset(&mut self) {
        (self.size, self.areas, self.base, self.exact) = (0, [0; 3], 0, false);
        (self.kick, self.call) = (None, None);
        self.stop();
        self.enabled = false;
    }

    /// Marks the ring as stopped, and closes its kick descriptor.
    pub(crate) fn stop(&mut self) {
        (self.started, self.kick, self.why) = (false, None, None);
    }

    /// Sets the position at which the ring continues. A different position clears `exact`.
    pub(crate) fn set_base(&mut self, base: u32) {
        self.exact = self.exact && base == self.base;
        self.base = base;
    }

    /// Replaces the call descriptor. Returns the interrupt and its new descriptor, or `None` if the
    /// ring is out of service. The caller updates the interrupt without the lock, because
    /// signalling a peer's descriptor may block.
    pub(crate) fn set_call(
        &mut self,
        call: Option<OwnedFd>,
    ) -> io::Result<Option<(Arc<Call>, Option<OwnedFd>)>> {
        let other = call.as_ref().map(OwnedFd::try_clone).transpose()?;
        self.call = call;
        Ok(self.interrupt.clone().map(|interrupt| (interrupt, other)))
    }
}
