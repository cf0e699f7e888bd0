//! Debian packages without installation: a private apt with its own lists and preferences, and an
//! empty list of installed packages. The apt of the machine is not changed, and root is not
//! required.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::Flock;

use crate::Result;
use crate::store::Store;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Suites for guests of Debian 12. The flag is true for a suite in the archive of security updates.
const SUITES: [(&str, bool); 6] = [
    ("bookworm", false),
    ("bookworm-updates", false),
    ("bookworm-backports", false),
    ("trixie", false),
    ("trixie-backports", false),
    ("bookworm-security", true),
];

/// Preferences: QEMU from the backports, because version 7.2 crashes with MSI-X and vhost-user
/// under software emulation. Suites of Debian 13 have priority -1: apt takes a package from them
/// only if its version is requested.
const PREFERENCES: &str = "\
Package: src:qemu src:seabios
Pin: release n=bookworm-backports
Pin-Priority: 900

Package: *
Pin: release n=trixie
Pin-Priority: -1

Package: *
Pin: release n=trixie-backports
Pin-Priority: -1
";

/// Suites of Debian 13. The flag is true for a suite in the archive of security updates.
const TRIXIE_SUITES: [(&str, bool); 4] = [
    ("trixie", false),
    ("trixie-updates", false),
    ("trixie-backports", false),
    ("trixie-security", true),
];

/// Preferences of Debian 13: backports have the highest priority, because they contain QEMU with
/// vfio-user and headers of the newest kernel.
const TRIXIE_PREFERENCES: &str = "\
Package: *
Pin: release n=trixie-backports
Pin-Priority: 900

Package: *
Pin: release n=trixie*
Pin-Priority: 800
";

/// Private apt with its lists and archives in one folder; a lock excludes other programs.
pub(crate) struct Apt {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Apt {
    /// Configures apt for Debian 12 and reads the lists of the mirror.
    pub(crate) fn update(store: &Store) -> Result<Self> {
        Self::with(store, "apt", "amd64", &SUITES, PREFERENCES)
    }

    /// Configures apt for Debian 13 and reads the lists of the mirror.
    pub(crate) fn update_trixie(store: &Store) -> Result<Self> {
        Self::with(store, "apt-trixie", "amd64", &TRIXIE_SUITES, TRIXIE_PREFERENCES)
    }

    /// Configures apt for the arm64 packages of Debian 13 and reads the lists of the mirror.
    pub(crate) fn update_arm64(store: &Store) -> Result<Self> {
        Self::with(store, "apt-arm64", "arm64", &TRIXIE_SUITES, TRIXIE_PREFERENCES)
    }

    fn with(
        store: &Store,
        name: &str,
        arch: &str,
        suites: &[(&str, bool)],
        preferences: &str,
    ) -> Result<Self> {
        if !Path::new(KEYRING).exists() {
            return Err(format!("{KEYRING} is missing: install debian-archive-keyring").into());
        }
        // Lock order: first the lock of the store's folder that is built from the packages, then
        // apt's lock.
        let apt = Self { folder: store.path(name), _lock: store.lock(name)? };
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(apt.folder.join(folder))?;
        }
        let own = own_sources();
        let source = |(suite, security): &(&str, bool)| {
            let uri = mirror(&own, if *security { "/debian-security/" } else { "/debian/" });
            format!("deb [arch={arch} signed-by={KEYRING}] {uri} {suite} main\n")
        };
        fs::write(apt.folder.join("sources.list"), suites.iter().map(source).collect::<String>())?;
        fs::write(apt.folder.join("preferences"), preferences)?;
        fs::write(apt.folder.join("status"), "")?;
        fs::write(apt.folder.join("apt.conf"), apt.configuration(arch))?;
        println!("guest: reading Debian's package lists");
        apt.get(&["update", "--error-on=any"])?;
        Ok(apt)
    }

    fn configuration(&self, arch: &str) -> String {
        let here = self.folder.display();
        format!(
            "Dir::Etc::sourcelist \"{here}/sources.list\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"{here}/preferences\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::State::lists \"{here}/lists\";\n\
             Dir::State::status \"{here}/status\";\n\
             Dir::State::extended_states \"{here}/extended_states\";\n\
             Dir::Cache \"{here}\";\n\
             Dir::Log \"{here}\";\n\
             APT::Architecture \"{arch}\";\n\
             APT::Architectures \"{arch}\";\n\
             APT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n\
             Debug::NoLocking \"true\";\n"
        )
    }

    /// Unpacks packages and all their dependencies, including the C library, into `root`.
    pub(crate) fn unpack_with_dependencies(&self, names: &[&str], root: &Path) -> Result<()> {
        println!("guest: downloading {} with all they need", names.join(", "));
        self.get(&[&["install", "--download-only", "-y"], names].concat())?;
        self.unpack(&self.folder.join("archives"), root)
    }

    /// Unpacks exactly these packages, each `name=version`, or a name for the preferred version.
    pub(crate) fn unpack_exactly(&self, packages: &[String], root: &Path) -> Result<()> {
        println!("guest: downloading {}", packages.join(", "));
        let here = self.folder.join("kernel");
        fs::create_dir_all(&here)?;
        let mut command = self.command("apt-get");
        run(command.arg("download").args(packages).current_dir(&here))?;
        self.unpack(&here, root)
    }

    /// Pairs of version and suite of a package, newest version first.
    pub(crate) fn versions(&self, package: &str) -> Result<Vec<(String, String)>> {
        let text = run(self.command("apt-cache").args(["madison", package]))?;
        Ok(text.lines().filter_map(madison_line).collect())
    }

    /// Control record of one version of a package.
    pub(crate) fn record(&self, package: &str, version: &str) -> Result<String> {
        run(self.command("apt-cache").args(["show", &format!("{package}={version}")]))
    }

    fn get(&self, arguments: &[&str]) -> Result<String> {
        run(self.command("apt-get").arg("-q").args(arguments))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C.UTF-8");
        command
    }

    /// Unpacks and deletes every package file in `from`.
    fn unpack(&self, from: &Path, root: &Path) -> Result<()> {
        for entry in fs::read_dir(from)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "deb") {
                run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(root))?;
                fs::remove_file(&file)?;
            }
        }
        Ok(())
    }
}

/// URI of the Debian archive in the package sources of the host; `http://deb.debian.org/debian/` if
/// there is none.
pub fn debian_mirror() -> String {
    mirror(&own_sources(), "/debian/")
}

fn mirror(own: &str, suffix: &str) -> String {
    let found = own.split_whitespace().find(|uri| uri.ends_with(suffix));
    found.map_or_else(|| format!("http://deb.debian.org{suffix}"), str::to_owned)
}

/// URIs of the package sources of the host, one per line; empty if `apt-get` fails.
fn own_sources() -> String {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    run(&mut command).unwrap_or_default()
}

/// Version and suite from `name | version | uri suite/component arch Packages`; `None` for any
/// other line.
fn madison_line(line: &str) -> Option<(String, String)> {
    let mut columns = line.split('|').map(str::trim);
    let version = columns.nth(1)?.to_owned();
    let suite = columns.next()?.split_whitespace().nth(1)?.split('/').next()?;
    Some((version, suite.to_owned()))
}

/// Runs a command and returns its stdout. A failed start or status is an error; the latter contains
/// the whole output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{text}{error}", output.status).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: version and suite are parsed from a line of `apt-cache madison`.
    #[test]
    fn versions_are_read() {
        let line = "linux-image-amd64 | 7.3.4-1~bpo13+1 | http://h/debian trixie-backports/main \
                    amd64 Packages";
        let (version, suite) = madison_line(line).unwrap();
        assert_eq!((version.as_str(), suite.as_str()), ("7.3.4-1~bpo13+1", "trixie-backports"));
        assert!(madison_line("nothing").is_none());
    }

    // Goal: the error of a failed command contains its output.
    #[test]
    fn error_of_a_failed_command_contains_its_output() {
        assert_eq!(run(Command::new("echo").arg("fine")).unwrap(), "fine\n");
        let error = run(Command::new("ls").arg("/no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
