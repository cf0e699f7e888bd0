//! Debian packages of the program and of its debug symbols.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Stage, build_id, glibc, settle};
use super::{Arch, Release, output};
use crate::{Result, project};

/// Placeholder in a reserved domain, to be replaced by the maintainer of a distribution.
const MAINTAINER: &str = "The mqnet developers <maintainers@mqnet.invalid>";
/// Maintainer scripts in `packaging/debian`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Writes the packages of the program and of its debug symbols; returns their paths.
pub(super) fn write(
    release: &Release,
    arch: Arch,
    stage: &Stage,
    version: &str,
) -> Result<Vec<PathBuf>> {
    let glibc = glibc(&stage.root.join("usr/bin/mqnet"))?;
    let program = format!(
        "Section: net\nPriority: optional\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Description: multi-queue packet links between VMs, NICs and shared memory\n \
         mqnet joins two packet endpoints (VM, container, NIC, TAP, shared memory, PCIe\n \
         bridge) with many queues that can be resized under traffic, backpressure\n \
         instead of drops, NUMA-aware placement, and counters that account for every\n \
         packet.\n"
    );
    let folder = release.folder(&format!("deb-{}", arch.debian()))?;
    output(Command::new("cp").arg("-a").arg(stage.root.join(".")).arg(&folder))?;
    changelog(release, &folder, "mqnet", version)?;
    let control = folder.join("DEBIAN");
    fs::create_dir_all(&control)?;
    for script in SCRIPTS {
        fs::copy(project::root().join("packaging/debian").join(script), control.join(script))?;
    }
    fs::write(control.join("conffiles"), "/etc/mqnet/mqnet.toml\n")?;
    let package = build(release, arch, &folder, "mqnet", version, &program)?;
    Ok(vec![package, symbols(release, arch, stage, version)?])
}

fn symbols(release: &Release, arch: Arch, stage: &Stage, version: &str) -> Result<PathBuf> {
    let folder = release.folder(&format!("dbgsym-{}", arch.debian()))?;
    let id = build_id(&stage.root.join("usr/bin/mqnet"))?;
    let (first, rest) = id.split_at(2);
    let place = folder.join("usr/lib/debug/.build-id").join(first);
    fs::create_dir_all(&place)?;
    fs::copy(&stage.symbols, place.join(format!("{rest}.debug")))?;
    let doc = folder.join("usr/share/doc");
    fs::create_dir_all(&doc)?;
    std::os::unix::fs::symlink("mqnet", doc.join("mqnet-dbgsym"))?;
    fs::create_dir_all(folder.join("DEBIAN"))?;
    let fields = format!(
        "Section: debug\nPriority: optional\nDepends: mqnet (= {version})\n\
         Auto-Built-Package: debug-symbols\nBuild-Ids: {id}\n\
         Description: debug symbols for mqnet\n"
    );
    build(release, arch, &folder, "mqnet-dbgsym", version, &fields)
}

fn changelog(release: &Release, folder: &Path, package: &str, version: &str) -> Result<()> {
    let mut date = Command::new("date");
    let date = output(
        date.env("LC_ALL", "C").args(["-u", "-R", "-d"]).arg(format!("@{}", release.epoch)),
    )?;
    let file = folder.join("usr/share/doc").join(package).join("changelog");
    let text = format!(
        "{package} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n \
         -- {MAINTAINER}  {date}"
    );
    fs::write(&file, text)?;
    output(Command::new("gzip").args(["-9n"]).arg(&file)).map(drop)
}

/// Adds the control files and packs the folder; returns the path of the package.
fn build(
    release: &Release,
    arch: Arch,
    folder: &Path,
    package: &str,
    version: &str,
    fields: &str,
) -> Result<PathBuf> {
    let arch = arch.debian();
    let mut files = Command::new("sh");
    let list = "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | sort -z | \
                xargs -0r md5sum";
    let sums = output(files.current_dir(folder).args(["-c", list]))?;
    fs::write(folder.join("DEBIAN/md5sums"), sums)?;
    let size = output(Command::new("du").args(["-k", "-s", "--exclude=DEBIAN"]).arg(folder))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let mut control = format!(
        "Package: {package}\nSource: mqnet\nVersion: {version}\nArchitecture: {arch}\n\
         Maintainer: {MAINTAINER}\nInstalled-Size: {size}\n"
    );
    let _ = write!(control, "{fields}");
    fs::write(folder.join("DEBIAN/control"), control)?;
    settle(folder, &release.epoch)?;
    for script in SCRIPTS {
        let file = folder.join("DEBIAN").join(script);
        if file.exists() {
            output(Command::new("chmod").arg("755").arg(file))?;
        }
    }
    let file = release.out.join(format!("{package}_{version}_{arch}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", &release.epoch);
    // One thread, because the number of threads changes the output of xz.
    dpkg.args(["--root-owner-group", "--threads-max=1", "-Zxz", "--build"]).arg(folder).arg(&file);
    output(&mut dpkg)?;
    Ok(file)
}
