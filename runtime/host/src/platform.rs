//! Interface to the program around the host: the backends, and the settings of the machine.

use std::any::Any;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;

use mqnet_address::config::Policy;
use mqnet_address::{CheckedLink, Endpoint, KindDecl};
use mqnet_control_api::ApiError;
use mqnet_netdev::{Function, HardwareDevice};
use mqnet_sysio::namespace;

/// Opened function, and the names of its netdev.
pub struct Opened {
    /// The function.
    pub function: Box<dyn Function>,
    /// Name of the netdev.
    pub name: String,
    /// Its number in the kernel, if it is a device of the kernel.
    pub ifindex: Option<u32>,
    /// Inode of the network namespace in which the name is valid.
    pub netns: Option<u64>,
}

/// Settings of the machine that follow a link. They are restored on drop.
pub type Placed = Box<dyn Any + Send>;

/// The backends and the machine, as the program provides them.
pub trait Platform: Send {
    /// Opens a function. `fds` are the descriptors that its address names.
    fn open(&self, end: Endpoint, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn Error>>;

    /// Checks that a request may add this link, and that its ends can be opened, as far as that is
    /// known before they are.
    fn check(&self, policy: &Policy, link: &CheckedLink) -> Result<(), ApiError>;

    /// Restores settings that killed processes have left; called before an end is opened.
    fn recover(&self) {}

    /// Applies the placement of channels to interrupts and senders. `devices` are those of the
    /// link's ends; `served` is the CPU of each channel with its node.
    fn place(
        &self,
        _link: &str,
        _devices: &[Vec<HardwareDevice>; 2],
        _served: &[(usize, u32)],
    ) -> Option<Placed> {
        None
    }

    /// `firmware-version` of `ethtool -i`.
    fn firmware(&self, _kind: &KindDecl) -> String {
        String::new()
    }
}

/// Inode of the network namespace in which the name of an end's netdev is valid.
pub fn netns_of(end: &Endpoint) -> Option<u64> {
    if let Endpoint::Group(group) = end {
        return group.members.first().and_then(netns_of);
    }
    let ours = Path::new("/proc/self/ns/net");
    let file = end.kind().is_interface.then(|| end.config().namespace().unwrap_or(ours))?;
    namespace::id_of(file).ok().map(|(_, inode)| inode)
}

/// True when the netdevs of two ends have the same name in the same namespace.
pub fn is_same_netdev(a: &Endpoint, b: &Endpoint) -> bool {
    // The namespace of such an interface is not there yet.
    let is_known = |end: &Endpoint| match end {
        Endpoint::Null => false,
        // The kernel puts a number there.
        Endpoint::Tap(tap) if tap.name.contains('%') => false,
        _ => !end.kind().is_interface || netns_of(end).is_some(),
    };
    let named = |end: &Endpoint| (end.config().netdev_name(), netns_of(end));
    is_known(a) && is_known(b) && named(a) == named(b)
}
