//! Guest with one queue, and the halves that serve the queue.

use std::os::fd::AsFd;
use std::sync::Arc;

use mqnet_netdev::{Burst, Fault, Offloads, OwningRx, OwningTx, QueuePairStats};
use mqnet_shmem::Span;
use mqnet_sysio::eventfd::EventFd;
use mqnet_testkit::virtq::{Buf, Driver, Memory, Shape};
use mqnet_vhost_user::{GuestRx, GuestTx, Vring, VringCell, VringSetup};
use mqnet_virtio::Features;
use mqnet_wire::{VnetFields, VnetHdr};

pub(crate) const HDR: u32 = 12;

/// Queue of a guest, with its memory and driver.
pub(crate) struct Guest {
    pub(crate) memory: Memory,
    pub(crate) driver: Driver,
    pub(crate) cell: Arc<VringCell>,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    pub(crate) stats: Arc<QueuePairStats>,
    pub(crate) mergeable: bool,
}

pub(crate) fn features(shape: Shape, mergeable: bool) -> Features {
    let on = |on: bool, bit| if on { bit } else { Features::default() };
    Features::VERSION_1
        .or(Features::INDIRECT_DESC)
        .or(Features::of_device_that_takes(Offloads::ALL))
        .or(on(shape.packed, Features::RING_PACKED))
        .or(on(shape.event_idx, Features::EVENT_IDX))
        .or(on(mergeable, Features::MRG_RXBUF))
}

impl Guest {
    pub(crate) fn new(shape: Shape, mergeable: bool) -> Self {
        let mut memory = Memory::new(8 << 20);
        let driver = Driver::new(&mut memory, shape);
        let guest = Self {
            memory,
            driver,
            cell: Arc::new(VringCell::new().unwrap()),
            kick: EventFd::new().unwrap(),
            call: EventFd::new().unwrap(),
            stats: Arc::default(),
            mergeable,
        };
        guest.cell.offer(Vring::new(guest.setup()).unwrap()).unwrap();
        guest
    }

    /// Parameters of the queue in its initial state.
    pub(crate) fn setup(&self) -> VringSetup {
        let [desc, driver, device] = self.driver.tables(&self.memory);
        VringSetup {
            queue: 1,
            size: self.driver.shape.size,
            memory: self.memory.map(),
            desc,
            driver,
            device,
            features: features(self.driver.shape, self.mergeable),
            base: if self.driver.shape.packed { 0x8000_8000 } else { 0 },
            kick: Some(self.kick.try_clone().unwrap()),
            call: Some(self.call.try_clone().unwrap()),
            inflight: None,
            log: None,
        }
    }

    /// Half that serves the queue as a transmit queue.
    pub(crate) fn tx_half(&self) -> GuestTx {
        GuestTx::new(0, [self.cell.clone()], 65_558, self.stats.clone()).unwrap()
    }

    /// Half that serves the queue as a receive queue.
    pub(crate) fn rx_half(&self) -> GuestRx {
        GuestRx::new(0, self.cell.clone(), self.stats.clone()).unwrap()
    }

    /// Consumes pending interrupts; true if there were any.
    pub(crate) fn was_interrupted(&self) -> bool {
        is_rung(&self.call)
    }
}

/// Drains an eventfd; true if it was readable.
pub(crate) fn is_rung(event: &EventFd) -> bool {
    let ready = mqnet_sysio::poll::is_readable(event.as_fd()).unwrap();
    event.drain();
    ready
}

/// Header of a frame as drivers write it, with `num_buffers` 0.
pub(crate) fn header(hdr: VnetHdr) -> [u8; 12] {
    let mut out = hdr.to_bytes();
    out[10] = 0;
    out
}

/// Header of a TSO frame.
pub(crate) fn gso(size: u16) -> VnetHdr {
    VnetHdr::new(VnetFields {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: size,
        csum_start: 34,
        csum_offset: 16,
    })
}

/// Headers and bytes of a burst's frames.
pub(crate) fn frames(burst: &Burst<'_>) -> Vec<(VnetHdr, Vec<u8>)> {
    let whole = |frame: &mqnet_netdev::Frame<'_>| {
        let mut bytes = Vec::new();
        for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
            let mut part = vec![0; piece.len()];
            piece.read_header(&mut part);
            bytes.extend(part);
        }
        assert_eq!(bytes.len(), frame.len as usize);
        (frame.hdr, bytes)
    };
    burst.frames().iter().map(whole).collect()
}

/// Receives and releases one burst of the guest's frames; returns their headers and bytes.
pub(crate) fn take(half: &mut GuestTx) -> Result<Vec<(VnetHdr, Vec<u8>)>, Fault> {
    let seen = {
        let mut burst = Burst::new();
        half.peek(&mut burst, 64)?;
        frames(&burst)
    };
    half.release(seen.len())?;
    Ok(seen)
}

/// Sends one frame to a guest; false if the queue is full.
pub(crate) fn send(half: &mut GuestRx, hdr: VnetHdr, bytes: &[u8]) -> Result<bool, Fault> {
    let mut burst = Burst::new();
    burst.push(hdr, bytes.len() as u32, Span::of(bytes));
    let taken = half.submit(&burst, 0)?;
    half.flush()?;
    Ok(taken == 1)
}

/// Allocates one buffer of each length in guest memory.
pub(crate) fn bufs(memory: &mut Memory, lens: &[u32], write: bool) -> Vec<Buf> {
    lens.iter().map(|&len| Buf { at: memory.alloc(len, 1), len, write }).collect()
}

/// All combinations of split or packed layout, event index and mergeable buffers.
pub(crate) fn shapes(size: u16) -> impl Iterator<Item = (Shape, bool)> {
    (0..8).map(move |bits| {
        let shape = Shape { packed: bits & 1 != 0, size, event_idx: bits & 2 != 0 };
        (shape, bits & 4 != 0)
    })
}
