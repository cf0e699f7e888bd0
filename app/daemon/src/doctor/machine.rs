//! CPUs, memory, limits and directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mqnet_sysio::{affinity, process};
use mqnet_topology::{Topology, format_cpu_list};

use mqnet_undo::Left;

use super::{Check, Root};
use crate::leftovers;

/// File descriptors for 64 channels, each with two queues and a doorbell at each end, plus a
/// reserve.
const DESCRIPTORS: u64 = 512;
/// Locked memory for io_uring and AF_XDP.
const LOCKED: u64 = 64 << 20;

pub(super) fn checks(root: &Root<'_>) -> Vec<Check> {
    vec![
        cpus(),
        isolated(root),
        hugepages(root),
        descriptors(root),
        locked_memory(root),
        runtime_dir(root),
        left_behind(&if root.0 == Path::new("/") { leftovers::all() } else { Vec::new() }),
    ]
}

fn cpus() -> Check {
    let check = Check::new("CPUs", "each worker needs a core of its own");
    let Ok(allowed) = affinity::allowed_cpus() else {
        return check.warn("cannot be read", "allow sched_getaffinity in the seccomp filter");
    };
    let topology = Topology::discover(&allowed);
    let cores: BTreeSet<usize> = topology.cpus.iter().map(|cpu| cpu.core).collect();
    let nodes: BTreeSet<u32> = topology.cpus.iter().map(|cpu| cpu.node).collect();
    let found = format!(
        "{} ({}), {} cores, {} NUMA node{}",
        allowed.len(),
        format_cpu_list(&allowed),
        cores.len(),
        nodes.len(),
        if nodes.len() == 1 { "" } else { "s" }
    );
    match cores.len() {
        0 | 1 => check.warn(
            found,
            "two cores or more (cpuset of this cgroup): sender, worker and receiver share one",
        ),
        _ => check.ok(found),
    }
}

fn isolated(root: &Root<'_>) -> Check {
    let check = Check::new("isolated CPUs", "workers there are never interrupted by other tasks");
    match root.text("sys/devices/system/cpu/isolated") {
        Some(list) if !list.is_empty() => check.ok(format!("{list} (use them with --cpus {list})")),
        _ => check.ok("none: workers share their CPUs with other tasks, which mqnet supports"),
    }
}

fn hugepages(root: &Root<'_>) -> Check {
    let check = Check::new("huge pages", "fewer TLB misses; optional");
    let folder = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let reserved = root.number(&format!("{folder}/nr_hugepages")).unwrap_or(0);
    let free = root.number(&format!("{folder}/free_hugepages")).unwrap_or(0);
    let transparent = |file: &str| {
        let text = root.text(&format!("sys/kernel/mm/transparent_hugepage/{file}"));
        // The word in brackets is the active mode.
        let mode = text.and_then(|text| Some(text.split(['[', ']']).nth(1)?.to_owned()));
        mode.unwrap_or_else(|| "off".to_owned())
    };
    let (mode, shared) = (transparent("enabled"), transparent("shmem_enabled"));
    let mut found = format!("{reserved} reserved, {free} free; transparent: {mode}");
    found += &match shared.as_str() {
        "never" | "deny" => format!(
            ", {shared} for windows (echo advise > \
             /sys/kernel/mm/transparent_hugepage/shmem_enabled: faster with many channels)"
        ),
        _ => format!(", {shared} for windows"),
    };
    if reserved > 0 || ["always", "madvise"].contains(&mode.as_str()) {
        check.ok(found)
    } else {
        check.warn(found, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    }
}

/// Soft and hard limit of this name. The outer `None` means that the kernel reports no such limit,
/// an inner `None` unlimited.
fn limit(root: &Root<'_>, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let text = root.text("proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn descriptors(root: &Root<'_>) -> Check {
    let check = Check::new("RLIMIT_NOFILE", "64 channels need about 260 descriptors");
    match limit(root, "Max open files") {
        Some((_, Some(hard))) if hard < DESCRIPTORS => {
            check.warn(format!("at most {hard}"), "ulimit -Hn 65536, or LimitNOFILE=65536")
        }
        Some((_, hard)) => {
            let hard = hard.map_or("unlimited".to_owned(), |n| n.to_string());
            check.ok(format!("up to {hard} (mqnet raises its soft limit)"))
        }
        None => check.warn("cannot be read", "mount /proc"),
    }
}

fn locked_memory(root: &Root<'_>) -> Check {
    let check = Check::new("RLIMIT_MEMLOCK", "io_uring and AF_XDP (xdp:IFNAME) lock their memory");
    match limit(root, "Max locked memory") {
        Some((_, Some(hard))) if hard < LOCKED && !process::is_root() => check
            .warn(format!("at most {} KiB", hard >> 10), "ulimit -Hl, or LimitMEMLOCK=infinity"),
        Some((_, hard)) => {
            check.ok(hard.map_or("unlimited".to_owned(), |n| format!("up to {} KiB", n >> 10)))
        }
        None => check.warn("cannot be read", "mount /proc"),
    }
}

/// Candidate folders for control sockets, in order of preference.
fn runtime_paths() -> Vec<PathBuf> {
    let path = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(chosen) = path("MQNET_RUNTIME_DIR") {
        return vec![chosen];
    }
    let session = path("XDG_RUNTIME_DIR").map(|dir| dir.join("mqnet"));
    std::iter::once("/run/mqnet".into()).chain(session).collect()
}

/// Returns an error unless files can be created in `path`, or in its parent if `path` is not a
/// folder.
fn is_writable(path: &Path) -> std::io::Result<()> {
    let place = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let trial = place.join(format!(".mqnet-doctor-{}", std::process::id()));
    std::fs::File::options().write(true).create_new(true).open(&trial)?;
    std::fs::remove_file(&trial)
}

fn runtime_dir(root: &Root<'_>) -> Check {
    let check = Check::new("runtime directory", "folder of the control sockets of running links");
    let mut found = Vec::new();
    for path in runtime_paths() {
        match is_writable(&root.0.join(path.strip_prefix("/").unwrap_or(&path))) {
            Ok(()) => return check.ok(path.display().to_string()),
            Err(e) => found.push(format!("{}: {e}", path.display())),
        }
    }
    check.warn(
        found.join("; "),
        "set XDG_RUNTIME_DIR or MQNET_RUNTIME_DIR to a directory that this user may write to, or \
         RuntimeDirectory=mqnet in a unit; until then /tmp is used",
    )
}

fn left_behind(left: &[Left]) -> Check {
    let check = Check::new(
        "settings left behind",
        "a killed mqnet cannot restore the settings that it changed",
    );
    if left.is_empty() {
        return check.ok("none");
    }
    let words = |one: &Left| format!("by {}: {}", one.pid, one.what.join(", "));
    let found: Vec<String> = left.iter().map(words).collect();
    check.warn(found.join("; "), "mqnet doctor --put-back, or start any link")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: settings left by a killed process are reported with their owner and the remedy.
    #[test]
    fn leftovers_are_named() {
        assert_eq!(left_behind(&[]).knob, "");
        let left = Left { pid: "17".to_owned(), what: vec!["eth0: its queues".to_owned()] };
        let check = left_behind(&[left]);
        assert_eq!(check.found, "by 17: eth0: its queues");
        assert!(check.knob.contains("--put-back"), "{check:?}");
    }

    // Goal: limits of every form are parsed: numbers, unlimited, absent.
    #[test]
    fn limits_are_read() {
        let folder = std::env::temp_dir().join(format!("mqnet-limits-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("proc/self")).unwrap();
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            100                  200                  files\n\
                    Max locked memory         8388608              unlimited            bytes\n";
        std::fs::write(folder.join("proc/self/limits"), text).unwrap();
        let root = Root(&folder);
        assert_eq!(limit(&root, "Max open files"), Some((Some(100), Some(200))));
        assert_eq!(limit(&root, "Max locked memory"), Some((Some(8_388_608), None)));
        assert_eq!(limit(&root, "Max nice"), None);
        assert!(descriptors(&root).found.contains("200"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
