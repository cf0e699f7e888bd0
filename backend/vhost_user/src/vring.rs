//! A ring of a guest with its doorbells.

mod call;
mod cell;
mod seat;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use mqnet_netdev::Offloads;
use mqnet_shmem::{Lent, MemoryMap, Table};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::inflight::{self, BadRegion, PackedInflight};
use mqnet_virtio::log::RingLog;
use mqnet_virtio::net::{HDR_LEN, HDR_LEN_HASH};
use mqnet_virtio::{Broken, DeviceRing, Features, Ring, on_ring, packed, split};

pub use call::Call;
pub use cell::VringCell;
pub(crate) use seat::{Ears, Seat};

/// Why a ring cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum VringError {
    /// It makes no sense.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The region for chains in flight is another queue's.
    #[error("queue {queue}: {source}")]
    Inflight {
        /// Which virtqueue.
        queue: u16,
        /// What is wrong.
        source: BadRegion,
    },
    /// The system refused.
    #[error("queue {queue}: {what}: {source}")]
    System {
        /// Which virtqueue.
        queue: u16,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A descriptor that is no eventfd: it could block us.
    #[error("queue {queue}: the {what} descriptor is no eventfd")]
    NoEventFd {
        /// Which virtqueue.
        queue: u16,
        /// `kick` or `call`.
        what: &'static str,
    },
}

/// Where chains in flight are noted: the queue's own part of the region.
pub type Inflight = Table;

/// What the control thread knows of a ring.
#[derive(Debug)]
pub struct VringSetup {
    /// Number of the virtqueue, as the driver counts.
    pub queue: u16,
    /// Its descriptors.
    pub size: u16,
    /// The guest's memory, by the addresses that its descriptors have.
    pub memory: Arc<MemoryMap>,
    /// Descriptors.
    pub desc: Table,
    /// Driver area (avail).
    pub driver: Table,
    /// Device area (used).
    pub device: Table,
    /// What was negotiated.
    pub features: Features,
    /// Where to go on (`SET_VRING_BASE`). Used for packed rings without an inflight region: in a
    /// split ring `used.idx` says it, and after a crash better.
    pub base: u32,
    /// By which the guest wakes us; without one the ring is polled.
    pub kick: Option<OwnedFd>,
    /// By which we interrupt the guest; without one the guest polls.
    pub call: Option<OwnedFd>,
    /// Where chains in flight are noted, if the frontend gave a region.
    pub inflight: Option<Inflight>,
    /// Where written pages are noted, during a migration.
    pub log: Option<RingLog>,
}

/// A ring that can be served. It has one owner at a time: the control thread, a [`VringCell`] or a
/// half.
#[derive(Debug)]
pub struct Vring {
    pub(crate) ring: Ring,
    pub(crate) memory: Lent,
    pub(crate) kick: Option<EventFd>,
    pub(crate) call: Arc<Call>,
    pub(crate) log: Option<RingLog>,
    pub(crate) hdr_len: u32,
    pub(crate) mergeable: bool,
    /// How frames from the driver may be unfinished.
    pub(crate) sends: Offloads,
}

impl Vring {
    /// Takes a ring into service where its driver says that it stands. The driver wants to be
    /// interrupted once when that is done: the owner before may have been lost with an interrupt.
    pub fn new(setup: VringSetup) -> Result<Box<Self>, VringError> {
        let VringSetup { queue, size, features, .. } = setup;
        let tables = [setup.desc, setup.driver, setup.device];
        let bad_region = |source| VringError::Inflight { queue, source };
        let ring = if features.has(Features::RING_PACKED) {
            let region = setup.inflight.map(|region| PackedInflight::new(region, size));
            let region = region.transpose().map_err(bad_region)?;
            Ring::Packed(packed::Device::new(queue, size, tables, features, setup.base, region)?)
        } else {
            if let Some(region) = &setup.inflight {
                inflight::take_over_split(region, size).map_err(bad_region)?;
            }
            Ring::Split(split::Device::new(queue, size, tables, features)?)
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
            memory: Lent::new(setup.memory),
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

    /// Which virtqueue it is, as the driver counts.
    pub fn queue(&self) -> u16 {
        on_ring!(&self.ring, ring => ring.queue())
    }

    /// Where it stands (`GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        on_ring!(&self.ring, ring => ring.base())
    }

    /// The interrupt, which the control thread may change while a half owns the ring.
    pub fn call(&self) -> Arc<Call> {
        self.call.clone()
    }

    /// Changes the kick descriptor; `None`: the ring is polled.
    pub fn set_kick(&mut self, kick: Option<OwnedFd>) -> Result<(), VringError> {
        let queue = self.queue();
        self.kick = match kick.map(EventFd::from_peer) {
            Some(None) => return Err(VringError::NoEventFd { queue, what: "kick" }),
            kick => kick.flatten(),
        };
        Ok(())
    }

    /// Interrupts the driver of this kernel from now on.
    pub(crate) fn interrupt_kernel(&mut self, device: Arc<OwnedFd>) -> Result<(), VringError> {
        self.call = Arc::new(Call::of_kernel(self.queue(), device)?);
        Ok(())
    }

    /// Notes written pages in a log from now on, or does not any more.
    pub fn set_log(&mut self, log: Option<RingLog>) {
        on_ring!(&mut self.ring, ring => ring.set_log(log.clone()));
        self.log = log;
    }

    /// Changes the guest's memory. The ring itself must lie where it was.
    pub fn set_memory(&mut self, memory: Arc<MemoryMap>) {
        self.memory = Lent::new(memory);
    }

    pub(crate) fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }
}
