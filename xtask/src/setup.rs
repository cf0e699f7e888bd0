//! System packages that the tests need: installed by root, otherwise listed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use mqnet_guest::Kernel;

use crate::{Result, project};

/// Debian's keys, needed on every host distribution because guests consist of Debian's packages.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Sign that a package is installed, independent of the distribution's package names.
enum Sign {
    Program(&'static str),
    PkgConfig(&'static str),
    PythonModule(&'static str),
    File(&'static str),
}

struct Package {
    /// Name of the package for apt-get.
    name: &'static str,
    sign: Sign,
    used_for: &'static str,
}

const fn program(name: &'static str, program: &'static str, used_for: &'static str) -> Package {
    Package { name, sign: Sign::Program(program), used_for }
}

const PACKAGES: [Package; 23] = [
    program("gcc", "cc", "links the programs and builds the peers of the benchmarks"),
    program("g++", "c++", "builds libFuzzer for the fuzz smoke"),
    program("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "links the programs for arm64"),
    program("iproute2", "ip", "sets up the hosts of the netns tests"),
    program("iputils-ping", "ping", "pings of the netns and guest tests"),
    program("iperf3", "iperf3", "TCP and UDP traffic of the netns tests"),
    program("zsh", "zsh", "reads its completions"),
    program("fish", "fish", "reads its completions"),
    program("ethtool", "ethtool", "checks what the kernel's tools see of a TAP"),
    program("valgrind", "valgrind", "counts instructions per frame (callgrind)"),
    program("systemd", "systemd-analyze", "checks the units of packaging/"),
    program("lintian", "lintian", "checks the Debian package"),
    program("debootstrap", "debootstrap", "makes the system in which packages are checked"),
    program("systemd-container", "systemd-nspawn", "boots that system"),
    program("clang", "clang", "compiles the XDP programs of the tests"),
    program("curl", "curl", "sends requests to a control socket"),
    program("tshark", "tshark", "reads what `mqnet capture` writes"),
    program("prometheus", "promtool", "checks the metrics"),
    Package {
        name: "python3-venv",
        sign: Sign::PythonModule("ensurepip"),
        used_for: "installs schemathesis, which tests the control interface",
    },
    Package {
        name: "debian-archive-keyring",
        sign: Sign::File(KEYRING),
        used_for: "checks the kernels and programs of guests",
    },
    program("pkg-config", "pkg-config", "finds the DPDK libraries"),
    program("dpdk-dev", "dpdk-testpmd", "peer of the virtio tests and of the benchmarks"),
    Package {
        name: "libdpdk-dev",
        sign: Sign::PkgConfig("libdpdk"),
        used_for: "rte_ring and rte_mempool, peers of the ring and pool benchmarks",
    },
];

/// Packages that only `cargo xtask bench` needs: peers of the comparison.
const PEERS: [Package; 3] = [
    program("socat", "socat", "joins TAPs, as a peer of the benchmarks"),
    program("vde2", "vde_switch", "joins TAPs, as a peer of the benchmarks"),
    Package {
        name: "openvswitch-switch-dpdk",
        sign: Sign::File("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"),
        used_for: "switches between two TAPs, as a peer of the benchmarks",
    },
];

const TUN: &str = "/dev/net/tun";
/// Mode of the TUN device as set by udev. The kernel still checks the privilege to create an
/// interface.
const TUN_MODE: u32 = 0o666;

/// Independent client of the control interface, a Python package. The installation is below the
/// build folder, so that the system is not changed.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Installs or lists missing packages. Returns all that is still missing, including the TUN device
/// and schemathesis.
pub(crate) fn run() -> Result<Vec<&'static str>> {
    let root = is_root();
    let mut missing = missing_packages();
    if root && !missing.is_empty() && Sign::Program("apt-get").is_there() {
        install(&missing)?;
        missing = missing_packages();
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.used_for);
        println!("         sudo apt-get install -y --no-install-recommends {}", package.name);
    }
    let mut still: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !tun_is_open(root)? {
        still.push(TUN);
    }
    if !schemathesis_is_there() {
        still.push(SCHEMATHESIS);
    }
    if still.is_empty() {
        println!("setup: everything that the tests need is installed");
    }
    Ok(still)
}

/// Installs missing packages out of `names`, one by one. A package that cannot be installed is
/// printed and is no error.
pub(crate) fn install_for_bench(names: &[&str]) {
    let wanted = PACKAGES.iter().chain(&PEERS).filter(|package| names.contains(&package.name));
    for package in wanted.filter(|package| !package.sign.is_there()) {
        let can = is_root() && Sign::Program("apt-get").is_there();
        if !can || install(&[package]).is_err() || !package.sign.is_there() {
            println!("missing: {} ({})", package.name, package.used_for);
        }
    }
}

fn missing_packages() -> Vec<&'static Package> {
    PACKAGES.iter().filter(|package| !package.sign.is_there()).collect()
}

fn install(missing: &[&Package]) -> Result<()> {
    for package in missing {
        println!("installing {} ({})", package.name, package.used_for);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    // Update first: the package lists of a new container are empty. A failed update is ignored,
    // because the install fails if a package cannot be found.
    apt_get(&["update"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], &names[..]].concat())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() && arguments != ["update"] {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(format!("`apt-get {}` failed: {}", arguments.join(" "), output.status).into());
    }
    Ok(())
}

/// True if schemathesis is installed; installs it if missing. The installation needs the package
/// index, but no root.
fn schemathesis_is_there() -> bool {
    let folder = project::target().join("schemathesis");
    let stamp = folder.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == SCHEMATHESIS) {
        return true;
    }
    println!("installing {SCHEMATHESIS} (an independent client of the control interface)");
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success())
    };
    let place = folder.to_string_lossy();
    let installed = run(Path::new("python3"), &["-m", "venv", "--clear", &place])
        && run(&folder.join("bin/pip"), &["install", "-q", SCHEMATHESIS])
        // The stamp is written last, so that an interrupted installation is not regarded as
        // complete.
        && std::fs::write(&stamp, SCHEMATHESIS).is_ok();
    if !installed {
        println!("missing: {SCHEMATHESIS}");
        println!("         python3 -m venv {place} && {place}/bin/pip install {SCHEMATHESIS}");
    }
    installed
}

/// Downloads the files of the guest tests, which then need no network.
pub(crate) fn guests() -> Result<()> {
    for kernel in [Kernel::V6_1, Kernel::V7_3] {
        mqnet_guest::prepare(kernel)?;
    }
    mqnet_guest::five::prepare()?;
    mqnet_guest::passt::prepare()?;
    mqnet_guest::ntb::prepare()?;
    println!("setup: guests with kernels 6.1 and 7.3, NTB drivers and passt are in the cache");
    Ok(())
}

/// True if every user may open the TUN device, as tests without root require. If `root`, a wrong
/// mode is corrected; otherwise advice is printed.
fn tun_is_open(root: bool) -> Result<bool> {
    let Ok(metadata) = std::fs::metadata(TUN) else {
        println!("missing: {TUN} (the kernel's TAP devices)");
        println!("         sudo modprobe tun");
        return Ok(false);
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & TUN_MODE == TUN_MODE {
        return Ok(true);
    }
    if !root {
        println!("missing: access to {TUN}, mode {mode:04o} (TAP devices without root)");
        println!("         sudo chmod {TUN_MODE:04o} {TUN}");
        return Ok(false);
    }
    std::fs::set_permissions(TUN, std::fs::Permissions::from_mode(TUN_MODE))?;
    println!("{TUN}: mode {mode:04o} -> {TUN_MODE:04o}, as udev sets it");
    Ok(true)
}

impl Sign {
    fn is_there(&self) -> bool {
        match self {
            Self::Program(name) => in_path(name),
            Self::File(path) => Path::new(path).is_file(),
            Self::PkgConfig(library) => Command::new("pkg-config")
                .args(["--exists", library])
                .status()
                .is_ok_and(|status| status.success()),
            Self::PythonModule(name) => Command::new("python3")
                .args(["-c", &format!("import {name}")])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        }
    }
}

/// True if a program is in PATH or in a folder of system programs, which some users' PATH lacks
/// (`ip`, `ethtool`).
fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let system = ["/usr/sbin", "/sbin"].into_iter().map(Into::into);
    folders.chain(system).any(|folder| is_executable(&folder.join(name)))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// True if the effective user is root, read from /proc.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_missing_program_is_missed() {
        assert!(Sign::Program("sh").is_there());
        assert!(!Sign::Program("mqnet-no-such-program").is_there());
        assert!(!Sign::PkgConfig("mqnet-no-such-library").is_there());
        assert!(!Sign::PythonModule("mqnet_no_such_module").is_there());
        assert!(!Sign::File("/no/such/file").is_there());
    }

    /// Programs without a package entry: those of every Debian system, of packages with several
    /// programs, and of the toolchain.
    const WITHOUT_ENTRY: [&str; 8] = [
        "mqnet-no-such-program",
        "python3",
        "setpriv",
        "sh",
        "stdbuf",
        "systemd-socket-activate",
        "tc",
        "unshare",
    ];

    fn programs_in(folder: &Path, programs: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                programs_in(&path, programs);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.split("Need::Program(\"").skip(1);
                programs.extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }

    // Rule: each program that a test needs is in a package that setup installs.
    #[test]
    fn programs_of_tests_are_installed() {
        let mut programs = BTreeSet::new();
        programs_in(&project::root().join("tests"), &mut programs);
        assert!(programs.contains("ping"));
        for program in programs {
            let has = |package: &Package| matches!(package.sign, Sign::Program(p) if p == program);
            let is_known = PACKAGES.iter().any(has) || WITHOUT_ENTRY.contains(&&*program);
            assert!(is_known, "no package in `PACKAGES` has {program}");
        }
    }

    #[test]
    fn every_package_states_its_purpose() {
        assert!(PACKAGES.iter().chain(&PEERS).all(|package| package.used_for.len() > 10));
    }
}
