//! Interface to the program that contains the host: the backends, and the settings of the machine.

use std::any::Any;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;

use mqnet_address::config::Policy;
use mqnet_address::{CheckedLink, Endpoint, KindDecl};
use mqnet_control_api::ApiError;
use mqnet_netdev::{Function, HardwareDevice};
use mqnet_sysio::namespace;

/// Opened function with the names of its netdev.
pub struct Opened {
    /// The function.
    pub function: Box<dyn Function>,
    /// Name of the netdev.
    pub name: String,
    /// Kernel index of the interface; `None`: the netdev is no kernel interface.
    pub ifindex: Option<u32>,
    /// Inode of the network namespace in which the name is valid; `None`: no kernel interface, or
    /// unknown.
    pub netns: Option<u64>,
}

/// Settings of the machine for one link. Dropping the value restores the original settings.
pub type Placed = Box<dyn Any + Send>;

/// Backends and machine settings, provided by the program.
pub trait Platform: Send {
    /// Opens a function. `fds` are the descriptors that the address names.
    fn open(&self, end: Endpoint, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn Error>>;

    /// Returns an error if a request may not add this link, or if its ends certainly cannot be
    /// opened.
    fn check(&self, policy: &Policy, link: &CheckedLink) -> Result<(), ApiError>;

    /// Restores settings that killed processes have left changed. Called before an end is opened.
    fn recover(&self) {}

    /// Applies the placement of channels to interrupts and transmit queues. `devices` are the
    /// hardware devices of the link's ends. `served` has CPU and NUMA node of each channel. Returns
    /// `None` if no setting was changed.
    fn place(
        &self,
        _link: &str,
        _devices: &[Vec<HardwareDevice>; 2],
        _served: &[(usize, u32)],
    ) -> Option<Placed> {
        None
    }

    /// Firmware version for `ethtool -i`.
    fn firmware(&self, _kind: &KindDecl) -> String {
        String::new()
    }
}

/// Inode of the network namespace of an end's netdev. `None` if the endpoint is no kernel
/// interface, or if the namespace does not exist. The first member represents a group.
pub fn netns_of(end: &Endpoint) -> Option<u64> {
    if let Endpoint::Group(group) = end {
        return group.members.first().and_then(netns_of);
    }
    let ours = Path::new("/proc/self/ns/net");
    let file = end.kind().is_interface.then(|| end.config().namespace().unwrap_or(ours))?;
    namespace::id_of(file).ok().map(|(_, inode)| inode)
}

/// True if the netdevs of both ends have the same name in the same namespace. False for `null`
/// endpoints, and if a name or namespace is not known yet.
pub fn is_same_netdev(a: &Endpoint, b: &Endpoint) -> bool {
    // An interface without a known namespace cannot be compared: the namespace does not exist yet.
    let is_known = |end: &Endpoint| match end {
        Endpoint::Null => false,
        // The kernel replaces a template such as `%d` in the name by a number.
        Endpoint::Tap(tap) if tap.name.contains('%') => false,
        _ => !end.kind().is_interface || netns_of(end).is_some(),
    };
    let named = |end: &Endpoint| (end.config().netdev_name(), netns_of(end));
    is_known(a) && is_known(b) && named(a) == named(b)
}
