//! File system of a guest: a constant part, which is cached for each kernel, and the files of one
//! run.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::Result;
use crate::cpio::Archive;
use crate::kernel::{Files, Kernel};
use crate::modules;
use crate::store::Store;
use crate::tools::Tools;

const INIT: &str = include_str!("init.sh");

/// Programs of a guest in addition to the applets of busybox.
const PROGRAMS: [&str; 11] = [
    "bin/bash",
    "bin/kmod",
    "bin/ip",
    "bin/ss",
    "bin/ping",
    "sbin/bridge",
    "sbin/ethtool",
    "sbin/tc",
    "sbin/vdpa",
    "bin/iperf3",
    "bin/busybox",
];

const LINKS: [(&str, &str); 9] = [
    ("sbin", "bin"),
    ("usr/bin", "../bin"),
    ("usr/sbin", "../bin"),
    ("bin/sh", "bash"),
    ("bin/modprobe", "kmod"),
    ("bin/insmod", "kmod"),
    ("bin/rmmod", "kmod"),
    ("bin/lsmod", "kmod"),
    ("bin/modinfo", "kmod"),
];

/// Path of the archive with the files that all guests with this kernel share; created if it is not
/// cached.
pub(crate) fn base(store: &Store, tools: &Tools, name: Kernel, kernel: &Files) -> Result<PathBuf> {
    let version = kernel.modules.file_name().unwrap_or_default().to_string_lossy();
    let made_of = format!(
        "{version}\n{}\n{INIT}",
        [PROGRAMS.join(" "), modules::WANTED.join(" ")].join("\n")
    );
    let folder = store.folder(&format!("images/{name}"), &made_of, |folder| {
        println!("guest: building the file system for {version}");
        let tree = folder.join("tree");
        modules::install(tools, kernel, &modules::WANTED, &tree)?;
        write_base(tools, &tree, &folder.join("base.cpio"))?;
        Ok(fs::remove_dir_all(&tree)?)
    })?;
    Ok(folder.join("base.cpio"))
}

fn write_base(tools: &Tools, modules: &Path, to: &Path) -> Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(to)?));
    archive.file("init", 0o755, INIT.as_bytes())?;
    for (path, target) in LINKS {
        archive.link(path, target)?;
    }
    archive.copy("lib64/ld-linux-x86-64.so.2", &tools.loader())?;
    let mut libraries = std::collections::BTreeSet::new();
    for program in PROGRAMS {
        let file = tools.file(program);
        let name = program.rsplit('/').next().unwrap_or(program);
        archive.copy(&format!("bin/{name}"), &file)?;
        if name != "busybox" {
            libraries.extend(tools.libraries(&file)?);
        }
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        archive.copy(&format!("lib/x86_64-linux-gnu/{name}"), &library)?;
    }
    archive.tree("lib/modules", &modules.join("lib/modules"))?;
    archive.finish()?;
    Ok(())
}

/// File for one run.
#[derive(Clone, Debug)]
pub(crate) struct Extra {
    /// Path without a leading slash.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Combines the base, further archives and the files of one run into one file.
pub(crate) fn compose(
    base: &Path,
    archives: &[PathBuf],
    extras: &[Extra],
    to: &Path,
) -> Result<()> {
    fs::copy(base, to)?;
    let mut file = File::options().append(true).open(to)?;
    for archive in archives {
        io::copy(&mut File::open(archive)?, &mut file)?;
    }
    let mut archive = Archive::new(BufWriter::new(file));
    for extra in extras {
        archive.file(&extra.path, 0o755, &extra.content)?;
    }
    archive.finish()?;
    Ok(())
}
