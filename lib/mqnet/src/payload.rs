//! Frames of a virtio device in the program's own memory.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use mqnet_netdev::limits::{FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Armed, Burst, Caps, Channel, DetachedFrame, Fault, Function, LinkStatus, Offloads, OwningRx,
    Plan, Rx, RxBuffers, RxMemory,
};
use mqnet_pktbuf::Returner;
use mqnet_sysio::{clock, poll};
use mqnet_virtio_user::{ProvidedMemory, RequestedLayout, VirtioUserConfig, VirtioUserFunction};
use mqnet_wire::Layer;

/// Longest interval between two checks for the device while the device is not ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reason why a device could not be opened, or is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

impl From<Fault> for PayloadError {
    fn from(fault: Fault) -> Self {
        Self(format!("virtio-user: {fault}"))
    }
}

/// A virtio device over vhost-user that writes received frames to memory of the program.
pub struct PayloadDevice {
    function: VirtioUserFunction,
    session: u64,
    /// Transmit queues, kept open because the device expects them.
    _tx: Vec<mqnet_netdev::Tx>,
}

fn caps(queues: u16) -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: queues,
        wanted: Some(queues),
        mtu: None,
        mtu_found: None,
        mtu_max: MTU_MAX,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::NONE,
        tx_offloads: Offloads::NONE,
        rx_fixed: Offloads::NONE,
    }
}

impl PayloadDevice {
    /// Connects to the socket of a device and waits for the device, at most `patience`. `memory` is
    /// divided equally among `queues` RX queues. Returns one receiver for each queue.
    pub fn open(
        socket: impl Into<PathBuf>,
        memory: ProvidedMemory,
        queues: u16,
        patience: Duration,
    ) -> Result<(Self, Vec<PayloadReceiver>), PayloadError> {
        let config = VirtioUserConfig {
            queues: Some(queues),
            rx_memory: Some(memory),
            rx_buf_layout: RequestedLayout::Frag,
            ..VirtioUserConfig::new(socket)
        };
        let opened = VirtioUserFunction::new(config);
        let mut function = opened.map_err(|e| PayloadError(format!("virtio-user: {e}")))?;
        let partner = caps(queues);
        function.set_partner(&partner);
        let session = wait(&mut function, patience)?;
        let fail = |e: String| PayloadError(format!("{}: {e}", function.name()));
        let plan = Plan::join(&function.caps(), &partner).map_err(|e| fail(e.to_string()))?;
        if plan.channels < queues {
            return Err(fail(format!("queues: {queues}: the device has {}", plan.channels)));
        }
        let channels = function.open(&plan).map_err(|e| PayloadError(e.to_string()))?;
        let (mut receivers, mut tx) = (Vec::new(), Vec::new());
        for Channel { rx, tx: sends } in channels {
            receivers.extend(PayloadReceiver::of(rx));
            tx.push(sends);
        }
        Ok((Self { function, session, _tx: tx }, receivers))
    }

    /// Checks the connection to the device. Returns an error with the reason after the device was
    /// lost or restarted: the receivers then get no more frames.
    pub fn check(&mut self) -> Result<(), PayloadError> {
        match self.function.poll_link(clock::monotonic()) {
            LinkStatus::Up { session } if session == self.session => Ok(()),
            LinkStatus::Up { .. } => Err(PayloadError("the device has started anew".to_owned())),
            LinkStatus::Down(why) => Err(PayloadError(why)),
        }
    }

    /// Layout of the receive buffers, and counters of the page pools.
    pub fn rx_memory(&self) -> Vec<RxMemory> {
        self.function.rx_memory()
    }
}

fn wait(function: &mut VirtioUserFunction, patience: Duration) -> Result<u64, PayloadError> {
    let end = clock::monotonic() + patience;
    loop {
        let now = clock::monotonic();
        match function.poll_link(now) {
            LinkStatus::Up { session } => return Ok(session),
            LinkStatus::Down(why) if now >= end => return Err(PayloadError(why)),
            LinkStatus::Down(_) => poll::wait_readable(&function.events(), POLL_INTERVAL)
                .map_err(|e| PayloadError(format!("waiting for a device: {e}")))?,
        }
    }
}

/// A received frame in the program's memory. The program owns the memory until it calls
/// [`PayloadReturner::free`].
#[derive(Debug)]
#[must_use = "memory that is not given back is lost to the queue"]
pub struct Payload {
    kept: DetachedFrame,
    /// Offset in the program's memory file and length of each segment.
    places: Vec<(u64, u32)>,
}

impl Payload {
    /// Segments of the frame in the program's memory file: offset and length of each, in order. A
    /// frame that fits into one buffer has one segment.
    pub fn places(&self) -> &[(u64, u32)] {
        &self.places
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.kept.len()
    }

    /// Always false: a frame contains an Ethernet header.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Free bytes before the frame, for an additional header.
    pub fn headroom(&self) -> u32 {
        self.kept.head.headroom()
    }
}

/// Returns payload to one queue. Any thread may have a clone.
#[derive(Clone, Debug)]
pub struct PayloadReturner(Returner);

impl PayloadReturner {
    /// Returns a frame's memory to the queue, in batches of 64 frames.
    ///
    /// # Panics
    ///
    /// If the frame belongs to another queue.
    pub fn free(&mut self, payload: Payload) {
        payload.kept.free(&mut self.0);
    }

    /// Prepends a header to a frame, in place. Returns false if the headroom is too small.
    ///
    /// # Panics
    ///
    /// If the frame belongs to another queue.
    pub fn push_front(&self, payload: &mut Payload, header: &[u8]) -> bool {
        let done = payload.kept.head.push_front(header, &self.0);
        if let Some(place) = payload.places.first_mut().filter(|_| done) {
            *place = (payload.kept.head.place(&self.0), payload.kept.head.len());
        }
        done
    }

    /// Passes the returned frames of an incomplete batch to the queue. Call this method before the
    /// thread pauses.
    pub fn flush(&mut self) {
        // Frames that do not fit are passed with the next batch.
        let _ = self.0.flush();
    }
}

/// Receiver of the frames of one queue.
pub struct PayloadReceiver {
    rx: Box<dyn OwningRx>,
    returner: Returner,
}

impl PayloadReceiver {
    fn of(rx: Rx) -> Option<Self> {
        let Rx::Owning(mut rx) = rx else { return None };
        let returner = rx.returner()?;
        Some(Self { rx, returner })
    }

    /// Handle with which another thread returns payload to this queue.
    pub fn returner(&self) -> PayloadReturner {
        PayloadReturner(self.returner.clone())
    }

    /// Next frame; `None` if no frame has arrived.
    pub fn try_recv(&mut self) -> Result<Option<Payload>, PayloadError> {
        if let Some(kept) = self.rx.detach()? {
            return Ok(Some(self.found(kept)));
        }
        self.rx.peek(&mut Burst::new(), 64)?;
        let kept = self.rx.detach()?;
        Ok(kept.map(|kept| self.found(kept)))
    }

    fn found(&self, kept: DetachedFrame) -> Payload {
        let places =
            kept.pieces().map(|piece| (piece.place(&self.returner), piece.len())).collect();
        Payload { kept, places }
    }

    /// Makes [`fd`](Self::fd) readable on arrival of the next frame, and returns true. Returns
    /// false if a frame has already arrived, or if the program holds so much memory that the device
    /// may lack buffers. In the second case return frames, call `flush`, and call `arm` again.
    pub fn arm(&mut self) -> Result<bool, PayloadError> {
        Ok(self.rx.arm(1)? == Armed::Sleep)
    }

    /// Descriptor to wait for after [`arm`](Self::arm) has returned true; `None` if the queue has
    /// no event.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.rx.event().map(|event| event.fd)
    }
}
