//! Device node of VDUSE: creation, reopening, attachment to the vDPA bus, removal.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use mqnet_sysio::vduse;
use mqnet_virtio::Features;
use mqnet_virtio::net::{CONFIG_LEN, Config, STATUS_LINK_UP};

use super::{VduseConfig, vdpa};
use crate::offer::CARD;

/// Virtio device id of a network card.
const NET: u32 = 1;
/// Largest ring size. The default of virtio-net is smaller.
const RING: u16 = 1024;
/// Offset of `status` in the config space.
const STATUS_AT: u32 = 6;

/// Features that are always offered. `CTRL_VQ` is not among them: the kernel refuses network
/// cards with a control queue, see [`probe`].
const ALWAYS: Features = CARD.or(Features::ACCESS_PLATFORM);

fn offered(config: &VduseConfig) -> Features {
    let when = |on: bool, bit| if on { bit } else { Features::default() };
    ALWAYS
        .or(when(config.packed, Features::RING_PACKED))
        .or(when(config.mac.is_some(), Features::MAC))
        .or(when(config.mtu.is_some(), Features::MTU))
}

fn space(config: &VduseConfig) -> [u8; CONFIG_LEN] {
    let mtu = config.mtu.unwrap_or(0) as u16;
    Config { mac: config.mac.unwrap_or_default(), status: 0, pairs: 1, mtu }.to_bytes()
}

/// True if this kernel accepts a network card with a control queue. Linux 6.12 and 7.3 do not,
/// which limits the card to one queue pair. Creates and removes a device for the test.
pub fn probe() -> io::Result<bool> {
    let control = vduse::open_control()?;
    let name = format!("mqnet-probe-{}", std::process::id());
    let with = Features::VERSION_1.or(Features::ACCESS_PLATFORM).or(Features::CTRL_VQ);
    let device = vduse::DeviceParameters {
        name: &name,
        device_id: NET,
        features: with.0,
        queues: 3,
        config: &[0; CONFIG_LEN],
    };
    match vduse::create(control.as_fd(), &device) {
        Ok(()) => vduse::destroy(control.as_fd(), &name).map(|()| true),
        Err(e) if e.raw_os_error() == Some(nix::libc::EINVAL) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Open device.
pub(super) struct Node {
    pub(super) device: OwnedFd,
    /// True if an earlier process created the device.
    pub(super) kept: bool,
}

/// Creates the device, or opens one that an earlier process left.
pub(super) fn open(config: &VduseConfig) -> Result<Node, String> {
    let name = &config.device;
    let control = vduse::open_control().map_err(|e| no_control(&e))?;
    let device = vduse::DeviceParameters {
        name,
        device_id: NET,
        features: offered(config).0,
        queues: 2,
        config: &space(config),
    };
    let kept = match vduse::create(control.as_fd(), &device) {
        Ok(()) => false,
        Err(e) if e.raw_os_error() == Some(nix::libc::EEXIST) => true,
        Err(e) => return Err(no_device(name, &e)),
    };
    open_made(name).map(|device| Node { device, kept }).inspect_err(|_| {
        if !kept {
            // Remove the device: a device that no process has open would be left unnoticed.
            let _ = vduse::destroy(control.as_fd(), name);
        }
    })
}

fn open_made(name: &str) -> Result<OwnedFd, String> {
    let device = vduse::open_device(name).map_err(|e| busy(name, &e))?;
    for queue in 0..2 {
        let set = vduse::setup_queue(device.as_fd(), queue, RING);
        set.map_err(|e| format!("queue {queue} of /dev/vduse/{name}: {e}"))?;
    }
    Ok(device)
}

fn no_control(e: &io::Error) -> String {
    let help = match e.kind() {
        io::ErrorKind::NotFound => {
            "modprobe vduse (CONFIG_VDPA_USER; network devices work from Linux 6.12 on)"
        }
        _ => "run as root, or let this user open it",
    };
    format!("{}: {e}: {help}", vduse::CONTROL)
}

fn no_device(name: &str, e: &io::Error) -> String {
    let help = match e.raw_os_error() {
        Some(nix::libc::EPERM) => {
            ": a network device needs CAP_NET_ADMIN in the initial user namespace"
        }
        Some(nix::libc::EINVAL) => ": this kernel accepts no network device from user space",
        _ => "",
    };
    format!("making /dev/vduse/{name}: {e}{help}")
}

fn busy(name: &str, e: &io::Error) -> String {
    let help = match e.raw_os_error() {
        Some(nix::libc::EBUSY) => ": in use by another process",
        Some(nix::libc::EACCES) => ": it belongs to root unless a udev rule changes that",
        _ => "",
    };
    format!("/dev/vduse/{name}: {e}{help}")
}

/// Attaches the device to the vDPA bus, unless it is attached already.
pub(super) fn attach(name: &str) -> Result<(), String> {
    if is_on_bus(name) {
        return Ok(());
    }
    vdpa::add(name).map_err(|e| {
        let help = match e.raw_os_error() {
            Some(nix::libc::EPERM) => "needs CAP_NET_ADMIN",
            Some(nix::libc::ENOENT) => "modprobe vduse; it works in the first network namespace",
            Some(nix::libc::ENODEV) => "modprobe vduse",
            Some(nix::libc::ETIMEDOUT) => "the driver did not start in time, see dmesg",
            _ => "see dmesg",
        };
        format!("vdpa dev add name {name} mgmtdev vduse: {e}: {help}")
    })
}

/// Removes the device. All its descriptors must be closed.
pub(super) fn remove(name: &str) -> Result<(), String> {
    let control = vduse::open_control().map_err(|e| no_control(&e))?;
    vduse::destroy(control.as_fd(), name).map_err(|e| format!("removing /dev/vduse/{name}: {e}"))
}

/// True if the device is on the vDPA bus.
pub(super) fn is_on_bus(name: &str) -> bool {
    bus(name).exists()
}

fn bus(name: &str) -> PathBuf {
    PathBuf::from("/sys/bus/vdpa/devices").join(name)
}

/// Netdev of this host's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Netdev {
    pub(super) name: String,
    pub(super) index: u32,
}

/// Netdev that the driver created for the device; `None` if there is none in this network
/// namespace.
pub(super) fn netdev(name: &str) -> Option<Netdev> {
    let inside = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let virtio = inside(bus(name)).find(|e| e.file_name().to_string_lossy().starts_with("virtio"));
    let net = inside(virtio?.path().join("net")).next()?;
    let index = fs::read_to_string(net.path().join("ifindex")).ok()?.trim().parse().ok()?;
    Some(Netdev { name: net.file_name().to_string_lossy().into_owned(), index })
}

/// Gives the netdev the name of the device, if that name is free; returns the netdev with its
/// resulting name.
pub(super) fn rename(name: &str, found: Netdev) -> Netdev {
    if found.name == name {
        return found;
    }
    match vdpa::rename(found.index, name) {
        Ok(()) => Netdev { name: name.to_owned(), ..found },
        Err(e) => {
            tracing::info!("vduse:{name}: the netdev stays '{}': {e}", found.name);
            found
        }
    }
}

/// Sets the link status that the driver reads.
pub(super) fn set_carrier(device: &OwnedFd, up: bool) -> io::Result<()> {
    let status = if up { STATUS_LINK_UP } else { 0 };
    vduse::set_config(device.as_fd(), STATUS_AT, &status.to_le_bytes())?;
    vduse::config_interrupt(device.as_fd()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> VduseConfig {
        let (name, device) = ("vduse:v0".to_owned(), "v0".to_owned());
        VduseConfig { name, device, mac: None, mtu: None, packed: true, persist: false }
    }

    // Goal: features depend on their options, and features that the kernel refuses are never
    // offered.
    #[test]
    fn offer_follows_options() {
        let plain = offered(&config());
        assert!(plain.has(Features::RING_PACKED.or(Features::ACCESS_PLATFORM)));
        for bit in [Features::MAC, Features::MTU, Features::CTRL_VQ, Features::MQ] {
            assert!(!plain.has(bit), "{bit}");
        }
        let full = VduseConfig { mac: Some([2; 6]), mtu: Some(9000), packed: false, ..config() };
        assert!(offered(&full).has(Features::MAC.or(Features::MTU)));
        assert!(!offered(&full).has(Features::RING_PACKED));
        assert_eq!(space(&full), [2, 2, 2, 2, 2, 2, 0, 0, 1, 0, 0x28, 0x23]);
    }

    // Goal: each system error is reported with its remedy.
    #[test]
    fn system_errors_name_remedies() {
        let error = io::Error::from_raw_os_error;
        assert!(no_control(&error(nix::libc::ENOENT)).contains("modprobe vduse"));
        assert!(no_device("v0", &error(nix::libc::EPERM)).contains("CAP_NET_ADMIN"));
        assert!(busy("v0", &error(nix::libc::EBUSY)).contains("another process"));
    }
}
