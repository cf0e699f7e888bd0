use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

/// Creates a root folder with these files of `/proc`, `/sys` and `/dev`; returns the folder's path.
fn machine(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = std::env::temp_dir().join(format!("mqnet-doctor-{name}-{}", std::process::id()));
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn level(checks: &[Check], what: &str) -> Level {
    checks.iter().find(|check| check.what == what).unwrap_or_else(|| panic!("{what}")).level
}

// Goal: on this machine every line has a purpose and a state, every line that is not ok names its
// remedy, and no temporary device remains.
#[test]
fn this_machine() {
    let devices = || std::fs::read_dir("/sys/class/net").unwrap().count();
    let before = devices();
    let checks = examine(&Root(Path::new("/")));
    assert_eq!(devices(), before);
    let names: BTreeSet<&str> = checks.iter().map(|check| check.what).collect();
    assert_eq!(names.len(), checks.len());
    for check in &checks {
        assert!(!check.found.is_empty() && !check.why.is_empty(), "{check:?}");
        assert_eq!(check.knob.is_empty(), check.level == Level::Ok, "{check:?}");
    }
    assert_eq!(level(&checks, "memfd with seals"), Level::Ok);
    assert_eq!(level(&checks, "eventfd, epoll"), Level::Ok);
    let text = text(&checks);
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
}

// Goal: on a machine without features every gap is reported without a panic, and a missing TUN is
// fatal.
#[test]
fn an_empty_machine() {
    let root = machine("empty", &[("proc/self/status", "CapEff:\tzzz\n")]);
    let checks = examine(&Root(&root));
    assert_eq!(level(&checks, "/dev/net/tun"), Level::No);
    for what in ["kernel", "AF_XDP", "VFIO", "NTB", "KVM", "huge pages", "user namespaces"] {
        assert_eq!(level(&checks, what), Level::Warn, "{what}");
    }
    assert!(is_missing_basics(&checks));
    assert!(text(&checks).ends_with("a requirement of TAPs or bridges is missing\n"));
    std::fs::remove_dir_all(root).unwrap();
}

// Goal: on a machine with all features each probe finds its feature.
#[test]
fn a_rich_machine() {
    let root = machine(
        "rich",
        &[
            ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
            ("proc/self/ns/user", ""),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/sys/kernel/io_uring_disabled", "0\n"),
            ("proc/net/protocols", "protocol  size\nXDP       1024\nTCP  2\n"),
            ("proc/self/limits", "Max open files 1024 524288 files\n"),
            ("dev/vhost-net", ""),
            ("dev/kvm", ""),
            ("dev/vduse/control", ""),
            ("dev/vfio/vfio", ""),
            ("sys/kernel/iommu_groups/0", ""),
            ("sys/bus/ntb/devices/0000:00:05.0", ""),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [never] deny\n"),
        ],
    );
    let checks = examine(&Root(&root));
    for what in [
        "kernel",
        "BPF steering",
        "user namespaces",
        "io_uring",
        "AF_XDP",
        "vhost-net",
        "VDUSE",
        "VFIO",
        "NTB",
        "KVM",
        "huge pages",
        "isolated CPUs",
        "RLIMIT_NOFILE",
    ] {
        assert_eq!(level(&checks, what), Level::Ok, "{what}");
    }
    let pages = &checks.iter().find(|check| check.what == "huge pages").unwrap().found;
    assert!(pages.contains("madvise, never for windows (echo advise > "), "{pages}");
    std::fs::remove_dir_all(root).unwrap();
}

// Goal: ivshmem devices of a guest are listed as addresses, with the state of their interrupts.
#[test]
fn a_guest_with_ivshmem() {
    let at = |file: &str| format!("sys/bus/pci/devices/{file}");
    let files = [
        (at("0000:00:03.0/vendor"), "0x1af4\n"),
        (at("0000:00:03.0/device"), "0x1000\n"),
        (at("0000:00:04.0/vendor"), "0x1af4\n"),
        (at("0000:00:04.0/device"), "0x1110\n"),
        (at("0000:00:05.0/vendor"), "0x1af4\n"),
        (at("0000:00:05.0/device"), "0x1110\n"),
        (at("0000:00:05.0/vfio-dev/vfio0/x"), ""),
    ];
    let root = machine("ivshmem", &files.each_ref().map(|(path, text)| (path.as_str(), *text)));
    let checks = examine(&Root(&root));
    assert_eq!(level(&checks, "NTB"), Level::Ok);
    let found = &checks.iter().find(|check| check.what == "NTB").unwrap().found;
    assert!(found.starts_with("ntb:ivshmem=0000:00:04.0 (no interrupts"), "{found}");
    assert!(found.ends_with("ntb:ivshmem=0000:00:05.0 (interrupts by vfio-pci)"), "{found}");
    std::fs::remove_dir_all(root).unwrap();
}

// Goal: each setting that disables a feature, an old kernel and a low limit lower the level of
// their check to a warning.
#[test]
fn knobs() {
    for (path, value, what) in [
        ("proc/sys/kernel/unprivileged_bpf_disabled", "2", "BPF steering"),
        ("proc/sys/user/max_user_namespaces", "0", "user namespaces"),
        ("proc/sys/kernel/unprivileged_userns_clone", "0", "user namespaces"),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "user namespaces"),
        ("proc/sys/kernel/io_uring_disabled", "1", "io_uring"),
        ("proc/sys/kernel/io_uring_disabled", "2", "io_uring"),
        ("proc/sys/kernel/osrelease", "4.19.0", "kernel"),
        ("proc/self/limits", "Max open files 100 100 files", "RLIMIT_NOFILE"),
    ] {
        let name = format!("knob-{}", path.replace('/', "-"));
        let root = machine(&name, &[(path, value), ("proc/self/ns/user", "")]);
        let checks = examine(&Root(&root));
        assert_eq!(level(&checks, what), Level::Warn, "{path}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
