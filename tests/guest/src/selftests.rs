//! The kernel's network tests and its ynl tool, with all programs that they need, taken from
//! Debian's packages. None of these files is part of this project.

mod helpers;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::Result;
use crate::apt::Apt;
use crate::cpio::Archive;
use crate::kernel::Files;
use crate::modules;
use crate::store::Store;
use crate::tools::Tools;

/// Prefixes of the files that are extracted from the kernel's source: 5 MB of 1.6 GB.
const WANTED: [&str; 7] = [
    "Documentation/netlink/specs/",
    "tools/net/ynl/pyynl/",
    "tools/testing/selftests/drivers/net/",
    "tools/testing/selftests/kselftest.h",
    "tools/testing/selftests/net/forwarding/",
    "tools/testing/selftests/net/lib/",
    "tools/testing/selftests/net/lib.sh",
];

/// Packages with programs that the tests run, and with the compiler for their helpers. Packages
/// with a suite come from the backports, because a test needs a newer version.
const PACKAGES: [&str; 19] = [
    "bpftool/bookworm-backports",
    "clang-14",
    "coreutils",
    "gawk",
    "grep",
    "iproute2/bookworm-backports",
    "iputils-arping",
    "jq",
    "libbpf-dev/bookworm-backports",
    "libteam-utils",
    "ncat",
    "netsniff-ng",
    "procps",
    "python3-yaml",
    "sed",
    "smcroute",
    "socat/bookworm-backports",
    "tcpdump",
    "traceroute",
];

/// Programs that are installed in [`BIN`], each with its path in the packages. They hide the
/// applets of busybox.
const PROGRAMS: [(&str, &str); 42] = [
    ("arping", "bin/arping"),
    ("awk", "bin/gawk"),
    ("basename", "bin/basename"),
    ("bpftool", "sbin/bpftool"),
    ("bridge", "sbin/bridge"),
    ("cat", "bin/cat"),
    ("cut", "bin/cut"),
    ("date", "bin/date"),
    ("dcb", "sbin/dcb"),
    ("devlink", "sbin/devlink"),
    ("dirname", "bin/dirname"),
    ("grep", "bin/grep"),
    ("head", "bin/head"),
    ("ip", "bin/ip"),
    ("jq", "bin/jq"),
    ("mausezahn", "sbin/mausezahn"),
    ("mktemp", "bin/mktemp"),
    ("ncat", "bin/ncat"),
    ("od", "bin/od"),
    ("pgrep", "bin/pgrep"),
    ("pkill", "bin/pgrep"),
    ("readlink", "bin/readlink"),
    ("realpath", "bin/realpath"),
    ("rm", "bin/rm"),
    ("sed", "bin/sed"),
    ("seq", "bin/seq"),
    ("sleep", "bin/sleep"),
    ("smcroutectl", "sbin/smcroutectl"),
    ("smcrouted", "sbin/smcrouted"),
    ("socat", "bin/socat"),
    ("sort", "bin/sort"),
    ("stat", "bin/stat"),
    ("sysctl", "sbin/sysctl"),
    ("tac", "bin/tac"),
    ("tail", "bin/tail"),
    ("tc", "sbin/tc"),
    ("tcpdump", "bin/tcpdump"),
    ("teamd", "bin/teamd"),
    ("teamdctl", "bin/teamdctl"),
    ("timeout", "bin/timeout"),
    ("tr", "bin/tr"),
    ("traceroute6", "bin/traceroute.db"),
];

/// Kernel modules for the tests, in addition to those of every guest.
const MODULES: [&str; 46] = [
    "8021q",
    "act_csum",
    "act_ct",
    "act_gate",
    "act_mpls",
    "act_pedit",
    "act_sample",
    "act_skbmod",
    "act_tunnel_key",
    "act_vlan",
    "bonding",
    "cls_basic",
    "cls_fw",
    "esp4",
    "esp6",
    "geneve",
    "ip6_gre",
    "ip6_tunnel",
    "ip_gre",
    "ipip",
    "macsec",
    "macvlan",
    "mpls_gso",
    "mpls_iptunnel",
    "mpls_router",
    "netconsole",
    "psample",
    "sch_cbs",
    "sch_etf",
    "sch_ets",
    "sch_gred",
    "sch_red",
    "sch_sfq",
    "sch_taprio",
    "sit",
    "team",
    "team_mode_activebackup",
    "team_mode_broadcast",
    "team_mode_loadbalance",
    "team_mode_random",
    "team_mode_roundrobin",
    "tls",
    "tunnel4",
    "vrf",
    "vxlan",
    "xfrm_user",
];

/// Folder of the tests in a guest.
const IN_GUEST: &str = "k";

/// Folder of programs for these tests only; other tests use the guest's programs.
const BIN: &str = "k/bin";
/// Packages of Debian 13, because ethtool of Debian 12 does not print RSS as JSON. The C library
/// belongs to this ethtool.
const NEWER: [&str; 2] = ["ethtool", "libc6"];
const NEWER_SUITE: &str = "trixie";
const NEWER_FILES: [(&str, &str); 3] = [
    ("ethtool", "sbin/ethtool"),
    ("ld.so", "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
    ("libc.so.6", "lib/x86_64-linux-gnu/libc.so.6"),
];
const NEWER_ETHTOOL: &str = "#!/bin/bash\nexec /k/newer/ld.so --library-path \
                             /k/newer:/lib/x86_64-linux-gnu /k/newer/ethtool \"$@\"\n";

const INTERPRETER: &str = "bin/python3.11";
const PYTHON: &str = "usr/lib/python3.11";
const YAML: [&str; 2] =
    ["usr/lib/python3/dist-packages/yaml", "usr/lib/python3/dist-packages/_yaml"];
/// Unused parts of Python.
const UNUSED: [&str; 7] =
    ["__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter"];

/// Path of the archive for guests with this kernel; created in the cache if it is missing.
pub(crate) fn archive(store: &Store, tools: &Tools, kernel: &Files) -> Result<PathBuf> {
    let release = kernel.modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = |list: &[&str]| list.join(" ");
    let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
    let lists = [words(&WANTED), words(&PACKAGES), words(&names), words(&MODULES)].join("\n");
    let made_of = format!("{release}\n{lists}\n{}\n{BIN}", words(&modules::WANTED));
    let folder = store.folder("selftests", &made_of, |folder| {
        let scratch = folder.join("scratch");
        let [source, debian, newer] = ["source", "debian", "newer"].map(|name| scratch.join(name));
        for folder in [&source, &debian, &newer] {
            fs::create_dir_all(folder)?;
        }
        let apt = Apt::update(store)?;
        let (package, version) = source_of(&release, &apt)?;
        apt.unpack_exactly(&[format!("{package}={version}")], &source)?;
        apt.unpack_with_dependencies(&PACKAGES, &debian)?;
        // The headers of the kernel under test replace those of Debian 12.
        apt.unpack_exactly(&[format!("linux-libc-dev={version}")], &debian)?;
        apt.unpack_exactly(&of_suite(&apt, &NEWER, NEWER_SUITE)?, &newer)?;
        let plain = scratch.join("wanted");
        println!("guest: unpacking the kernel's tests");
        take(tools, &source.join(format!("usr/src/{package}.tar.xz")), &WANTED, &plain)?;
        helpers::compile(&Tools::unpacked(&debian), &plain)?;
        let wanted = [&modules::WANTED[..], &MODULES].concat();
        modules::install(tools, kernel, &wanted, &scratch)?;
        let file = File::create(folder.join("selftests.cpio"))?;
        let mut archive = Archive::new(BufWriter::new(file));
        archive.tree(IN_GUEST, &plain)?;
        archive.tree("lib/modules", &scratch.join("lib/modules"))?;
        put_programs(&mut archive, &debian)?;
        put_newer(&mut archive, &Tools::unpacked(&newer))?;
        archive.finish()?;
        Ok(fs::remove_dir_all(&scratch)?)
    })?;
    Ok(folder.join("selftests.cpio"))
}

/// Package and version of the source of a kernel. `release` is the kernel's release, such as
/// `7.3.4+deb13-amd64`.
pub(crate) fn source_of(release: &str, apt: &Apt) -> Result<(String, String)> {
    let number = release.split('+').next().unwrap_or(release);
    let series = number.rsplit_once('.').map_or(number, |(series, _)| series);
    let package = format!("linux-source-{series}");
    let versions = apt.versions(&package)?;
    let found = versions.iter().find(|(version, _)| version.starts_with(&format!("{number}-")));
    match found {
        Some((version, _)) => Ok((package, version.clone())),
        None => Err(format!("no {package} of {number}; there are {versions:?}").into()),
    }
}

/// Extracts files of the kernel's source with one of these prefixes into `to`, without the first
/// folder of their path.
pub(crate) fn take(tools: &Tools, packed: &Path, wanted: &[&str], to: &Path) -> Result<()> {
    let mut command = tools.command("bin/xz");
    let mut unpack = command.arg("-dc").arg(packed).stdout(Stdio::piped()).spawn()?;
    let plain = unpack.stdout.take().ok_or("xz has no output")?;
    let mut archive = tar::Archive::new(BufReader::new(plain));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.components().skip(1).collect::<PathBuf>();
        let is_wanted = wanted.iter().any(|prefix| path.starts_with(prefix));
        if is_wanted && entry.header().entry_type().is_file() {
            let file = to.join(&path);
            fs::create_dir_all(file.parent().unwrap_or(to))?;
            entry.unpack(&file)?;
        }
    }
    let status = unpack.wait()?;
    if status.success() { Ok(()) } else { Err(format!("xz: {status}").into()) }
}

/// Adds the programs with their libraries, and Python's modules.
fn put_programs(archive: &mut Archive<BufWriter<File>>, root: &Path) -> Result<()> {
    let packages = Tools::unpacked(root);
    let mut libraries = BTreeSet::new();
    for (name, path) in PROGRAMS {
        let file = packages.file(path);
        archive.copy(&format!("{BIN}/{name}"), &file)?;
        libraries.extend(packages.libraries(&file)?);
    }
    let python = packages.file(INTERPRETER);
    archive.copy("bin/python3", &python)?;
    libraries.extend(packages.libraries(&python)?);
    // Libraries that Python modules load.
    for module in ["libyaml-0.so.2", "libffi.so.8"] {
        libraries.insert(packages.file(&format!("lib/x86_64-linux-gnu/{module}")));
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        archive.copy(&format!("lib/x86_64-linux-gnu/{name}"), &library)?;
    }
    archive.link(&format!("{BIN}/ping6"), "/bin/ping")?;
    for folder in [PYTHON, YAML[0], YAML[1]] {
        put_modules(archive, folder, &root.join(folder))?;
    }
    Ok(())
}

fn put_newer(archive: &mut Archive<BufWriter<File>>, packages: &Tools) -> Result<()> {
    for (name, path) in NEWER_FILES {
        archive.copy(&format!("k/newer/{name}"), &packages.file(path))?;
    }
    Ok(archive.file(&format!("{BIN}/ethtool"), 0o755, NEWER_ETHTOOL.as_bytes())?)
}

/// Packages of a suite, each `name=version`.
fn of_suite(apt: &Apt, names: &[&str], suite: &str) -> Result<Vec<String>> {
    let one = |name: &&str| {
        let versions = apt.versions(name)?;
        let found = versions.iter().find(|(_, of)| of == suite);
        let (version, _) = found.ok_or_else(|| format!("no {name} in {suite}: {versions:?}"))?;
        Ok(format!("{name}={version}"))
    };
    names.iter().map(one).collect()
}

/// Adds a folder of Python modules; links to other folders are omitted.
fn put_modules(archive: &mut Archive<BufWriter<File>>, path: &str, from: &Path) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(from)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (inner, kind) = (format!("{path}/{name}"), entry.file_type()?);
        if kind.is_dir() && !UNUSED.contains(&name.as_str()) && !name.starts_with("config-") {
            put_modules(archive, &inner, &entry.path())?;
        } else if kind.is_file() {
            archive.copy(&inner, &entry.path())?;
        }
    }
    Ok(())
}
