//! RPM packages and static tarballs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::build::{Stage, settle};
use super::{Arch, Release, output};
use crate::{Result, project};

pub(super) fn rpm(release: &Release, arch: Arch, stage: &Stage) -> Result<PathBuf> {
    let top = release.folder(&format!("rpm-{}", arch.debian()))?;
    let define = |name: &str, value: &str| ["--define".to_owned(), format!("{name} {value}")];
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--target", arch.machine()]);
    rpmbuild.args(define("_topdir", &top.display().to_string()));
    rpmbuild.args(define("_buildhost", "localhost"));
    rpmbuild.args(define("use_source_date_epoch_as_buildtime", "1"));
    rpmbuild.args(define("clamp_mtime_to_source_date_epoch", "1"));
    rpmbuild.args(define("mqnet_version", &release.version));
    rpmbuild.args(define("mqnet_stage", &stage.root.display().to_string()));
    rpmbuild.env("SOURCE_DATE_EPOCH", &release.epoch);
    output(rpmbuild.arg(project::root().join("packaging/rpm/mqnet.spec")))?;
    let name = format!("mqnet-{}-1.{}.rpm", release.version, arch.machine());
    let file = release.out.join(&name);
    fs::copy(top.join("RPMS").join(arch.machine()).join(&name), &file)?;
    Ok(file)
}

/// Tree, list of its files, and the scripts that install and remove them.
pub(super) fn tarball(release: &Release, arch: Arch, stage: &Stage) -> Result<PathBuf> {
    let name = format!("mqnet-{}-linux-{}-musl", release.version, arch.machine());
    let top = release.folder(&format!("tar-{}", arch.debian()))?;
    let folder = top.join(&name);
    fs::create_dir_all(&folder)?;
    output(Command::new("cp").arg("-a").arg(stage.root.join("usr")).arg(folder.join("tree")))?;
    output(Command::new("cp").arg("-a").arg(stage.root.join("etc")).arg(folder.join("etc")))?;
    let mut find = Command::new("sh");
    let list = "cd tree && find . ! -type d -printf '%P\\n' | sort > ../files";
    output(find.current_dir(&folder).args(["-c", list]))?;
    for script in ["install.sh", "uninstall.sh"] {
        fs::copy(project::root().join("packaging").join(script), folder.join(script))?;
    }
    settle(&top, &release.epoch)?;
    let file = release.out.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "-6 --threads=1").arg("-C").arg(&top);
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-cJf"]);
    output(tar.arg(&file).arg(&name))?;
    Ok(file)
}
