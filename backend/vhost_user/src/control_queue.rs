//! Control queue, served by the connection thread. The thread leases the ring between two
//! vhost-user messages and returns the ring to its cell before each message.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use mqnet_sysio::poll;
use mqnet_virtio::net::ctrl::{Changed, ERR, LEN_MAX, OK};
use mqnet_virtio::net::{STATUS_ANNOUNCE, STATUS_LINK_UP, ctrl_queue};
use mqnet_virtio::ring::not_memory;
use mqnet_virtio::{Broken, BufferElement, Chain, DeviceRing, Ring, on_ring};

use crate::offer::Offer;
use crate::relay::NO_LIMIT;
use crate::state::{Shared, State};
use crate::vring::{EpollSet, RingLease, Vring};

/// Largest number of commands executed before vhost-user messages are polled again.
const BATCH: usize = 64;

/// Poll interval for a ring without a kick descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl State {
    /// Index of the control queue, if the driver negotiated one.
    fn command_ring(&self) -> Option<usize> {
        let commands = self.commands.as_ref()?;
        let pairs = if commands.sets_pairs() { self.offer.pairs } else { 1 };
        Some(ctrl_queue(pairs).into())
    }

    /// Bytes of the config space, with the values that the driver has set.
    pub(crate) fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        let settings = self.commands.as_ref().map(|commands| &commands.settings);
        let mac = settings.map_or(self.offer.mac.unwrap_or_default(), |s| s.filter.mac);
        let announce = settings.is_some_and(|settings| settings.announce);
        let status = STATUS_LINK_UP | if announce { STATUS_ANNOUNCE } else { 0 };
        let offer = Offer { mtu: self.offer.mtu.or(self.mtu), ..self.offer };
        offer.config(mac, status, offset, size)
    }

    fn execute(&mut self, bytes: &[u8]) -> (u8, Changed) {
        let Some(commands) = &mut self.commands else { return (ERR, Changed::Nothing) };
        match commands.rules.obey(&mut commands.settings, bytes) {
            Ok(changed) => {
                self.receiving.set(commands.receive_settings());
                (OK, changed)
            }
            Err(why) => {
                tracing::debug!("vhost-user: a command is refused: {why}");
                (ERR, Changed::Nothing)
            }
        }
    }
}

impl Shared {
    fn execute(&self, bytes: &[u8]) -> u8 {
        let (answer, changed) = self.lock().execute(bytes);
        if changed == Changed::Link {
            self.wake_control();
        }
        answer
    }
}

/// Control-queue handler.
pub(crate) struct ControlHandler {
    shared: Arc<Shared>,
    /// Index of the control queue, its event set and its ring lease.
    served: Option<(usize, EpollSet, RingLease)>,
    list: Vec<BufferElement>,
}

impl ControlHandler {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, served: None, list: Vec::new() }
    }

    /// Serves the ring until the peer sends a message or disconnects. The ring is in its cell
    /// when this function returns without an error.
    pub(crate) fn serve_until(&mut self, line: &UnixStream) -> std::io::Result<()> {
        loop {
            let more = self.serve()?;
            // A ring without a kick descriptor must be polled.
            let vring = self.served.as_mut().and_then(|(_, _, lease)| lease.vring());
            let polled = vring.is_some_and(|vring| vring.kick_fd().is_none());
            let timeout = match more {
                true => Duration::ZERO,
                false if polled => POLL_INTERVAL,
                false => NO_LIMIT,
            };
            let fds = match &self.served {
                Some((_, events, _)) => [line.as_fd(), events.event().fd],
                None => [line.as_fd(), line.as_fd()],
            };
            poll::wait_readable(&fds, timeout)?;
            if poll::is_readable(line.as_fd())? {
                break;
            }
        }
        self.release_lease();
        Ok(())
    }

    /// Returns the ring to its cell.
    fn release_lease(&mut self) {
        if let Some((_, events, lease)) = &mut self.served {
            lease.release(events);
        }
    }

    /// Leases the present control queue, if there is one and the device is not closed after a
    /// violation. Releases the lease of a former one.
    fn update_lease(&mut self) -> std::io::Result<()> {
        let shared = self.shared.clone();
        let state = shared.lock();
        let at = state.command_ring().filter(|_| state.broken.is_none());
        if self.served.as_ref().map(|served| served.0) == at {
            return Ok(());
        }
        self.release_lease();
        self.served = match at {
            Some(at) => {
                let events = EpollSet::new()?;
                let lease = RingLease::new(state.slots[at].cell.clone(), &events)?;
                Some((at, events, lease))
            }
            None => None,
        };
        Ok(())
    }

    /// Executes a batch of commands; true if more commands may be available. A violation closes
    /// the device.
    fn serve(&mut self) -> std::io::Result<bool> {
        self.update_lease()?;
        let Some((_, events, lease)) = &mut self.served else { return Ok(false) };
        events.drain()?;
        if !lease.is_ready(events)? {
            return Ok(false);
        }
        let Some(vring) = lease.vring() else { return Ok(false) };
        let Self { shared, list, .. } = self;
        match execute_some(vring, list, |bytes| shared.execute(bytes)) {
            Ok(more) => Ok(more),
            Err(broken) => {
                lease.release(events);
                shared.lock().break_off(format!("the guest violated the protocol: {broken}"));
                shared.wake_control();
                Ok(false)
            }
        }
    }
}

impl Drop for ControlHandler {
    fn drop(&mut self) {
        self.release_lease();
    }
}

/// Executes available commands of a ring, at most one batch; true if more may be available.
fn execute_some(
    vring: &mut Vring,
    list: &mut Vec<BufferElement>,
    mut execute: impl FnMut(&[u8]) -> u8,
) -> Result<bool, Broken> {
    let mut bytes = Vec::new();
    for _ in 0..BATCH {
        list.clear();
        let (ring, memory) = (&mut vring.ring, &vring.memory);
        let next = on_ring!(ring, ring => {
            let mut place = ring.place();
            ring.chain_at(&mut place, memory.map(), list)?
        });
        let Some(chain) = next else {
            return on_ring!(&mut vring.ring, ring => ring.arm(ring.place()));
        };
        let answer = if read(vring, &chain, list, &mut bytes)? { execute(&bytes) } else { ERR };
        write(vring, &chain, list, answer)?;
        let wants_interrupt = on_ring!(&mut vring.ring, ring => {
            ring.give_back(chain.id, chain.slots, 1);
            ring.publish()
        });
        if wants_interrupt {
            // An error is ignored: the VMM owns the other end of the eventfd.
            let _ = vring.call.ring();
        }
    }
    Ok(true)
}

fn pieces(chain: &Chain, list: &[BufferElement]) -> impl Iterator<Item = BufferElement> {
    std::iter::once(chain.head).chain(chain.more(list).iter().copied())
}

fn number(ring: &Ring) -> u16 {
    on_ring!(ring, ring => ring.queue())
}

/// Copies a command from guest memory, once; false if the command is longer than any valid one.
fn read(
    vring: &Vring,
    chain: &Chain,
    list: &[BufferElement],
    bytes: &mut Vec<u8>,
) -> Result<bool, Broken> {
    bytes.clear();
    for piece in pieces(chain, list).take(chain.readable.into()) {
        let span = vring.memory.span(piece.addr, piece.len);
        let span = span.ok_or_else(|| not_memory(number(&vring.ring), piece))?;
        let from = bytes.len();
        if from + span.len() > LEN_MAX {
            return Ok(false);
        }
        bytes.resize(from + span.len(), 0);
        span.read_header(&mut bytes[from..]);
    }
    Ok(true)
}

/// Writes the status byte into the first device-writable descriptor.
fn write(
    vring: &mut Vring,
    chain: &Chain,
    list: &[BufferElement],
    answer: u8,
) -> Result<(), Broken> {
    let queue = number(&vring.ring);
    let Some(piece) = pieces(chain, list).nth(chain.readable.into()) else {
        return Err(Broken { queue, what: "a command without room for its status".to_owned() });
    };
    let room = vring.memory.room(piece.addr, 1);
    room.ok_or_else(|| not_memory(queue, piece))?.write_header(&[answer]);
    if let Some(ring) = &vring.log {
        ring.log.mark(piece.addr, 1);
    }
    Ok(())
}
