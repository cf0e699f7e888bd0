//! Program of a package, its debug symbols, and the tree of its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::notices::Notices;
use super::{Arch, Release, output};
use crate::{Result, install, project};

/// C library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Libc {
    Gnu,
    /// musl, linked statically.
    Musl,
}

/// Paths of the stripped program and of its debug symbols.
pub(super) struct Program {
    pub(super) stripped: PathBuf,
    pub(super) symbols: PathBuf,
}

/// Tree of a package's files, below a folder that stands for `/`.
pub(super) struct Stage {
    pub(super) root: PathBuf,
    pub(super) symbols: PathBuf,
}

/// Prefix of the cross compiler's programs; empty for amd64.
fn cross(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "",
        Arch::Arm64 => "aarch64-linux-gnu-",
    }
}

/// Builds the program without paths of the build machine.
pub(super) fn program(
    release: &Release,
    arch: Arch,
    libc: Libc,
    notices: &Notices,
) -> Result<Program> {
    let end = if libc == Libc::Gnu { "gnu" } else { "musl" };
    let target = format!("{}-unknown-linux-{end}", arch.machine());
    if libc == Libc::Musl || arch == Arch::Arm64 {
        output(Command::new("rustup").args(["target", "add", &target]))?;
    }
    let root = project::root().display().to_string();
    let (sources, folder) = (notices.sources.display(), release.target.display());
    let flags = format!(
        "--remap-path-prefix={root}=/mqnet --remap-path-prefix={folder}=/target \
         --remap-path-prefix={sources}=/crates \
         -C link-arg=-Wl,--build-id=sha1"
    );
    let name = target.to_uppercase().replace('-', "_");
    let mut cargo = project::command("cargo");
    cargo.args(["build", "--locked", "-p", "mqnet", "--profile", &release.profile]);
    cargo.args(["--target", &target]);
    cargo.env(format!("CARGO_TARGET_{name}_RUSTFLAGS"), flags).env_remove("RUSTFLAGS");
    cargo.env("SOURCE_DATE_EPOCH", &release.epoch).env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_TARGET_DIR", &release.target);
    if arch == Arch::Arm64 {
        let linker = format!("{}gcc", cross(arch));
        cargo.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    }
    if !cargo.status()?.success() {
        return Err(format!("the program for {target} could not be built").into());
    }
    let built = release.target.join(&target).join(&release.profile);
    split(release, arch, &target, &built.join("mqnet"))
}

/// Separates the debug symbols from the program.
fn split(release: &Release, arch: Arch, target: &str, built: &Path) -> Result<Program> {
    let folder = release.folder(&format!("program-{target}"))?;
    let (stripped, symbols) = (folder.join("mqnet"), folder.join("mqnet.debug"));
    let objcopy = format!("{}objcopy", cross(arch));
    output(Command::new(&objcopy).arg("--only-keep-debug").arg(built).arg(&symbols))?;
    output(Command::new(&objcopy).arg("--strip-unneeded").arg(built).arg(&stripped))?;
    Ok(Program { stripped, symbols })
}

/// Build ID of a program, in hexadecimal.
pub(super) fn build_id(program: &Path) -> Result<String> {
    let text = output(Command::new("readelf").arg("-n").arg(program))?;
    let found = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    Ok(found.ok_or_else(|| format!("{}: no build ID", program.display()))?.to_owned())
}

/// Newest version of glibc that the symbols of the program need.
pub(super) fn glibc(program: &Path) -> Result<String> {
    let text = output(Command::new("readelf").args(["-W", "--version-info"]).arg(program))?;
    Ok(newest_glibc(&text).ok_or("the program uses no symbol of glibc")?)
}

fn newest_glibc(text: &str) -> Option<String> {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let numbers: Option<Vec<u32>> = rest[..end].split('.').map(|n| n.parse().ok()).collect();
        numbers
    });
    let newest = versions.max()?;
    Some(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

/// Creates the tree of a package. `texts` is a build of mqnet that runs on this machine and prints
/// the man pages and completions.
pub(super) fn stage(
    release: &Release,
    arch: Arch,
    program: &Program,
    texts: &Program,
    notices: &Notices,
) -> Result<Stage> {
    let root = release.folder(&format!("stage-{}", arch.debian()))?;
    install::files(&program.stripped, &texts.stripped, Path::new("/usr"), Some(&root))?;
    for page in fs::read_dir(root.join("usr/share/man/man1"))? {
        output(Command::new("gzip").args(["-9n"]).arg(page?.path()))?;
    }
    let doc = root.join("usr/share/doc/mqnet");
    fs::create_dir_all(&doc)?;
    let from = project::root();
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        fs::copy(from.join(file), doc.join(file))?;
    }
    output(Command::new("gzip").args(["-9n"]).arg(doc.join("CHANGELOG.md")))?;
    fs::copy(from.join("packaging/debian/copyright"), doc.join("copyright"))?;
    fs::copy(&notices.licenses, doc.join("crates.txt"))?;
    output(Command::new("gzip").args(["-9n"]).arg(doc.join("crates.txt")))?;
    settle(&root, &release.epoch)?;
    Ok(Stage { root, symbols: program.symbols.clone() })
}

/// Sets the same time for all files, and modes that do not depend on the umask.
pub(super) fn settle(root: &Path, epoch: &str) -> Result<()> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let is_program = entry.metadata()?.permissions().mode() & 0o100 != 0;
                let mode = if is_program { 0o755 } else { 0o644 };
                fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
            }
        }
    }
    let time = format!("--date=@{epoch}");
    let mut find = Command::new("find");
    find.arg(root).args(["-exec", "touch", "--no-dereference", &time, "{}", "+"]);
    output(&mut find).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: versions are compared by number, and `GLIBC_PRIVATE` is not a version.
    #[test]
    fn newest_glibc_is_found() {
        let text = "GLIBC_2.4 GLIBC_2.34) GLIBC_PRIVATE\n GLIBC_2.3.4 GLIBC_2.17\n";
        assert_eq!(newest_glibc(text).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("none"), None);
    }
}
