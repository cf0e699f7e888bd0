//! Checks of the Debian package: lintian, and a container with systemd in which the package is
//! installed, upgraded and purged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mqnet_guest::{Store, debian_mirror};

use super::build::Stage;
use super::{Arch, Release, deb, output};
use crate::{Result, project};

/// Packages of the container in addition to Debian's minimal system.
const INCLUDED: &str =
    "systemd,systemd-sysv,dbus,iproute2,iputils-ping,init-system-helpers,libgcc-s1";
const SUITE: &str = "bookworm";
const SERVICE: &str = "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\n\
    Environment=OLD=/packages/old.deb NEW=/packages/new.deb\n\
    ExecStart=/bin/bash -c 'bash /packages/check.sh > /packages/result 2>&1; \
    systemctl poweroff --force'\n";
/// Time limit of the check in the container, in seconds.
const LIMIT: &str = "300";

/// Checks the amd64 .deb of this run. The upgrade is to a copy of the package with a newer version.
pub(super) fn deb(release: &Release) -> Result<()> {
    let old = release.out.join(format!("mqnet_{}_amd64.deb", release.version));
    if !old.exists() {
        return Err("--check needs the amd64 .deb".into());
    }
    let mut lintian = Command::new("lintian");
    let text = output(lintian.args(["--fail-on", "error", "--allow-root"]).arg(&old))?;
    print!("lintian: no errors\n{text}");
    let stage = Stage {
        root: release.out.join(".work/stage-amd64"),
        symbols: release.out.join(".work/program-x86_64-unknown-linux-gnu/mqnet.debug"),
    };
    let newer = format!("{}+check", release.version);
    let new = deb::write(release, Arch::Amd64, &stage, &newer)?;
    let result = in_container(release, &old, &new[0])?;
    print!("{result}");
    for file in new {
        fs::remove_file(file)?;
    }
    match result.trim_end().ends_with("PASSED") {
        true => Ok(()),
        false => Err("the check of the package failed in the container (see above)".into()),
    }
}

/// Path of the archive of Debian's minimal system with systemd; created in the cache if it is
/// missing.
fn system() -> Result<PathBuf> {
    let store = Store::in_cache("package")?;
    let archive = store.path(&format!("{SUITE}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    println!("package: installing a Debian system for the check");
    let folder = store.path(SUITE);
    // An interrupted run may have left the folder.
    let _ = fs::remove_dir_all(&folder);
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={INCLUDED}"), SUITE]);
    output(debootstrap.arg(&folder).arg(debian_mirror()))?;
    let _ = fs::remove_dir_all(folder.join("var/cache/apt"));
    let draft = store.path(&format!("{SUITE}.tar.new"));
    output(Command::new("tar").arg("-C").arg(&folder).arg("-cf").arg(&draft).arg("."))?;
    fs::rename(&draft, &archive)?;
    fs::remove_dir_all(&folder)?;
    Ok(archive)
}

/// Runs the check in a new container and returns its output.
fn in_container(release: &Release, old: &Path, new: &Path) -> Result<String> {
    let root = release.folder("container")?;
    output(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(system()?))?;
    let packages = root.join("packages");
    fs::create_dir_all(&packages)?;
    fs::copy(old, packages.join("old.deb"))?;
    fs::copy(new, packages.join("new.deb"))?;
    let script = project::root().join("packaging/debian/check.sh");
    fs::copy(script, packages.join("check.sh"))?;
    let units = root.join("etc/systemd/system");
    fs::write(units.join("check.service"), SERVICE)?;
    let wants = units.join("graphical.target.wants");
    fs::create_dir_all(&wants)?;
    std::os::unix::fs::symlink("../check.service", wants.join("check.service"))?;
    let mut nspawn = Command::new("timeout");
    nspawn.args([LIMIT, "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"]);
    nspawn.args(["--private-network", "--capability=all", "--bind=/dev/net/tun"]);
    nspawn.args(["--system-call-filter=bpf io_uring_setup io_uring_enter io_uring_register"]);
    nspawn.arg("--console=pipe").arg("--directory").arg(&root);
    let console = nspawn.output().map_err(|e| format!("systemd-nspawn: {e}"))?;
    let result = fs::read_to_string(packages.join("result"));
    result.map_err(|e| {
        let text = String::from_utf8_lossy(&console.stdout).into_owned();
        let errors = String::from_utf8_lossy(&console.stderr).into_owned();
        format!("the container left no result: {e}\n{text}{errors}").into()
    })
}
