//! Opening a TAP device and its queues.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mqnet_sysio::tap as sys;
use mqnet_sysio::{clock, namespace, poll, process};
use mqnet_wire::Layer;

use crate::netlink::Netlink;

/// The flag of a device that carries such frames, and what `ip tuntap` calls it.
fn kind(layer: Layer) -> (u32, &'static str) {
    match layer {
        Layer::Ethernet => (sys::flag::TAP, "tap"),
        Layer::Ip => (sys::flag::TUN, "tun"),
    }
}

pub(crate) fn open_clone_device() -> Result<OwnedFd, String> {
    sys::open_clone_device().map_err(|e| match e.raw_os_error() {
        Some(2) => "no /dev/net/tun: this kernel has no TUN/TAP (modprobe tun)".to_owned(),
        Some(13) => format!("/dev/net/tun: {e}: chmod 666 /dev/net/tun (udev's default)"),
        _ => format!("/dev/net/tun: {e}"),
    })
}

/// The kernel lets any program of the same user add queues to a multi-queue TAP, and would give
/// them a part of the frames of whoever has it.
fn is_free(name: &str) -> Result<(), String> {
    let there = Netlink::open().and_then(|mut netlink| netlink.link(name));
    match there.map_or(0, |device| device.queues) {
        0 => Ok(()),
        n => Err(format!("the device is in use by another program, which has {n} of its queues")),
    }
}

/// Waits until the kernel sends through a device that is up and whose carrier was just switched on.
/// It does so a moment later, and drops what is sent before. Returns false when that does not
/// happen in time.
pub fn wait_until_active(netns: Option<&Path>, device: &str, most: Duration) -> io::Result<bool> {
    let wait = || {
        let (mut netlink, begin) = (Netlink::open()?, clock::monotonic());
        while netlink.link(device)?.inactive {
            if clock::monotonic().saturating_sub(begin) > most {
                return Ok(false);
            }
            poll::pause(Duration::from_millis(1));
        }
        Ok(true)
    };
    match netns {
        None => wait(),
        Some(path) => namespace::run_in_net(path, wait)?,
    }
}

/// Creates the device or attaches to it: its name, the first queue, and the flags for more.
pub(crate) fn create(name: &str, layer: Layer) -> Result<(String, OwnedFd, u32), String> {
    is_free(name)?;
    let first = open_clone_device()?;
    let known = sys::features(first.as_fd()).map_err(|e| format!("features: {e}"))?;
    let (kind, mode) = kind(layer);
    let mut flags = kind | sys::flag::NO_PI | sys::flag::VNET_HDR | sys::flag::MULTI_QUEUE;
    flags |= known & sys::flag::BACKPRESSURE;
    let fail = |e: io::Error| match e.raw_os_error() {
        Some(1) if process::is_root() => format!("creating: {e}: CAP_NET_ADMIN is missing"),
        Some(1) => format!(
            "creating: {e}: run as root, or inside 'unshare -Urn', or make the device first with \
             'ip tuntap add dev {name} mode {mode} multi_queue user $USER'"
        ),
        Some(22) => {
            let kind = mode.to_uppercase();
            format!("queue 0: {e}: the device exists and is no multi-queue {kind} with vnet_hdr")
        }
        Some(16) => format!("queue 0: {e}: the device is in use by another program"),
        _ => format!("queue 0: {e}"),
    };
    let name = sys::attach(first.as_fd(), name, flags).map_err(fail)?;
    sys::set_vnet_header(first.as_fd()).map_err(|e| format!("vnet header: {e}"))?;
    Ok((name, first, flags))
}

/// Opens one more queue of the device with this name and index, attached. Call it in its network
/// namespace. No device is created, even if it is renamed or removed at the same time: the index of
/// a new one is in use.
pub(crate) fn one_more(name: &str, index: u32, flags: u32) -> Result<OwnedFd, String> {
    let fd = open_clone_device()?;
    sys::set_index(fd.as_fd(), index).map_err(|e| format!("one more queue: its index: {e}"))?;
    sys::attach(fd.as_fd(), name, flags).map_err(|e| match e.raw_os_error() {
        Some(7) => format!("one more queue: {e}: the kernel allows no more queues"),
        _ => format!("one more queue: {e}"),
    })?;
    sys::set_vnet_header(fd.as_fd()).map_err(|e| format!("vnet header: {e}"))?;
    Ok(fd)
}

/// Takes over queues that somebody else has attached.
pub(crate) fn adopt(
    fds: Vec<OwnedFd>,
    layer: Layer,
) -> Result<(String, Vec<OwnedFd>, u32), String> {
    let (kind, mode) = kind(layer);
    let mut device: Option<(String, u32)> = None;
    for (i, fd) in fds.iter().enumerate() {
        let this = sys::identify(fd.as_fd())
            .map_err(|e| format!("inherited descriptor {i} is not an attached TAP queue: {e}"))?;
        let want = kind | sys::flag::NO_PI | sys::flag::VNET_HDR;
        if this.1 & want != want {
            let kind = mode.to_uppercase();
            return Err(format!("inherited queue {i} lacks IFF_{kind}, IFF_NO_PI or IFF_VNET_HDR"));
        }
        if device.as_ref().is_some_and(|d| d.0 != this.0) {
            return Err(format!("inherited queue {i} belongs to another device, {}", this.0));
        }
        process::set_nonblocking(fd.as_fd()).map_err(|e| format!("inherited queue {i}: {e}"))?;
        sys::set_vnet_header(fd.as_fd()).map_err(|e| format!("vnet header: {e}"))?;
        device = Some(this);
    }
    let (name, flags) = device.ok_or("no descriptor was given")?;
    Ok((name, fds, flags))
}
