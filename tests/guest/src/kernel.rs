//! Debian's kernels, selected by their version numbers.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Result;
use crate::apt::{Apt, run};
use crate::store::Store;
use crate::tools::Tools;

/// Kernel of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Default kernel of Debian 12, in the small variant for clouds.
    V6_1,
    /// Kernel from the security updates of Debian 12.
    V6_12,
    /// Newest kernel packaged for Debian 13: 7.3 or later.
    V7_3,
}

/// Debian's package of a kernel.
pub(crate) struct Source {
    /// Name, which begins with the number of the oldest accepted version.
    pub(crate) name: &'static str,
    /// Metapackage.
    pub(crate) package: &'static str,
    pub(crate) suites: &'static [&'static str],
}

impl Kernel {
    /// All kernels; the first one is the default.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7_3];

    const fn source(self) -> Source {
        match self {
            Self::V6_1 => Source {
                name: "6.1",
                package: "linux-image-cloud-amd64",
                suites: &["bookworm-security", "bookworm"],
            },
            Self::V6_12 => Source {
                name: "6.12",
                package: "linux-image-6.12-amd64",
                suites: &["bookworm-security", "bookworm"],
            },
            Self::V7_3 => {
                Source { name: "7.3", package: "linux-image-amd64", suites: &["trixie-backports"] }
            }
        }
    }

    /// Returns the files of the kernel from the cache, after a download if necessary.
    pub(crate) fn get(self, store: &Store, tools: &Tools) -> Result<Files> {
        self.source().get(store, tools, Apt::update)
    }
}

impl Source {
    /// Downloads the kernel by the apt that `update` returns, or takes it from the cache.
    pub(crate) fn get(
        &self,
        store: &Store,
        tools: &Tools,
        update: impl FnOnce(&Store) -> Result<Apt>,
    ) -> Result<Files> {
        let root = store.folder(&format!("kernels/{}", self.name), "1", |root| {
            let apt = update(store)?;
            apt.unpack_exactly(&self.packages(&apt)?, root)?;
            arrange(root)?;
            let version = only_entry(&root.join("lib/modules"))?;
            run(tools.depmod().arg("-b").arg(root).arg(&version)).map(|_| ())
        })?;
        let version = only_entry(&root.join("lib/modules"))?;
        Ok(Files { image: root.join("vmlinuz"), modules: root.join("lib/modules").join(version) })
    }

    /// Packages with image and modules, each `name=version`.
    fn packages(&self, apt: &Apt) -> Result<Vec<String>> {
        let Self { name, package, suites } = self;
        let versions = apt.versions(package)?;
        let Some((version, _)) =
            versions.iter().find(|(_, suite)| suites.contains(&suite.as_str()))
        else {
            let suites = suites.join(" or ");
            return Err(format!(
                "kernel {name}: {package} is not in {suites}; there are {versions:?}"
            )
            .into());
        };
        if number(version) < number(name) {
            return Err(format!("kernel {name}: the archive has only {version}").into());
        }
        let mut found = BTreeSet::new();
        let mut open = vec![((*package).to_owned(), version.clone())];
        while let Some((name, version)) = open.pop() {
            for next in parts(&apt.record(&name, &version)?) {
                if found.insert(format!("{next}={version}")) {
                    open.push((next, version.clone()));
                }
            }
        }
        Ok(found.into_iter().collect())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source().name)
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kernel| kernel.source().name == text);
        let known = Self::ALL.map(|kernel| kernel.to_string()).join(", ");
        found.ok_or_else(|| format!("no kernel '{text}'; there are {known}"))
    }
}

/// Unpacked kernel.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Boot image.
    pub(crate) image: PathBuf,
    /// Folder `lib/modules/VERSION` with its index.
    pub(crate) modules: PathBuf,
}

/// Dependencies in a package record that belong to the same kernel: packages with image, binary or
/// modules and a version in their names.
fn parts(record: &str) -> Vec<String> {
    let depends = record.lines().find_map(|line| line.strip_prefix("Depends: "));
    let names = depends.unwrap_or_default().split(',');
    let names = names.filter_map(|dependency| dependency.split_whitespace().next());
    let is_part = |name: &&str| {
        ["linux-image-", "linux-binary-", "linux-modules-"].iter().any(|prefix| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_numeric()))
        })
    };
    names.filter(is_part).map(str::to_owned).collect()
}

/// Moves image and modules to the same paths for every layout of the packages.
fn arrange(root: &Path) -> Result<()> {
    let merged = root.join("usr/lib/modules");
    if merged.is_dir() {
        fs::create_dir_all(root.join("lib"))?;
        fs::rename(&merged, root.join("lib/modules"))?;
    }
    let version = only_entry(&root.join("lib/modules"))?;
    let inside = root.join("lib/modules").join(&version).join("vmlinuz");
    let boot = root.join("boot").join(format!("vmlinuz-{version}"));
    let image = if inside.exists() { inside } else { boot };
    fs::rename(&image, root.join("vmlinuz")).map_err(|e| format!("{}: {e}", image.display()))?;
    Ok(())
}

/// Name of the only entry of a folder; an error if there are fewer or more entries.
fn only_entry(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    match &names[..] {
        [one] => Ok(one.to_string_lossy().into_owned()),
        all => Err(format!("{}: one entry expected, not {all:?}", folder.display()).into()),
    }
}

/// Major and minor number of a version.
fn number(version: &str) -> (u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a kernel is found by its name, and the error for an unknown name lists all.
    #[test]
    fn names_are_read() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        assert_eq!(
            "5.10".parse::<Kernel>().unwrap_err(),
            "no kernel '5.10'; there are 6.1, 6.12, 7.3"
        );
    }

    // Goal: of the dependencies of a kernel package, exactly image and modules are selected.
    #[test]
    fn dependencies_are_read() {
        let record = "Package: linux-image-7.3.4-amd64\nDepends: dracut | initramfs-tools (>= 1), \
                      linux-base-7.3.4-amd64 (= 1), linux-binary-7.3.4-amd64 (= 1), \
                      linux-modules-7.3.4-amd64 (= 1), linux-modules-amd64\n";
        assert_eq!(parts(record), ["linux-binary-7.3.4-amd64", "linux-modules-7.3.4-amd64"]);
        assert!(parts("Package: x\n").is_empty());
        assert!(number("7.3.4-1~bpo13+1") == number("7.3") && number("6.12") > number("6.1.192"));
    }
}
