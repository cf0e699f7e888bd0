//! Devices as the kernel describes them, also in other network namespaces.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mqnet_netdev::HardwareDevice;
use mqnet_sysio::namespace;
use mqnet_topology::nic;

/// Cache of the properties of interfaces in other network namespaces. The key is the namespace file
/// and the interface name. A query needs a thread and a mount, which is too expensive for every
/// request.
#[derive(Debug, Default)]
pub(crate) struct ForeignInterfaces(HashMap<(PathBuf, String), Option<nic::NicInfo>>);

impl ForeignInterfaces {
    fn query(&mut self, netns: &Path, interface: &str) -> Option<nic::NicInfo> {
        let key = (netns.to_owned(), interface.to_owned());
        let read = || nic::read(Path::new("/"), interface);
        let known = self.0.entry(key);
        known.or_insert_with(|| namespace::run_in_sysfs(Some(netns), read).ok().flatten()).clone()
    }
}

/// Reads the kernel's properties of a device. `None` if the device has neither interface nor PCI
/// address, or if the kernel does not know it.
pub(crate) fn kernels(
    device: &HardwareDevice,
    elsewhere: &mut ForeignInterfaces,
) -> Option<nic::NicInfo> {
    let root = Path::new("/");
    match (&device.vectors, device.interface.as_deref(), &device.netns) {
        (Some(vectors), ..) => nic::read_pci(root, &vectors.pci),
        (None, Some(interface), Some(netns)) => elsewhere.query(netns, interface),
        (None, Some(interface), None) => nic::read(root, interface),
        (None, None, _) => None,
    }
}
