//! The kernel's own network tests and its ynl tool, with a Python that runs them: Debian's packages
//! of the kernel's source and of Python. Nothing of them is part of this project.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::Result;
use crate::apt::Apt;
use crate::cpio::Archive;
use crate::kernel::Files;
use crate::store::Store;
use crate::tools::Tools;

/// What is taken out of the kernel's source: 3 MB of 1.6 GB.
const WANTED: [&str; 4] = [
    "Documentation/netlink/specs/",
    "tools/net/ynl/pyynl/",
    "tools/testing/selftests/drivers/net/",
    "tools/testing/selftests/net/lib/",
];

/// Where it lies in a guest.
const IN_GUEST: &str = "k";

const INTERPRETER: &str = "usr/bin/python3.11";
const PYTHON: &str = "usr/lib/python3.11";
const YAML: [&str; 2] =
    ["usr/lib/python3/dist-packages/yaml", "usr/lib/python3/dist-packages/_yaml"];
/// Parts of Python that nothing here imports.
const UNUSED: [&str; 7] =
    ["__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter"];

/// The archive for guests with this kernel, from the cache or the network (175 MB, once).
pub(crate) fn archive(store: &Store, tools: &Tools, kernel: &Files) -> Result<PathBuf> {
    let release = kernel.modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = store.folder("selftests", &release, |folder| {
        let scratch = folder.join("scratch");
        let (source, python) = (scratch.join("source"), scratch.join("python"));
        for folder in [&source, &python] {
            fs::create_dir_all(folder)?;
        }
        let apt = Apt::update(store)?;
        let (package, version) = source_of(&release, &apt)?;
        apt.unpack_exactly(&[format!("{package}={version}")], &source)?;
        apt.unpack_with_dependencies(&["python3-yaml"], &python)?;
        let file = File::create(folder.join("selftests.cpio"))?;
        let mut archive = Archive::new(BufWriter::new(file));
        let packed = source.join(format!("usr/src/{package}.tar.xz"));
        let plain = scratch.join("wanted");
        take_wanted(tools, &packed, &plain)?;
        archive.tree(IN_GUEST, &plain)?;
        put_python(&mut archive, &python)?;
        archive.finish()?;
        Ok(fs::remove_dir_all(&scratch)?)
    })?;
    Ok(folder.join("selftests.cpio"))
}

/// Package and version of the source of a kernel by its release, such as `7.3.4+deb13-amd64`.
fn source_of(release: &str, apt: &Apt) -> Result<(String, String)> {
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

/// Unpacks what is wanted into `to`, without the first folder of its path.
fn take_wanted(tools: &Tools, packed: &Path, to: &Path) -> Result<()> {
    println!("guest: unpacking the kernel's tests");
    let mut command = tools.command("bin/xz");
    let mut unpack = command.arg("-dc").arg(packed).stdout(Stdio::piped()).spawn()?;
    let plain = unpack.stdout.take().ok_or("xz has no output")?;
    let mut archive = tar::Archive::new(BufReader::new(plain));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.components().skip(1).collect::<PathBuf>();
        let wanted = WANTED.iter().any(|prefix| path.starts_with(prefix));
        if wanted && entry.header().entry_type().is_file() {
            let file = to.join(&path);
            fs::create_dir_all(file.parent().unwrap_or(to))?;
            entry.unpack(&file)?;
        }
    }
    let status = unpack.wait()?;
    if status.success() { Ok(()) } else { Err(format!("xz: {status}").into()) }
}

fn put_python(archive: &mut Archive<BufWriter<File>>, root: &Path) -> Result<()> {
    let (packages, file) = (Tools::unpacked(root), root.join(INTERPRETER));
    archive.copy("bin/python3", &file)?;
    let mut libraries = packages.libraries(&file)?;
    // Modules of Python's load these.
    for module in ["libyaml-0.so.2", "libffi.so.8"] {
        libraries.push(packages.file(&format!("lib/x86_64-linux-gnu/{module}")));
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        archive.copy(&format!("lib/x86_64-linux-gnu/{name}"), &library)?;
    }
    for folder in [PYTHON, YAML[0], YAML[1]] {
        put_modules(archive, folder, &root.join(folder))?;
    }
    Ok(())
}

/// A folder of Python modules; links that lead out of it are left out.
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
