//! Two windows in one shared memory: the memory of an ivshmem device (QEMU's
//! docs/specs/ivshmem-spec.rst), shared by two guests, or by a guest and the host.
//!
//! A *bus* gives access to the device: on the host a client of QEMU's protocol, in a guest the PCI
//! function. The memory layout is the same for every bus. Each end owns one half ([`card`]), finds
//! the owner of the other half ([`port`]), and signals that owner ([`wake`]).

mod card;
mod client;
mod file;
mod pci;
mod port;
mod protocol;
mod server;
mod wake;

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::HardwareDevice;
use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;

use super::{Doorbell, Hw, HwLink, MemoryWindows};
use file::Host;
use pci::Pci;
use port::{Port, Standing};
pub(crate) use protocol::check_stream;
pub use server::{IvshmemServer, ServerConfig, VECTORS};
use wake::Via;

/// Smallest and largest allowed size of the memory, which must also be a power of two.
pub const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Location of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceLocation {
    /// On the host: the socket of an ivshmem server, or the file of an `ivshmem-plain` device.
    Socket(PathBuf),
    /// In a guest: the only ivshmem PCI function.
    OnlyPci,
    /// In a guest: the PCI function with this address.
    Pci(String),
}

impl fmt::Display for DeviceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::OnlyPci => f.write_str("pci"),
            Self::Pci(address) => f.write_str(address),
        }
    }
}

/// Configuration of an ivshmem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IvshmemConfig {
    /// Location of the device.
    pub place: DeviceLocation,
    /// Half that this end owns, 0 or 1; `None` for either half, if it is free.
    pub side: Option<u8>,
}

/// Memory and interrupts that a bus provides.
#[derive(Clone, Debug)]
struct Attachment {
    /// Both halves of the memory.
    halves: [Arc<Region>; 2],
    /// Bytes of both halves together.
    size: u64,
    /// Number of this end at the device; `None` if the device does not number its peers.
    id: Option<u32>,
    /// Events of this end's interrupts, by vector; empty if the doorbell words must be polled.
    vectors: Vec<Arc<EventFd>>,
}

/// Access to the ivshmem device.
trait Bus: Send {
    /// Opens the device and handles its messages. Returns the attachment and a number that changes
    /// with the attachment; `Err` with the reason if there is no attachment.
    fn poll(&mut self, now: Duration) -> Result<(u64, &Attachment), String>;

    /// True if the device has a peer with number `id`; `None` if the bus cannot know.
    fn has(&self, id: u32) -> Option<bool>;

    /// Method to signal vector `vector` of peer `id`, which has `of` vectors; `Err` if `of` is not
    /// 0 and the bus cannot signal that vector.
    fn via(&self, id: Option<u32>, vector: u32, of: u32) -> Result<Via, String>;

    /// Descriptors that are ready when [`poll`](Self::poll) should be called.
    fn events(&self) -> Vec<BorrowedFd<'_>>;

    /// PCI function through which the bus reaches the device; `None` on the host.
    fn device(&self) -> Option<HardwareDevice> {
        None
    }
}

/// Bytes of a half of a memory of `size` bytes; `Err` if the size is not allowed. Another process
/// chooses the size, so that no mapping may rely on it unchecked.
fn check_size(size: u64) -> Result<usize, String> {
    if size.is_power_of_two() && MEMORY.contains(&size) {
        return Ok(size as usize / 2);
    }
    Err(format!("the shared memory has {size} bytes, allowed are powers of two from 1M to 1G"))
}

/// Maps half `side` of the memory, of `half` bytes; `Err` if this fails or the pages are larger
/// than a half.
fn half_of(file: OwnedFd, side: usize, half: usize) -> Result<Arc<Region>, String> {
    let region = Region::of_guest(file, (side * half) as u64, half as u64);
    let (region, skip) = region.map_err(|e| e.to_string())?;
    // With pages larger than a half, both halves would map the same bytes.
    if skip != 0 || region.len() != half {
        let mib = half >> 20;
        return Err(format!(
            "the shared memory has pages of more than {mib} MiB, its half: make \
             it larger, or its pages smaller"
        ));
    }
    Ok(Arc::new(region))
}

/// Provider of a bridge over an ivshmem device.
pub struct IvshmemProvider {
    bus: Box<dyn Bus>,
    side: Option<u8>,
    seed: u64,
    port: Option<(u64, Port)>,
    session: u64,
}

impl IvshmemProvider {
    /// Provider for the device in `config`. `seed` is a number that differs in each process
    /// (random).
    pub fn new(config: IvshmemConfig, seed: u64) -> Self {
        let bus: Box<dyn Bus> = match config.place {
            DeviceLocation::Socket(path) => Box::new(Host::new(path)),
            DeviceLocation::OnlyPci => Box::new(Pci::new(None)),
            DeviceLocation::Pci(address) => Box::new(Pci::new(Some(address))),
        };
        Self { bus, side: config.side, seed, port: None, session: 0 }
    }

    /// Creates the port for a new attachment of the bus. Drops the port, and returns the reason, if
    /// the bus has no attachment.
    fn attach(&mut self, now: Duration) -> Result<(), String> {
        let found = self.bus.poll(now);
        let (number, attachment) = match found {
            Ok(found) => found,
            Err(why) => {
                self.port = None;
                return Err(why);
            }
        };
        if self.port.as_ref().is_none_or(|(made_for, _)| *made_for != number) {
            self.port = None;
            let port = Port::new(attachment.clone(), self.side, crate::mix::next(&mut self.seed));
            self.port = Some((number, port?));
        }
        Ok(())
    }

    fn port(&self) -> Option<&Port> {
        self.port.as_ref().map(|(_, port)| port)
    }
}

impl Hw for IvshmemProvider {
    fn poll_link(&mut self, now: Duration) -> HwLink {
        if let Err(why) = self.attach(now) {
            return HwLink::Down(why);
        }
        let Some((_, port)) = &mut self.port else {
            return HwLink::Down("no such port".to_owned());
        };
        match port.poll(now, &*self.bus) {
            Standing::Down(why) => HwLink::Down(why),
            Standing::Up { fresh } => {
                self.session += u64::from(fresh);
                HwLink::Up(self.session)
            }
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.bus.events();
        fds.extend(self.port().map(Port::link_event));
        fds
    }

    fn windows(&self) -> Option<MemoryWindows> {
        self.port()?.windows()
    }

    fn spad_read(&self, pad: usize) -> u32 {
        self.port().map_or(0, |port| port.spad_read(pad))
    }

    fn peer_spad_write(&self, pad: usize, value: u32) {
        if let Some(port) = self.port() {
            port.peer_spad_write(pad, value);
        }
    }

    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        self.port()?.peer_doorbell(bit)
    }

    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.port()?.doorbell_event(bit)
    }

    fn reset(&mut self, now: Duration, retry_after: Duration) {
        if let Some((_, port)) = &mut self.port {
            port.leave(now + retry_after);
        }
    }

    fn device(&self) -> Option<HardwareDevice> {
        self.bus.device()
    }

    fn window_len(&self) -> u32 {
        self.port().map_or(0, Port::window_len)
    }

    fn is_second(&self) -> bool {
        self.port().is_some_and(Port::is_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: exactly the powers of two from 1M to 1G are accepted. Both halves begin at a page
    // boundary, with pages of 4, 16 and 64 KiB.
    #[test]
    fn halves_begin_at_pages_of_any_host() {
        for power in 0..40 {
            let size = 1u64 << power;
            let half = check_size(size);
            assert_eq!(half.is_ok(), (20..=30).contains(&power), "{size}");
            let Ok(half) = half else { continue };
            assert_eq!(half as u64 * 2, size);
            assert!([4 << 10, 16 << 10, 64 << 10].iter().all(|page| half % page == 0), "{size}");
        }
        assert!(check_size(3 << 20).is_err());
    }
}
