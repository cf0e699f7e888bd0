//! Name and network namespace of a device.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use mqnet_sysio::namespace::{self, NetNs};
use mqnet_sysio::tap as sys;

/// Name and network namespace of a device.
pub(crate) struct Location {
    pub(crate) name: String,
    /// Network namespace of the device; `None` if it is that of the calling thread.
    pub(crate) netns: Option<NetNs>,
    /// True if the kernel reported the namespace. If false, that of the calling thread is assumed.
    pub(crate) is_certain: bool,
}

impl Location {
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let inode = |at: &Self| at.netns.as_ref().map(NetNs::inode);
        (&self.name, inode(self)) == (&other.name, inode(other))
    }
}

/// Name and network namespace of the device of a queue; `Err` if the kernel does not report the
/// name.
pub(crate) fn locate(queue: BorrowedFd<'_>) -> Result<Location, String> {
    let (name, _) = sys::identify(queue).map_err(|e| format!("its name: {e}"))?;
    match sys::namespace_of(queue).and_then(NetNs::of) {
        Ok(netns) => Ok(Location { name, netns, is_certain: true }),
        // Assume the caller's namespace: CAP_NET_ADMIN is missing in that of the device, or the
        // kernel is older than 5.2.
        Err(_) => Ok(Location { name, netns: None, is_certain: false }),
    }
}

/// True if the queue's device is in another network namespace than the calling thread. False also
/// if the kernel denies the request.
pub(crate) fn is_elsewhere(queue: BorrowedFd<'_>) -> bool {
    let there = sys::namespace_of(queue);
    there.is_ok_and(|there| namespace::is_current_net(&there).is_ok_and(|is_here| !is_here))
}

/// Opens the network namespace at `path`; `None` without a path, or if it is that of the calling
/// thread.
pub(crate) fn other_netns(path: Option<&Path>) -> Result<Option<NetNs>, String> {
    let Some(path) = path else { return Ok(None) };
    let failed = |e: io::Error| namespace::failure(path, &e);
    let netns = NetNs::open(path).map_err(failed)?;
    Ok((!netns.is_own()).then_some(netns))
}
