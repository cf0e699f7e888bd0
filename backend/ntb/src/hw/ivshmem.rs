//! One shared memory as two windows: the memory of an ivshmem device (QEMU's
//! docs/specs/ivshmem-spec.rst), which two guests see, or a guest and the host.
//!
//! A *bus* provides the side: on the host a client of QEMU's protocol, in a guest the PCI
//! function. The use of the memory is the same for every bus: each end takes one half
//! ([`card`]), finds the other ([`port`]), and wakes it ([`wake`]).

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

/// Sizes that the memory may have: powers of two.
pub const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Where the device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceLocation {
    /// On the host: the socket of an ivshmem server, or the file of an `ivshmem-plain` device.
    Socket(PathBuf),
    /// In a guest: the only PCI function of the kind.
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

/// How to use an ivshmem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IvshmemConfig {
    /// Where it is.
    pub place: DeviceLocation,
    /// Which half is ours, 0 or 1; `None`: whichever is free.
    pub side: Option<u8>,
}

/// What a bus found.
#[derive(Clone, Debug)]
struct Attachment {
    /// The two halves of the memory.
    halves: [Arc<Region>; 2],
    /// Bytes of both.
    size: u64,
    /// Our number at the device, if it numbers its peers.
    id: Option<u32>,
    /// What our interrupts ring, in order; none where we have to look.
    vectors: Vec<Arc<EventFd>>,
}

/// Our way to the device.
trait Bus: Send {
    /// Makes progress, and says what there is or why there is nothing. The number changes with
    /// the attachment.
    fn poll(&mut self, now: Duration) -> Result<(u64, &Attachment), String>;

    /// Whether the device still has a peer with this number, if that can be known.
    fn has(&self, id: u32) -> Option<bool>;

    /// How vector `vector` of `of` of the peer `id` is rung.
    fn via(&self, id: Option<u32>, vector: u32, of: u32) -> Result<Via, String>;

    /// Descriptors whose readiness asks for a poll.
    fn events(&self) -> Vec<BorrowedFd<'_>>;

    /// What the kernel shows of the device here.
    fn device(&self) -> Option<HardwareDevice> {
        None
    }
}

/// Size of a half of `size` bytes of memory that another process can truncate.
fn check_size(size: u64) -> Result<usize, String> {
    if size.is_power_of_two() && MEMORY.contains(&size) {
        return Ok(size as usize / 2);
    }
    Err(format!("the shared memory has {size} bytes, allowed are powers of two from 1M to 1G"))
}

/// One half of the memory, mapped.
fn half_of(file: OwnedFd, side: usize, half: usize) -> Result<Arc<Region>, String> {
    let region = Region::of_guest(file, (side * half) as u64, half as u64);
    let (region, skip) = region.map_err(|e| e.to_string())?;
    // With pages larger than a half the two would be the same bytes.
    if skip != 0 || region.len() != half {
        let mib = half >> 20;
        return Err(format!(
            "the shared memory has pages of more than {mib} MiB, its half: make \
             it larger, or its pages smaller"
        ));
    }
    Ok(Arc::new(region))
}

/// The provider.
pub struct IvshmemProvider {
    bus: Box<dyn Bus>,
    side: Option<u8>,
    seed: u64,
    port: Option<(u64, Port)>,
    session: u64,
}

impl IvshmemProvider {
    /// A port at the device. `seed` is any number that differs from life to life.
    pub fn new(config: IvshmemConfig, seed: u64) -> Self {
        let bus: Box<dyn Bus> = match config.place {
            DeviceLocation::Socket(path) => Box::new(Host::new(path)),
            DeviceLocation::OnlyPci => Box::new(Pci::new(None)),
            DeviceLocation::Pci(address) => Box::new(Pci::new(Some(address))),
        };
        Self { bus, side: config.side, seed, port: None, session: 0 }
    }

    /// The port at what the bus has found.
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
        let Some((_, port)) = &mut self.port else { return HwLink::Down("no port".to_owned()) };
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

    // Goal: every allowed memory has halves that begin at a page on hosts with pages of 4, 16 and
    // 64 KiB, and nothing else is refused or let in by its size.
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
