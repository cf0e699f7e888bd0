//! Opening a TAP device and its queues.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mqnet_sysio::tap as sys;
use mqnet_sysio::{clock, namespace, poll, process};
use mqnet_wire::Layer;

use crate::location::is_elsewhere;
use crate::netlink::{LinkInfo, Netlink};

/// Flag for devices of this layer, and the mode name in `ip tuntap`.
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

/// Attached device, before its settings are changed.
pub(crate) struct Attached {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) fds: Vec<OwnedFd>,
    /// Flags for opening more queues.
    pub(crate) flags: u32,
    /// State in which the device was found; `None` if it was created here.
    pub(crate) found: Option<LinkInfo>,
}

impl Attached {
    /// True if the device is in another network namespace than the calling thread.
    pub(crate) fn is_elsewhere(&self) -> bool {
        is_elsewhere(self.fds[0].as_fd())
    }

    /// Sets the size of the `virtio_net_hdr` of each queue.
    pub(crate) fn set_header(&self) -> Result<(), String> {
        let set = |fd: &OwnedFd| sys::set_vnet_header(fd.as_fd());
        self.fds.iter().try_for_each(set).map_err(|e| format!("vnet header: {e}"))
    }
}

/// Flags for attaching to a device; `Err` if the device cannot be used. A new device is
/// multi-queue; a single-queue device gets one queue.
///
/// The kernel lets any program of the same user add queues to a multi-queue TAP and spreads frames
/// over all attached queues. A device with attached queues is therefore refused. Detached queues
/// are accepted, because they receive no frames.
fn flags_for(found: Option<&LinkInfo>, layer: Layer) -> Result<u32, String> {
    let (kind, mode) = kind(layer);
    let wanted = kind | sys::flag::NO_PI | sys::flag::VNET_HDR;
    let Some(found) = found else { return Ok(wanted | sys::flag::MULTI_QUEUE) };
    let Some(tun) = found.tun else {
        let what = mode.to_uppercase();
        return Err(format!("the interface exists and is not a {what}: choose another name"));
    };
    if tun.flags & kind == 0 {
        let (other, what) = if layer == Layer::Ip { ("TAP", "tun") } else { ("TUN", "tap") };
        return Err(format!(
            "the device exists and is a {other}: use another name, or create it with ip tuntap add \
             dev NAME mode {what}"
        ));
    }
    match tun.attached {
        0 => Ok(wanted | (tun.flags & sys::flag::MULTI_QUEUE)),
        n => Err(format!(
            "the device is in use by another program, with {n} queues attached: end it, or have it \
             pass a queue (fd=)"
        )),
    }
}

/// Waits until the kernel transmits through a device that is up and has a new carrier. Until then
/// the kernel drops frames for the device. Returns false after the time `most`.
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

/// Creates the device, or attaches to an existing one, with one queue. `Err` if the device cannot
/// be used or created.
pub(crate) fn create(name: &str, layer: Layer) -> Result<Attached, String> {
    let mut netlink = Netlink::open().map_err(|e| format!("netlink: {e}"))?;
    let found = netlink.link(name).ok();
    let mut flags = flags_for(found.as_ref(), layer)?;
    let first = open_clone_device()?;
    let known = sys::features(first.as_fd()).map_err(|e| format!("features: {e}"))?;
    let mode = kind(layer).1;
    flags |= known & sys::flag::BACKPRESSURE;
    let fail = |e: io::Error| match e.raw_os_error() {
        Some(1) if process::is_root() => format!("creating: {e}: CAP_NET_ADMIN is missing"),
        Some(1) => format!(
            "creating: {e}: run as root, or inside 'unshare -Urn', or create the device first with \
             'ip tuntap add dev {name} mode {mode} multi_queue user $USER'"
        ),
        Some(22) => {
            let kind = mode.to_uppercase();
            format!("queue 0: {e}: the device exists and is not a multi-queue {kind} with vnet_hdr")
        }
        Some(16) => format!("queue 0: {e}: the device is in use by another program"),
        _ => format!("queue 0: {e}"),
    };
    let name = sys::attach(first.as_fd(), name, flags).map_err(fail)?;
    let info = netlink.link(&name).map_err(|e| format!("reading the device: {e}"))?;
    let found = found.filter(|found| found.index == info.index);
    Ok(Attached { name, index: info.index, fds: vec![first], flags, found })
}

/// Opens and attaches one more queue of the device with this name and index. The caller must be in
/// the network namespace of the device. During a rename or removal this fails and creates no
/// device: `TUNSETIFINDEX` requests an index that is in use.
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

/// Adopts queues that another program has attached. `Err` unless all are usable queues of one
/// device in the caller's network namespace.
pub(crate) fn adopt(fds: Vec<OwnedFd>, layer: Layer) -> Result<Attached, String> {
    let mut device: Option<String> = None;
    for fd in &fds {
        let number = fd.as_raw_fd();
        let name =
            adopt_queue(fd.as_fd(), layer).map_err(|e| format!("descriptor {number}: {e}"))?;
        if device.as_ref().is_some_and(|device| *device != name) {
            return Err(format!("descriptor {number}: belongs to another device: {name}"));
        }
        device = Some(name);
    }
    let (Some(name), Some(first)) = (device, fds.first()) else {
        return Err("no descriptor was given".to_owned());
    };
    let found = Netlink::open().and_then(|mut netlink| netlink.link(&name));
    let found = match found {
        Ok(found) if !is_elsewhere(first.as_fd()) => found,
        Ok(_) => return Err(format!("{name}: is in another network namespace: {NETNS}")),
        Err(e) => return Err(format!("reading the device {name}: {e}: {NETNS}")),
    };
    // Read the flags by netlink: in those of TUNGETIFF, IFF_NO_PI and IFF_NOFILTER share one bit.
    if found.tun.is_some_and(|tun| tun.flags & sys::flag::NO_PI == 0) {
        return Err(format!(
            "{name}: puts packet information in front of each frame: open it with IFF_NO_PI"
        ));
    }
    let flags = found.tun.map_or(0, |tun| tun.flags);
    Ok(Attached { name, index: found.index, fds, flags, found: Some(found) })
}

const NETNS: &str = "netns= names the file of its network namespace";

/// Checks an inherited queue, attaches it if it is detached, and returns the name of its device.
fn adopt_queue(fd: BorrowedFd<'_>, layer: Layer) -> Result<String, String> {
    let (name, flags) = sys::identify(fd).map_err(|e| {
        format!("is not an attached queue of a TUN or TAP: {e}: TUNSETIFF attaches one")
    })?;
    let (kind, mode) = kind(layer);
    if flags & kind == 0 {
        let is = if layer == Layer::Ip { "TAP" } else { "TUN" };
        let want = mode.to_uppercase();
        return Err(format!("{name} is a {is}, not a {want}"));
    }
    if flags & sys::flag::VNET_HDR == 0 {
        return Err(format!("{name} has no virtio_net_hdr: open it with IFF_VNET_HDR"));
    }
    if flags & sys::flag::DETACHED != 0 {
        sys::set_queue(fd, true).map_err(|e| format!("attaching the queue of {name}: {e}"))?;
    }
    process::set_nonblocking(fd).map_err(|e| e.to_string())?;
    Ok(name)
}

#[cfg(test)]
mod tests;
