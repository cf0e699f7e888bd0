//! Guests with the kernel's NTB drivers. They need QEMU 11 for vfio-user, and modules that Debian
//! does not build.
//!
//! The modules are built from the unmodified files of Debian's kernel source package, with that
//! kernel's headers and compiler, in a folder with Debian 13. Only the modules stay in the cache.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, run};
use crate::cpio::Archive;
use crate::kernel::Files;
use crate::selftests::{source_of, take};
use crate::store::Store;
use crate::tools::Tools;
use crate::{Kernel, Result};

/// Folder of the modules in a guest.
pub const MODULES: &str = "/ntb";

/// Packages of QEMU with `vfio-user-pci` and of its firmware.
const QEMU: [&str; 2] = ["qemu-system-x86", "seabios"];

/// Packages for building modules, except headers and compiler of the kernel.
const BUILD: [&str; 12] = [
    "base-files",
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "findutils",
    "gawk",
    "grep",
    "kmod",
    "make",
    "sed",
    "xz-utils",
];

/// Prefixes of the files that are extracted from the kernel's source.
const SOURCES: [&str; 3] = ["drivers/ntb/", "drivers/net/ntb_netdev.c", "include/linux/"];

/// Source files of the modules.
const FILES: [(&str, &str); 7] = [
    ("core.c", "drivers/ntb/core.c"),
    ("ntb_transport.c", "drivers/ntb/ntb_transport.c"),
    ("ntb_hw_epf.c", "drivers/ntb/hw/epf/ntb_hw_epf.c"),
    ("ntb_netdev.c", "drivers/net/ntb_netdev.c"),
    ("ntb_perf.c", "drivers/ntb/test/ntb_perf.c"),
    ("ntb_pingpong.c", "drivers/ntb/test/ntb_pingpong.c"),
    ("ntb_tool.c", "drivers/ntb/test/ntb_tool.c"),
];

const NAMES: [&str; 7] =
    ["ntb", "ntb_transport", "ntb_hw_epf", "ntb_netdev", "ntb_perf", "ntb_pingpong", "ntb_tool"];

const MAKEFILE: &str = "\
obj-m := ntb.o ntb_transport.o ntb_hw_epf.o ntb_netdev.o ntb_perf.o ntb_pingpong.o ntb_tool.o
ntb-y := core.o
";

/// Downloads and builds the files for guests with NTB drivers, unless they are cached.
pub fn prepare() -> Result<()> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let kernel = Kernel::V7_3.get(&store, &tools)?;
    qemu(&store)?;
    modules(&store, &tools, &kernel).map(drop)
}

/// QEMU of the backports of Debian 13; downloaded if it is not cached.
pub(crate) fn qemu(store: &Store) -> Result<Tools> {
    let root = store.folder("qemu-vfio-user", &QEMU.join(" "), |root| {
        Apt::update_trixie(store)?.unpack_with_dependencies(&QEMU, root)
    })?;
    Ok(Tools::unpacked(&root))
}

/// Archive with the modules for this kernel; built if it is not cached.
pub(crate) fn modules(store: &Store, tools: &Tools, kernel: &Files) -> Result<PathBuf> {
    let release = kernel.modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let made_of = format!("{release}\n{}\n{MAKEFILE}{MODULES}", BUILD.join(" "));
    let folder = store.folder("ntb", &made_of, |folder| {
        let root = folder.join("root");
        build(store, tools, &release, &root)?;
        let file = File::create(folder.join("modules.cpio"))?;
        let mut archive = Archive::new(BufWriter::new(file));
        for name in NAMES {
            let path = root.join(format!("build/{name}.ko"));
            archive.copy(&format!("{}/{name}.ko", MODULES.trim_start_matches('/')), &path)?;
        }
        archive.finish()?;
        Ok(fs::remove_dir_all(&root)?)
    })?;
    Ok(folder.join("modules.cpio"))
}

/// Builds the modules in `root/build`.
fn build(store: &Store, tools: &Tools, release: &str, root: &Path) -> Result<()> {
    let [source, plain] = ["source", "plain"].map(|name| root.join(name));
    let build = root.join("build");
    for folder in [&source, &build] {
        fs::create_dir_all(folder)?;
    }
    let headers = format!("linux-headers-{release}");
    {
        let apt = Apt::update_trixie(store)?;
        let (package, version) = source_of(release, &apt)?;
        apt.unpack_with_dependencies(&[&BUILD[..], &[&headers]].concat(), root)?;
        apt.unpack_exactly(&[format!("{package}={version}")], &source)?;
        let packed = source.join(format!("usr/src/{package}.tar.xz"));
        println!("guest: building the kernel's NTB drivers");
        take(tools, &packed, &SOURCES, &plain)?;
    }
    for (name, path) in FILES {
        fs::copy(plain.join(path), build.join(name)).map_err(|e| format!("{path}: {e}"))?;
    }
    fs::write(build.join("Makefile"), MAKEFILE)?;
    // Create the link that the packages' installation scripts would create; unpacking does not run
    // them.
    let awk = root.join("usr/bin/awk");
    if !awk.exists() {
        symlink("gawk", awk)?;
    }
    for folder in ["proc", "tmp", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    File::create(root.join("dev/null"))?;
    run(&mut inside(root, &["make", "-s", "-C", &format!("/usr/src/{headers}"), "M=/build"]))?;
    Ok(())
}

/// Command that runs with `root` as its root folder, in separate user, mount and PID namespaces.
fn inside(root: &Path, words: &[&str]) -> Command {
    const SCRIPT: &str = "mount -t proc proc \"$0/proc\" && mount --bind /dev/null \"$0/dev/null\" \
                          && exec chroot \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    command.arg(SCRIPT).arg(root).args(words);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command
}
