//! Checks of TAP devices with a real, temporary device.

use std::io;
use std::os::fd::AsFd;

use mqnet_sysio::namespace;
use mqnet_sysio::tap::{self, flag, offload};
use mqnet_sysio::uring;

use super::caps::{self, Caps};
use super::{Check, Root};

/// Results of the operations on a temporary device; `Unsupported` for operations that were not
/// tried.
struct Tried {
    features: u32,
    attached: io::Result<()>,
    multi_queue: io::Result<()>,
    vnet_header: io::Result<()>,
    uso: io::Result<()>,
    batches: io::Result<()>,
}

/// Opens the clone device and creates a TAP device that the kernel removes when its last descriptor
/// is closed.
fn attempt() -> io::Result<Tried> {
    let (one, two) = (tap::open_clone_device()?, tap::open_clone_device()?);
    let features = tap::features(one.as_fd())?;
    let flags = flag::TAP | flag::NO_PI | flag::VNET_HDR | flag::MULTI_QUEUE;
    let untried = || Err(io::Error::from(io::ErrorKind::Unsupported));
    let name = match tap::attach(one.as_fd(), "mqdoc%d", flags) {
        Ok(name) => name,
        Err(e) => {
            return Ok(Tried {
                features,
                attached: Err(e),
                multi_queue: untried(),
                vnet_header: untried(),
                uso: untried(),
                batches: untried(),
            });
        }
    };
    let bits = offload::CSUM | offload::TSO4 | offload::TSO6;
    Ok(Tried {
        features,
        attached: Ok(()),
        multi_queue: tap::attach(two.as_fd(), &name, flags).map(drop),
        vnet_header: tap::set_vnet_header(one.as_fd()),
        uso: tap::set_offload(one.as_fd(), bits | offload::USO4 | offload::USO6),
        batches: uring::supports(one.as_fd()),
    })
}

/// Runs `attempt` on a thread. With CAP_SYS_ADMIN the thread enters a new network namespace, so
/// that no network manager sees the device. The namespace ends with the thread.
fn attempt_aside(caps: &Caps) -> io::Result<Tried> {
    let alone = caps.has(caps::SYS_ADMIN);
    std::thread::scope(|scope| {
        let tried = scope.spawn(move || {
            if alone {
                // If the namespace cannot be entered, the device is created in the current one.
                // The kernel removes the device in both cases.
                let _ = namespace::enter_new_net();
            }
            attempt()
        });
        tried.join().unwrap_or_else(|_| Err(io::Error::other("the attempt panicked")))
    })
}

pub(super) fn checks(root: &Root<'_>, caps: &Caps) -> Vec<Check> {
    let open = Check::new("/dev/net/tun", "needed to open TAP devices").needed();
    if !root.exists("dev/net/tun") {
        return vec![open.no("missing", "modprobe tun; in a container: --device /dev/net/tun")];
    }
    match attempt_aside(caps) {
        Ok(tried) => {
            let mut checks = vec![open.ok("opens")];
            checks.extend(judge(&tried, caps));
            checks
        }
        Err(e) => vec![open.no(
            e.to_string(),
            "let this user open it: chmod 0666 /dev/net/tun, or a udev rule; in a container: \
             --device /dev/net/tun",
        )],
    }
}

fn judge(tried: &Tried, caps: &Caps) -> Vec<Check> {
    let create = Check::new("TAP creation", "a link tap:NAME creates or opens its device").needed();
    let create = match &tried.attached {
        Ok(()) => create.ok("a test device was created and removed"),
        Err(e) if !caps.has(caps::NET_ADMIN) => create.no(
            format!("{e} (no CAP_NET_ADMIN)"),
            "run as root, setcap cap_net_admin+ep mqnet, or have root create a device: ip tuntap \
             add NAME mode tap user $USER multi_queue vnet_hdr",
        ),
        Err(e) => create.no(e.to_string(), "a security module or seccomp filter forbids it"),
    };
    let has = |bit: u32| tried.features & bit != 0;
    // Without the privilege to create a device, use the features that the kernel reports.
    let works = |result: &io::Result<()>, bit| {
        if tried.attached.is_ok() { result.is_ok() } else { has(bit) }
    };
    let old = "a newer kernel";
    let needed = |what, why, works| {
        let check = Check::new(what, why).needed();
        if works { check.ok("yes") } else { check.no("the kernel refuses it", old) }
    };
    let uso = Check::new("TAP USO", "UDP crosses a link in large unsegmented pieces");
    let back =
        Check::new("IFF_BACKPRESSURE", "a full TAP stops its senders instead of dropping frames");
    vec![
        create,
        needed(
            "TAP multi-queue",
            "every channel is a queue of its own",
            works(&tried.multi_queue, flag::MULTI_QUEUE),
        ),
        needed(
            "TAP vnet_hdr",
            "large frames cross a link unsegmented, and checksums are not computed twice",
            works(&tried.vnet_header, flag::VNET_HDR),
        ),
        match (&tried.attached, &tried.uso) {
            (Ok(()), Ok(())) => uso.ok("yes"),
            (Ok(()), Err(_)) => uso.warn("the kernel refuses it", "Linux 6.2 or newer"),
            (Err(_), _) => uso.warn("not tested: no device could be created", "see TAP creation"),
        },
        batches(tried),
        match has(flag::BACKPRESSURE) {
            true => back.ok("yes"),
            false => back.warn(
                "not supported by the kernel",
                "Linux 7.3 or newer; until then a longer queue helps against bursts: \
                 ip link set DEV txqueuelen 10000",
            ),
        },
    ]
}

fn batches(tried: &Tried) -> Check {
    let why = "one system call for a burst of frames, not for each frame";
    let check = Check::new("TAP io_uring", why);
    match (&tried.attached, &tried.batches) {
        (Ok(()), Ok(())) => check.ok("yes"),
        (Err(_), _) => check.warn("not tested: no device could be created", "see TAP creation"),
        (_, Err(e)) => check.warn(
            format!("{e}: frames are written one by one"),
            "Linux 6.4 or newer; sysctl kernel.io_uring_disabled=0; in a container: a seccomp \
             profile that allows io_uring_setup, io_uring_enter and io_uring_register",
        ),
    }
}
