//! Ring of a guest, with its kick and call eventfds.

mod call;
mod cell;
mod lease;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use mqnet_netdev::Offloads;
use mqnet_shmem::{AtomicTable, GuestMemoryView, MemoryMap};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::inflight::{self, BadRegion, PackedInflight};
use mqnet_virtio::log::RingLog;
use mqnet_virtio::net::{HDR_LEN, HDR_LEN_HASH};
use mqnet_virtio::{Broken, DeviceRing, Features, Ring, on_ring, packed, split};

pub use call::Call;
pub use cell::VringCell;
pub(crate) use lease::{EpollSet, RingLease};

/// Reason why a ring cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum VringError {
    /// The layout or a value of the ring is invalid.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The inflight region does not belong to this queue.
    #[error("queue {queue}: {source}")]
    Inflight {
        /// Index of the virtqueue.
        queue: u16,
        /// Fault of the region.
        source: BadRegion,
    },
    /// System call failed.
    #[error("queue {queue}: {what}: {source}")]
    System {
        /// Index of the virtqueue.
        queue: u16,
        /// Attempted operation.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The kick or call descriptor is no eventfd. Writing to another kind of file could block.
    #[error("queue {queue}: the {what} descriptor is no eventfd")]
    NoEventFd {
        /// Index of the virtqueue.
        queue: u16,
        /// `kick` or `call`.
        what: &'static str,
    },
}

/// Part of the inflight region for one queue.
pub type Inflight = AtomicTable;

/// Parameters of a ring.
#[derive(Debug)]
pub struct VringSetup {
    /// Index of the virtqueue.
    pub queue: u16,
    /// Number of descriptors.
    pub size: u16,
    /// Guest memory, by the addresses that descriptors contain.
    pub memory: Arc<MemoryMap>,
    /// Descriptor area.
    pub desc: AtomicTable,
    /// Driver area (avail).
    pub driver: AtomicTable,
    /// Device area (used).
    pub device: AtomicTable,
    /// Negotiated features.
    pub features: Features,
    /// Start position of a packed ring without an inflight region (`SET_VRING_BASE`). A packed ring
    /// with a region continues from the region, and a split ring from `used.idx`. Both are valid
    /// even after a crash.
    pub base: u32,
    /// Kick eventfd of the guest; without one the ring is polled.
    pub kick: Option<OwnedFd>,
    /// Call eventfd of the guest; without one the guest polls.
    pub call: Option<OwnedFd>,
    /// Inflight region, if the frontend provided one.
    pub inflight: Option<Inflight>,
    /// Dirty log, during a migration.
    pub log: Option<RingLog>,
}

/// Ring in service. The ring has one owner at a time: the control thread, a [`VringCell`] or a
/// queue half.
#[derive(Debug)]
pub struct Vring {
    pub(crate) ring: Ring,
    pub(crate) memory: GuestMemoryView,
    pub(crate) kick: Option<EventFd>,
    pub(crate) call: Arc<Call>,
    pub(crate) log: Option<RingLog>,
    pub(crate) hdr_len: u32,
    pub(crate) mergeable: bool,
    /// Offloads that the driver's frames may use.
    pub(crate) sends: Offloads,
}

impl Vring {
    /// Takes a ring into service at its present position. The caller should interrupt the driver
    /// once afterwards: the former backend may have lost an interrupt.
    pub fn new(setup: VringSetup) -> Result<Box<Self>, VringError> {
        let VringSetup { queue, size, features, .. } = setup;
        let tables = [setup.desc, setup.driver, setup.device];
        let bad_region = |source| VringError::Inflight { queue, source };
        let ring = if features.has(Features::RING_PACKED) {
            let region = setup.inflight.map(|region| PackedInflight::new(region, size));
            let region = region.transpose().map_err(bad_region)?;
            Ring::Packed(packed::PackedDeviceQueue::new(
                queue, size, tables, features, setup.base, region,
            )?)
        } else {
            if let Some(region) = &setup.inflight {
                inflight::take_over_split(region, size).map_err(bad_region)?;
            }
            Ring::Split(split::SplitDeviceQueue::new(queue, size, tables, features)?)
        };
        let kick = match setup.kick.map(EventFd::from_peer) {
            Some(None) => return Err(VringError::NoEventFd { queue, what: "kick" }),
            kick => kick.flatten(),
        };
        let call = Arc::new(Call::new(queue)?);
        call.connect(setup.call)?;
        let has_hash = features.has(Features::HASH_REPORT);
        let mut vring = Box::new(Self {
            ring,
            memory: GuestMemoryView::new(setup.memory),
            kick,
            call,
            log: None,
            hdr_len: if has_hash { HDR_LEN_HASH } else { HDR_LEN },
            mergeable: features.has(Features::MRG_RXBUF),
            sends: features.sent_by_driver(),
        });
        vring.set_log(setup.log);
        Ok(vring)
    }

    /// Index of the virtqueue.
    pub fn queue(&self) -> u16 {
        on_ring!(&self.ring, ring => ring.queue())
    }

    /// Position of the ring (`GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        on_ring!(&self.ring, ring => ring.base())
    }

    /// Interrupt of the ring. The control thread may change the interrupt while a half owns the
    /// ring.
    pub fn call(&self) -> Arc<Call> {
        self.call.clone()
    }

    /// Replaces the kick descriptor; the ring is polled if there is none.
    pub fn set_kick(&mut self, kick: Option<OwnedFd>) -> Result<(), VringError> {
        let queue = self.queue();
        self.kick = match kick.map(EventFd::from_peer) {
            Some(None) => return Err(VringError::NoEventFd { queue, what: "kick" }),
            kick => kick.flatten(),
        };
        Ok(())
    }

    /// Directs interrupts to the kernel's driver of the VDUSE device `device`.
    pub(crate) fn interrupt_kernel(&mut self, device: Arc<OwnedFd>) -> Result<(), VringError> {
        self.call = Arc::new(Call::of_kernel(self.queue(), device)?);
        Ok(())
    }

    /// Starts the recording of written pages in `log`; `None` stops it.
    pub fn set_log(&mut self, log: Option<RingLog>) {
        on_ring!(&mut self.ring, ring => ring.set_log(log.clone()));
        self.log = log;
    }

    /// Replaces the guest's memory. The areas of the ring must not move.
    pub fn set_memory(&mut self, memory: Arc<MemoryMap>) {
        self.memory = GuestMemoryView::new(memory);
    }

    pub(crate) fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }
}
