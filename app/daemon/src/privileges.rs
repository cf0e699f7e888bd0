//! Privileges of a process that runs links: the seccomp filter, and the capabilities of the control
//! thread. Workers and threads that serve peers have no capabilities. The server keeps only
//! `CAP_NET_BIND_SERVICE`, and only with a metrics address.

use std::collections::BTreeSet;
use std::io;

use mqnet_address::Endpoint;
use mqnet_command::Failure;
use mqnet_sysio::process::{self, Capability};
use mqnet_sysio::seccomp;

use crate::args::SandboxArgs;

/// Capabilities needed at exit to delete sockets that belong to other users or are in other users'
/// folders.
const SOCKETS: [Capability; 3] =
    [Capability::Chown, Capability::DacOverride, Capability::FileOwner];

/// Capabilities needed to change a TAP device's queues, MTU and addresses, to load the steering
/// program, and to enter the network namespace.
const TAP: [Capability; 4] =
    [Capability::NetAdmin, Capability::Bpf, Capability::SysAdmin, Capability::SysChroot];

/// Capabilities of [`TAP`], and the capabilities for raw sockets and locked memory.
const AF_XDP: [Capability; 6] = [
    Capability::NetAdmin,
    Capability::Bpf,
    Capability::SysAdmin,
    Capability::SysChroot,
    Capability::NetRaw,
    Capability::IpcLock,
];

/// Capabilities for the management of vDPA devices.
const VDUSE: [Capability; 3] = [Capability::NetAdmin, Capability::Bpf, Capability::DacOverride];

/// Capabilities for the configuration space and the memory of a PCI function.
const PCI: [Capability; 3] = [Capability::SysAdmin, Capability::SysRawIo, Capability::DacOverride];

/// Adds the capabilities that an open endpoint needs: to be changed, closed, and opened again after
/// a loss.
fn of_endpoint(end: &Endpoint, keep: &mut BTreeSet<Capability>) {
    match end {
        Endpoint::Tap(_) => keep.extend(TAP),
        Endpoint::AfXdp(_) => keep.extend(AF_XDP),
        Endpoint::Vduse(_) => keep.extend(VDUSE),
        Endpoint::Ivshmem(end) if end.is_pci() => keep.extend(PCI),
        Endpoint::Ivshmem(_)
        | Endpoint::Ntb(_)
        | Endpoint::NtbVfioUser(_)
        | Endpoint::VhostUser(_)
        | Endpoint::VirtioUser(_) => keep.extend(SOCKETS),
        Endpoint::Group(group) => group.members.iter().for_each(|end| of_endpoint(end, keep)),
        Endpoint::Null => {}
    }
}

/// Reduces the capabilities of the calling thread to those that these endpoints and a control
/// socket need.
pub(crate) fn keep_for_link(ends: [&Endpoint; 2]) {
    let mut keep = BTreeSet::from(SOCKETS);
    ends.into_iter().for_each(|end| of_endpoint(end, &mut keep));
    keep_only(&keep);
}

/// Reduces the capabilities of the calling thread to those that any endpoint may need.
pub(crate) fn keep_for_daemon() {
    let all = [&SOCKETS[..], &TAP, &AF_XDP, &VDUSE, &PCI];
    let mut keep: BTreeSet<Capability> = all.into_iter().flatten().copied().collect();
    // The metrics address may have a low port, and the server's thread inherits capabilities from
    // this thread.
    keep.insert(Capability::NetBindService);
    keep_only(&keep);
}

fn keep_only(keep: &BTreeSet<Capability>) {
    let keep: Vec<Capability> = keep.iter().copied().collect();
    if let Err(e) = process::drop_capabilities(&keep) {
        tracing::warn!("capabilities could not be dropped: {e}");
    }
}

/// Installs the seccomp filter, before any endpoint is opened and any thread is started. Invalid
/// input is an error; other failures are logged only.
pub(crate) fn filter_calls(sandbox: &SandboxArgs) -> Result<(), Failure> {
    if sandbox.no_seccomp {
        return Ok(());
    }
    match seccomp::restrict_process() {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Err(Failure::BadInput(e.to_string())),
        Err(e) => {
            tracing::warn!("no seccomp filter: {e}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Restricts the process that receives descriptors: no capabilities, and the seccomp filter of a
/// thread unless the parent runs without one.
pub(crate) fn restrict_receiver(sandbox: &SandboxArgs) -> io::Result<()> {
    process::drop_capabilities(&[])?;
    if sandbox.no_seccomp { Ok(()) } else { seccomp::restrict_like_thread() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a link keeps exactly the capabilities of its endpoint kinds, also inside a group.
    #[test]
    fn capabilities_follow_endpoints() {
        let of = |address: &str| {
            let mut keep = BTreeSet::new();
            of_endpoint(&mqnet_address::parse(address).unwrap(), &mut keep);
            keep
        };
        assert!(of("null:").is_empty());
        assert_eq!(of("vhost-user:/run/x"), SOCKETS.into());
        assert_eq!(of("ntb:/run/x"), SOCKETS.into());
        assert_eq!(of("ntb:ivshmem=/run/x"), SOCKETS.into());
        assert_eq!(of("ntb:ivshmem=pci"), PCI.into());
        assert_eq!(of("tap:x+tap:y"), TAP.into());
        assert_eq!(of("xdp:x"), AF_XDP.into());
        assert!(!of("tap:x").contains(&Capability::NetRaw));
    }
}
