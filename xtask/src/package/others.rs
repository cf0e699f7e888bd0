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

/// Writes a tarball: the tree, a list of the tree's files, and the scripts that install and remove
/// these files. Returns its path.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mqnet_testkit::{Folder, run_command};

    use super::*;

    const UNIT: &str = "lib/systemd/system/mqnet.service";
    const DESCRIPTOR: &str = "share/qemu/vhost-user/50-mqnet-net.json";

    /// Folder like an unpacked tarball, with a small file as the program.
    fn unpack(folder: &Folder) -> PathBuf {
        let top = folder.file("unpacked");
        let packaging = project::root().join("packaging");
        let put = |from: &Path, to: &str| {
            let to = top.join(to);
            fs::create_dir_all(to.parent().expect("a folder")).expect("creating a folder");
            fs::copy(from, to).expect("copying a file");
        };
        put(&packaging.join("install.sh"), "tree/bin/mqnet");
        put(&packaging.join("systemd/mqnet.service"), &format!("tree/{UNIT}"));
        put(&packaging.join("vhost-user/50-mqnet-net.json"), &format!("tree/{DESCRIPTOR}"));
        put(&packaging.join("mqnet.toml"), "etc/mqnet/mqnet.toml");
        put(&packaging.join("README.md"), "tree/share/doc/mqnet/README.md");
        let files = ["bin/mqnet", UNIT, DESCRIPTOR, "share/doc/mqnet/README.md", ""];
        fs::write(top.join("files"), files.join("\n")).expect("writing the list");
        top
    }

    #[track_caller]
    fn run(script: &str, top: &Path, destdir: &Path) {
        let script = project::root().join("packaging").join(script);
        let script_here = top.join(script.file_name().expect("a name"));
        fs::copy(&script, &script_here).expect("copying the script");
        let mut sh = Command::new("sh");
        let output = run_command(sh.arg(script_here).arg("/opt/net").env("DESTDIR", destdir));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }

    // Rule: installed units and descriptors contain the path of the installed program. A second
    // installation keeps an edited configuration. After removal only the configuration remains.
    #[test]
    fn tarball_is_installed_and_removed() {
        let folder = Folder::create();
        let (top, destdir) = (unpack(&folder), folder.file("root"));
        let read = |file: &str| fs::read_to_string(destdir.join(file)).expect("an installed file");
        run("install.sh", &top, &destdir);
        let unit = read(&format!("opt/net/{UNIT}"));
        assert!(unit.contains("ExecStart=/opt/net/bin/mqnet daemon"), "{unit}");
        assert!(!unit.contains("/usr/bin/mqnet"), "{unit}");
        let descriptor = read(&format!("opt/net/{DESCRIPTOR}"));
        assert!(descriptor.contains("\"/opt/net/libexec/vhost-user-net\""), "{descriptor}");
        let config = "etc/mqnet/mqnet.toml";
        assert!(read(config).contains("[daemon]"));
        fs::write(destdir.join(config), "# edited\n").expect("editing the configuration");
        run("install.sh", &top, &destdir);
        assert_eq!(read(config), "# edited\n");
        run("uninstall.sh", &top, &destdir);
        let mut find = Command::new("find");
        let output = run_command(find.arg(&destdir).args(["!", "-type", "d", "-printf", "%P\n"]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{config}\n"));
        assert!(!destdir.join("opt/net/share/doc/mqnet").exists());
    }
}
