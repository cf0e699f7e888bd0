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

/// Looks at the device at least so often while it is not there.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A device could not be had, or is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

impl From<Fault> for PayloadError {
    fn from(fault: Fault) -> Self {
        Self(format!("virtio-user: {fault}"))
    }
}

/// A virtio device over vhost-user whose frames come into memory of the program's.
pub struct PayloadDevice {
    function: VirtioUserFunction,
    session: u64,
    /// Transmit queues: the device expects them to stay.
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
    /// Connects to the socket of a device and waits for it, up to `patience`. `memory` is shared
    /// out equally among `queues` RX queues; there is a receiver for each.
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

    /// An error, with the reason, when the device has gone away: nothing comes any more.
    pub fn check(&mut self) -> Result<(), PayloadError> {
        match self.function.poll_link(clock::monotonic()) {
            LinkStatus::Up { session } if session == self.session => Ok(()),
            LinkStatus::Up { .. } => Err(PayloadError("the device has started anew".to_owned())),
            LinkStatus::Down(why) => Err(PayloadError(why)),
        }
    }

    /// How the buffers lie, and what the page pools have done.
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

/// A frame in the program's memory. It belongs to the program until it is given back.
#[derive(Debug)]
#[must_use = "memory that is not given back is lost to the queue"]
pub struct Payload {
    kept: DetachedFrame,
    /// Where in the program's file each piece begins, and its length.
    places: Vec<(u64, u32)>,
}

impl Payload {
    /// Where in the program's memory file the frame lies: the offset and the length of each piece,
    /// in order. A frame that fits a buffer has one.
    pub fn places(&self) -> &[(u64, u32)] {
        &self.places
    }

    /// Its length.
    pub fn len(&self) -> u32 {
        self.kept.len()
    }

    /// Never true: a frame has an Ethernet header.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Free bytes in front of it, for a header more.
    pub fn headroom(&self) -> u32 {
        self.kept.head.headroom()
    }
}

/// Gives payload back to one queue, from any thread; one for each.
#[derive(Clone, Debug)]
pub struct PayloadReturner(Returner);

impl PayloadReturner {
    /// Gives a frame's memory back to the device. It is handed over in batches of 64.
    ///
    /// # Panics
    /// When the frame came from another queue.
    pub fn free(&mut self, payload: Payload) {
        payload.kept.free(&mut self.0);
    }

    /// Puts a header in front of a frame, in place; false when there is no room for it.
    ///
    /// # Panics
    /// When the frame came from another queue.
    pub fn push_front(&self, payload: &mut Payload, header: &[u8]) -> bool {
        let done = payload.kept.head.push_front(header, &self.0);
        if let Some(place) = payload.places.first_mut().filter(|_| done) {
            *place = (payload.kept.head.place(&self.0), payload.kept.head.len());
        }
        done
    }

    /// Hands over what was given back: before this thread pauses.
    pub fn flush(&mut self) {
        // What does not fit goes with the next batch.
        let _ = self.0.flush();
    }
}

/// Receives the frames of one queue.
pub struct PayloadReceiver {
    rx: Box<dyn OwningRx>,
    home: Returner,
}

impl PayloadReceiver {
    fn of(rx: Rx) -> Option<Self> {
        let Rx::Owning(mut rx) = rx else { return None };
        let home = rx.returner()?;
        Some(Self { rx, home })
    }

    /// A way back for payload, for another thread.
    pub fn returner(&self) -> PayloadReturner {
        PayloadReturner(self.home.clone())
    }

    /// The next frame, if there is one.
    pub fn try_recv(&mut self) -> Result<Option<Payload>, PayloadError> {
        if let Some(kept) = self.rx.detach()? {
            return Ok(Some(self.found(kept)));
        }
        self.rx.peek(&mut Burst::new(), 64)?;
        let kept = self.rx.detach()?;
        Ok(kept.map(|kept| self.found(kept)))
    }

    fn found(&self, kept: DetachedFrame) -> Payload {
        let places = kept.pieces().map(|piece| (piece.place(&self.home), piece.len())).collect();
        Payload { kept, places }
    }

    /// Asks for [`fd`](Self::fd) to become readable when the next frame comes. False when
    /// one is there already, and while frames that were not given back have so much of the memory
    /// that the device may have no room for the next: give some back, flush, and ask again.
    pub fn arm(&mut self) -> Result<bool, PayloadError> {
        Ok(self.rx.arm(1)? == Armed::Sleep)
    }

    /// What to wait for after [`arm`](Self::arm).
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.rx.event().map(|event| event.fd)
    }
}
