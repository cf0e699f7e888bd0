//! Kernel counters and settings of a host, and advice after refused requests.

use std::fs;
use std::io;

use mqnet_sysio::tap;

use super::protocol::KernelCounters;

/// Counters of this network namespace; absent ones are 0.
pub(super) fn counters(device: &str) -> Result<KernelCounters, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let snmp = read("/proc/self/net/snmp")?;
    let dev = read("/proc/self/net/dev")?;
    Ok(KernelCounters {
        tap_dropped: tx_dropped(&dev, device).unwrap_or_default(),
        socket_full: protocol_counter(&snmp, "Udp:", "RcvbufErrors").unwrap_or_default(),
        bad_checksum: protocol_counter(&snmp, "Udp:", "InCsumErrors").unwrap_or_default(),
        retransmitted: protocol_counter(&snmp, "Tcp:", "RetransSegs").unwrap_or_default(),
    })
}

/// Value of `name` in the two lines (names, then values) that begin with `protocol`; none if either
/// is missing.
fn protocol_counter(snmp: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with(protocol));
    let column = lines.next()?.split_whitespace().position(|n| n == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

/// Value of the transmit column "drop" of a device: bytes, packets, errs and drop follow the 8
/// receive columns.
fn tx_dropped(dev: &str, device: &str) -> Option<u64> {
    let values =
        dev.lines().find_map(|l| l.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    values.split_whitespace().nth(11)?.parse().ok()
}

/// Makes the kernel of this namespace keep neighbour entries while a device has no carrier.
///
/// By default the kernel deletes the entries. If a neighbour request then fails while the link is
/// down, the next request follows after a second, although the link recovers much earlier. Kernels
/// before 5.16 lack the setting, so recovery may take that second.
pub(super) fn keep_neighbours() {
    let _ = fs::write("/proc/sys/net/ipv4/conf/all/arp_evict_nocarrier", "0");
}

/// Text with the reason why the namespaces could not be entered, and the setting that allows them.
pub(super) fn namespaces_hint(e: &io::Error) -> String {
    let knob = match e.raw_os_error() {
        // ENOSPC: the limit of namespaces is reached (or 0).
        Some(28) => "raise it: sysctl -w user.max_user_namespaces=10000 (and max_net_namespaces)",
        // EINVAL, ENOSYS.
        Some(22 | 38) => "not supported by this kernel: it needs CONFIG_USER_NS and CONFIG_NET_NS",
        _ => {
            "unprivileged user namespaces are switched off here: sysctl -w \
             kernel.unprivileged_userns_clone=1 (Debian), sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or allow unshare(2) in the \
             container's seccomp profile"
        }
    };
    format!("entering a new user and network namespace: {e}: {knob}")
}

/// Checks that this user can open the TUN/TAP device, before anything is set up.
pub(super) fn check_tun() -> Result<(), String> {
    let e = match tap::open_clone_device() {
        Ok(_) => return Ok(()),
        Err(e) => e,
    };
    let knob = match e.raw_os_error() {
        Some(2) => "this machine has no TUN/TAP: modprobe tun, or give the container the device",
        Some(1 | 13) => "chmod 666 /dev/net/tun (udev's default), as root",
        Some(6 | 19) => "modprobe tun",
        _ => "the device must be open to this user",
    };
    Err(format!("/dev/net/tun: {e}: {knob}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the counters are found by name and position in files of the kernel's format.
    #[test]
    fn counters_are_found() {
        let snmp = "Tcp: RtoMin RetransSegs InErrs\nTcp: 200 7 0\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors InCsumErrors\n\
                    Udp: 10 0 5 12 5 1\nUdpLite: InDatagrams\nUdpLite: 3\n";
        assert_eq!(protocol_counter(snmp, "Udp:", "RcvbufErrors"), Some(5));
        assert_eq!(protocol_counter(snmp, "Tcp:", "RetransSegs"), Some(7));
        assert_eq!(protocol_counter(snmp, "Udp:", "Nothing"), None);
        let dev = "Inter-|   Receive      |  Transmit\n face |bytes ...\n\
                   lo: 1 1 0 0 0 0 0 0 1 1 0 9 0 0 0 0\n\
                   demo: 100 10 0 1 0 0 0 0 200 20 0 42 0 0 0 0\n";
        assert_eq!(tx_dropped(dev, "demo"), Some(42));
        assert_eq!(tx_dropped(dev, "dem"), None);
    }

    // Goal: the text of every refusal names a setting.
    #[test]
    fn refusals_name_the_knob() {
        for (errno, words) in [(1, "unprivileged_userns_clone"), (13, "apparmor"), (28, "max_user")]
        {
            let text = namespaces_hint(&io::Error::from_raw_os_error(errno));
            assert!(text.contains(words), "{text}");
        }
    }
}
