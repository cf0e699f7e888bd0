//! Features of the kernel that this process can use.

use std::os::fd::AsFd;

use mqnet_sysio::{epoll, eventfd, memory};
use mqnet_vhost_user::vduse;

use super::caps::{self, Caps};
use super::{Check, Level, Root};

/// Oldest kernel on which mqnet is tested.
const OLDEST: (u32, u32) = (5, 10);

fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn found_release(root: &Root<'_>) -> Option<(u32, u32)> {
    release(&root.text("proc/sys/kernel/osrelease")?)
}

pub(super) fn version(root: &Root<'_>) -> Check {
    let check = Check::new("kernel", "decides which features can be used");
    let text = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    match release(&text) {
        Some(version) if version >= OLDEST => check.ok(format!("Linux {text}")),
        Some(_) => check.warn(format!("Linux {text}"), "Linux 5.10 or newer"),
        None => check.warn("its version cannot be read", "mount /proc"),
    }
}

pub(super) fn checks(root: &Root<'_>, caps: &Caps) -> Vec<Check> {
    vec![
        sealed_memory(),
        eventfds(),
        steering(root, caps),
        user_namespaces(root),
        io_uring(root),
        af_xdp(root, caps),
        device(
            root,
            "vhost-net",
            "dev/vhost-net",
            "guests can use the kernel's vhost back end",
            "modprobe vhost_net, and let this user open /dev/vhost-net",
        ),
        virtio_cards(root),
        vfio(root),
        device(
            root,
            "KVM",
            "dev/kvm",
            "guests run at full speed",
            "modprobe kvm_intel or kvm_amd, and join the group of /dev/kvm; in a cloud guest: \
             nested virtualisation",
        ),
        bridges(root),
    ]
}

fn sealed_memory() -> Check {
    let check = Check::new("memfd with seals", "memory shared by two mqnet processes").needed();
    let tried = memory::memory_file("mqnet-doctor", memory::small_page(), false)
        .and_then(|fd| memory::seal_size(fd.as_fd()).map(|()| fd));
    match tried {
        Ok(fd) if memory::size_is_sealed(fd.as_fd()) => check.ok("yes"),
        Ok(_) => check.no("a seal had no effect", "Linux 3.17 or newer, without a filter on fcntl"),
        Err(e) => check.no(e.to_string(), "allow memfd_create and fcntl in the seccomp filter"),
    }
}

fn eventfds() -> Check {
    let check = Check::new("eventfd, epoll", "doorbells, and wake-up of idle workers").needed();
    match eventfd::EventFd::new().and_then(|_| epoll::Epoll::new()) {
        Ok(_) => check.ok("yes"),
        Err(e) => check.no(e.to_string(), "more descriptors (ulimit -n), or the seccomp filter"),
    }
}

fn steering(root: &Root<'_>, caps: &Caps) -> Check {
    let why = "mqnet's program selects the queue of a TAP, as set by ethtool -X";
    let check = Check::new("BPF steering", why);
    if caps.has(caps::BPF) || caps.has(caps::SYS_ADMIN) {
        return check.ok("CAP_BPF");
    }
    match root.number("proc/sys/kernel/unprivileged_bpf_disabled") {
        Some(0) => check.ok("allowed for every user"),
        Some(_) => check.warn(
            "no CAP_BPF, and kernel.unprivileged_bpf_disabled is set",
            "setcap cap_bpf,cap_net_admin+ep mqnet; without it the kernel's hash selects queues",
        ),
        None => check.warn("not reported by the kernel", "a kernel with CONFIG_BPF_SYSCALL"),
    }
}

fn user_namespaces(root: &Root<'_>) -> Check {
    let check = Check::new("user namespaces", "mqnet demo and its tests run without root");
    let is = |path: &str, value| root.number(path) == Some(value);
    if !root.exists("proc/self/ns/user") {
        check.warn("not built in", "a kernel with CONFIG_USER_NS")
    } else if is("proc/sys/user/max_user_namespaces", 0) {
        check.warn("none allowed", "sysctl user.max_user_namespaces=10000")
    } else if is("proc/sys/kernel/unprivileged_userns_clone", 0) {
        check.warn("for root only", "sysctl kernel.unprivileged_userns_clone=1")
    } else if is("proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1) {
        let knob = "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for mqnet";
        check.warn("restricted by AppArmor", knob)
    } else {
        check.ok("open")
    }
}

fn io_uring(root: &Root<'_>) -> Check {
    let check = Check::new("io_uring", "several system calls in one (see TAP io_uring)");
    match root.number("proc/sys/kernel/io_uring_disabled") {
        Some(0) => check.ok("open"),
        Some(1) => check.warn(
            "for one group only",
            "join the group kernel.io_uring_group, or sysctl kernel.io_uring_disabled=0",
        ),
        Some(_) => check.warn("switched off", "sysctl kernel.io_uring_disabled=0"),
        None if found_release(root).is_some_and(|version| version >= (5, 1)) => {
            check.ok("the kernel is new enough")
        }
        None => check.warn("the kernel is too old", "Linux 5.1 or newer"),
    }
}

fn af_xdp(root: &Root<'_>, caps: &Caps) -> Check {
    let check = Check::new("AF_XDP", "a NIC as one end of a link, xdp:IFNAME");
    let protocols = root.text("proc/net/protocols").unwrap_or_default();
    let built = protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP"));
    let allowed = caps.has(caps::NET_RAW) && (caps.has(caps::BPF) || caps.has(caps::SYS_ADMIN));
    match (built, allowed) {
        (true, true) => check.ok("yes"),
        (true, false) => check.warn(
            "available, but the privileges are missing",
            "setcap cap_net_raw,cap_bpf,cap_net_admin+ep mqnet",
        ),
        (false, _) => check.warn("not built in", "a kernel with CONFIG_XDP_SOCKETS"),
    }
}

fn device(root: &Root<'_>, what: &'static str, path: &str, why: &'static str, knob: &str) -> Check {
    let check = Check::new(what, why);
    match root.open(path) {
        Ok(()) => check.ok(format!("/{path} opens")),
        Err(e) => check.warn(format!("/{path}: {e}"), knob),
    }
}

fn virtio_cards(root: &Root<'_>) -> Check {
    let why = "vduse:NAME is a network device of this kernel, emulated in user space";
    let knob = "modprobe vduse (CONFIG_VDPA_USER), and let this user open /dev/vduse";
    let check = device(root, "VDUSE", "dev/vduse/control", why, knob);
    if check.level != Level::Ok {
        return check;
    }
    let found = check.found.clone();
    match vduse::probe() {
        Ok(true) => check.ok(format!(
            "{found}; the kernel allows a control queue, which mqnet does not support yet"
        )),
        Ok(false) => {
            check.ok(format!("{found}; one queue pair each (the kernel allows no control queue)"))
        }
        // A test's root has the control device, but this machine does not: keep the result of the
        // check.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => check,
        Err(e) => check.warn(
            format!("{found}; creating a device: {e}"),
            "a newer kernel (6.12 does), and CAP_NET_ADMIN in the initial user namespace",
        ),
    }
}

fn vfio(root: &Root<'_>) -> Check {
    let check = Check::new("VFIO", "PCI devices driven from user space");
    if !root.exists("dev/vfio/vfio") {
        return check.warn("/dev/vfio/vfio is not there", "modprobe vfio-pci");
    }
    match root.list("sys/kernel/iommu_groups").len() {
        0 => check.warn(
            "no IOMMU groups",
            "intel_iommu=on or amd_iommu=on on the kernel's command line, VT-d in the firmware",
        ),
        n => check.ok(format!("{n} IOMMU groups")),
    }
}

fn bridges(root: &Root<'_>) -> Check {
    let check =
        Check::new("NTB", "a bridge between guests (ivshmem), or hosts (PCIe: not driven yet)");
    let found = ivshmem(root);
    if !found.is_empty() {
        return check.ok(format!("ntb:ivshmem={}", found.join(", ntb:ivshmem=")));
    }
    match root.list("sys/bus/ntb/devices") {
        none if none.is_empty() => check.warn(
            "no device",
            "QEMU's ivshmem device provides one between guests; between processes none is needed",
        ),
        some => check.ok(some.join(", ")),
    }
}

/// ivshmem devices of this guest and their drivers.
fn ivshmem(root: &Root<'_>) -> Vec<String> {
    let folder = "sys/bus/pci/devices";
    let is = |address: &str, file: &str, id: &str| {
        root.text(&format!("{folder}/{address}/{file}")).is_some_and(|text| text == id)
    };
    let ours =
        |address: &String| is(address, "vendor", "0x1af4") && is(address, "device", "0x1110");
    let by_vfio = |address: &String| root.exists(&format!("{folder}/{address}/vfio-dev"));
    let all = root.list(folder).into_iter().filter(ours);
    all.map(|address| match by_vfio(&address) {
        true => format!("{address} (interrupts by vfio-pci)"),
        false => format!("{address} (no interrupts: bind it to vfio-pci)"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    // Goal: the release string of every distribution is parsed.
    #[test]
    fn releases() {
        for (text, version) in [
            ("6.1.0-18-amd64", Some((6, 1))),
            ("5.14.0-362.el9.x86_64", Some((5, 14))),
            ("7.3-rc1", Some((7, 3))),
            ("", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(super::release(text), version, "{text}");
        }
    }
}
