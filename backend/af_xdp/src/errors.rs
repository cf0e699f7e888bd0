//! Error texts: the failed step and its remedy.

use std::io;

/// Step of a takeover that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opening a socket.
    Socket,
    /// Allocating the frames of all sockets, in MiB.
    Memory(usize),
    /// A ring of a socket.
    Ring,
    /// Binding a socket to a queue.
    Bind {
        /// Index of the queue.
        queue: u32,
        /// True if zero copy is required.
        zero_copy: bool,
    },
    /// Loading the map and the program.
    Program,
    /// Attaching the program to the interface.
    Attach {
        /// True for generic mode, false for native mode.
        generic: bool,
        /// MTU of the interface.
        mtu: u32,
    },
    /// Disabling the address filter.
    Promiscuous,
    /// Setting the number of queues.
    Queues(u16),
}

const CAPS: &str = "run as root, or setcap cap_net_admin,cap_net_raw,cap_bpf+ep mqnet";

/// Error text of a failed step.
pub(crate) fn explain(step: Step, interface: &str, error: &io::Error) -> String {
    let code = error.raw_os_error().unwrap_or(0);
    match (step, code) {
        (Step::Socket, libc::EPERM) => {
            format!("AF_XDP sockets are not permitted (CAP_NET_RAW): {CAPS}")
        }
        (Step::Socket, libc::EAFNOSUPPORT) => {
            "this kernel has no AF_XDP sockets: it needs CONFIG_XDP_SOCKETS".to_owned()
        }
        (Step::Memory(mib), libc::ENOBUFS | libc::ENOMEM) => format!(
            "{mib} MiB for frames cannot be locked: raise RLIMIT_MEMLOCK (ulimit -l, \
             LimitMEMLOCK= of systemd), or lower ring= or queues="
        ),
        (Step::Memory(mib), _) => format!("{mib} MiB for frames: {error}"),
        (Step::Bind { queue, .. }, libc::EBUSY) => format!(
            "queue {queue} of {interface} is in use by another AF_XDP socket: end that program (ss \
             --xdp -ap shows it)"
        ),
        (Step::Bind { zero_copy: true, .. }, libc::EOPNOTSUPP | libc::EINVAL) => format!(
            "the driver of {interface} does not support zero copy here ({error}): use zerocopy=auto"
        ),
        (Step::Bind { queue, .. }, _) => format!("queue {queue} of {interface}: {error}"),
        (Step::Program, libc::EPERM) => {
            format!("an XDP program is not permitted (CAP_BPF, CAP_NET_ADMIN): {CAPS}")
        }
        (Step::Attach { .. }, libc::EPERM) => {
            format!("an XDP program at {interface} is not permitted (CAP_NET_ADMIN): {CAPS}")
        }
        (Step::Attach { .. }, libc::EBUSY | libc::EEXIST) => format!(
            "{interface} has another XDP program: end the program that attached it, or detach it \
             (ip link set dev {interface} xdp off); ip -d link show dev {interface} shows it"
        ),
        (Step::Attach { generic: false, mtu }, libc::ERANGE | libc::E2BIG) => format!(
            "the driver of {interface} has no native XDP for mtu {mtu}: lower the mtu, or use \
             mode=generic"
        ),
        (Step::Attach { generic: false, .. }, libc::ENOSPC) => format!(
            "the driver of {interface} has too few queues for native XDP (a veth needs as many RX \
             queues as its peer has TX queues): raise queues=, or use mode=generic"
        ),
        (Step::Attach { generic: false, mtu }, _) => format!(
            "the driver of {interface} refuses a native XDP program at mtu {mtu} ({error}): \
             mode=generic, a smaller mtu, or fewer queues (queues=) may help"
        ),
        (Step::Attach { generic: true, .. }, _) => {
            format!("{interface} refuses a generic XDP program: {error}")
        }
        (Step::Promiscuous, _) => {
            format!("{interface}: promiscuous mode: {error}: or use promisc=off")
        }
        (Step::Queues(queues), libc::EPERM) => {
            format!("queues={queues} of {interface} are not permitted (CAP_NET_ADMIN): {CAPS}")
        }
        (Step::Queues(queues), _) => format!(
            "queues={queues}: {interface} refuses: {error} (ethtool -l {interface} shows the most)"
        ),
        (Step::Socket, _) => format!("an AF_XDP socket: {error}"),
        (Step::Ring, _) => format!("the rings of an AF_XDP socket: {error}"),
        (Step::Program, _) => format!("the XDP program: {error}"),
    }
}

/// Parts of frames that are lost before an AF_XDP socket, with the remedy. With `has_tags`, the
/// program reads VLAN tags from the driver's metadata.
pub(crate) fn losses(
    interface: &str,
    is_veth: bool,
    strips_tags: bool,
    has_tags: bool,
) -> Vec<String> {
    let mut losses = Vec::new();
    if is_veth {
        losses.push(
            "a veth passes on checksums that its peer has not completed; at the peer: ethtool -K \
             PEER tx off"
                .to_owned(),
        );
    }
    match (is_veth, strips_tags) {
        _ if has_tags => {}
        (true, _) => losses.push(
            "a veth passes on frames without the VLAN tags that its peer stores out of band; at \
             the peer: ethtool -K PEER txvlan off tx-vlan-stag-hw-insert off"
                .to_owned(),
        ),
        (false, true) => losses.push(format!(
            "VLAN tags are stripped from received frames: ethtool -K {interface} rxvlan off"
        )),
        (false, false) => {}
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: lost VLAN tags are reported with the remedy; for a veth the remedy names its peer.
    #[test]
    fn lost_tags_name_a_remedy() {
        let veth = losses("eth7", true, true, false).join("\n");
        assert!(veth.contains("tx off") && veth.contains("PEER txvlan off"), "{veth}");
        assert!(!veth.contains("rxvlan"), "{veth}");
        assert!(losses("eth7", false, true, false)[0].contains("ethtool -K eth7 rxvlan off"));
        assert!(losses("eth7", false, false, false).is_empty());
        assert!(losses("eth7", false, true, true).is_empty());
        assert_eq!(losses("eth7", true, true, true).len(), 1);
    }

    // Goal: frequent failures are reported with their remedy.
    #[test]
    fn failures_name_a_remedy() {
        let say = |step, code| explain(step, "eth7", &io::Error::from_raw_os_error(code));
        let bind = Step::Bind { queue: 3, zero_copy: false };
        let attach = Step::Attach { generic: false, mtu: 9000 };
        for (step, code, expected) in [
            (Step::Socket, libc::EPERM, "setcap"),
            (Step::Memory(64), libc::ENOBUFS, "RLIMIT_MEMLOCK"),
            (bind, libc::EBUSY, "queue 3 of eth7 is in use by another AF_XDP socket"),
            (Step::Bind { queue: 0, zero_copy: true }, libc::EOPNOTSUPP, "zerocopy=auto"),
            (Step::Program, libc::EPERM, "CAP_BPF"),
            (attach, libc::EBUSY, "another XDP program"),
            (attach, libc::ERANGE, "no native XDP for mtu 9000"),
            (attach, libc::EOPNOTSUPP, "mode=generic"),
            (attach, libc::ENOSPC, "too few queues"),
            (Step::Queues(9), libc::EINVAL, "ethtool -l eth7"),
        ] {
            let text = say(step, code);
            assert!(text.contains(expected), "{text}");
        }
    }
}
