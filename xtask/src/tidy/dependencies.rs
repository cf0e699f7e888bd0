//! Rule: a crate uses only crates of its own layer and of the layers before it. [`forbidden`] has
//! further restrictions.
//!
//! Development dependencies are not restricted: tests may use the testkit.

use toml::{Table, Value};

use super::Report;
use super::package::Package;
use super::repository::{LAYERS, Repository, SUPPORT};

/// Crates of `memory/` that depend only on the standard library.
const BARE_MEMORY: [&str; 3] = ["memory/rings", "memory/counters", "memory/topology"];

/// Crates that the client commands may not use.
const SERVER_SIDE: [&str; 3] = ["runtime/engine", "runtime/host", "runtime/port"];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for package in &repository.packages {
        let manifest = package.file("Cargo.toml");
        if !LAYERS.contains(&package.layer()) && !SUPPORT.contains(&package.layer()) {
            report.add(&manifest, 1, format!("`{}` is in no layer", package.name));
            continue;
        }
        for name in dependency_names(&package.manifest) {
            let Some(used) = repository.packages.iter().find(|other| other.name == name) else {
                continue;
            };
            if let Some(reason) = forbidden(package, used) {
                let text = &repository.files[&manifest];
                report.add(&manifest, line_of(text, &name), format!("`{name}`: {reason}"));
            }
        }
    }
}

/// Reason why `user` may not depend on `used`; `None` if the dependency is allowed.
fn forbidden(user: &Package, used: &Package) -> Option<String> {
    if SUPPORT.contains(&user.layer()) {
        return None;
    }
    let Some(rank) = rank(used) else {
        return Some(format!("{}/ is only for development dependencies", used.layer()));
    };
    let own = self::rank(user)?;
    if rank > own {
        return Some(format!("{}/ is below {}/ and may not be used", used.layer(), user.layer()));
    }
    let sysio_or_shmem = ["memory/sysio", "memory/shmem"].contains(&used.folder.as_str());
    match user.layer() {
        "backend" if used.layer() == "backend" => {
            Some("a backend may not use another backend".into())
        }
        // The crate of emulated devices serves a socket and may use `sysio`.
        "device" if used.folder == "memory/sysio" && user.folder != "device/vfio_user" => {
            Some("device/ makes no system call; I/O comes in as an argument".into())
        }
        "runtime" if used.layer() == "backend" => {
            Some("runtime/ uses the contract, not the backends".into())
        }
        "app"
            if user.folder == "app/client"
                && (used.layer() == "backend" || SERVER_SIDE.contains(&used.folder.as_str())) =>
        {
            Some("a client uses the control socket, not the crates behind it".into())
        }
        "app" if used.layer() == "app" && used.folder != "app/command" => {
            Some("crates of app/ share app/command only".into())
        }
        "memory" if user.folder == "memory/sysio" && used.layer() == "memory" => {
            Some("sysio uses no other crate of memory/".into())
        }
        "memory" if BARE_MEMORY.contains(&user.folder.as_str()) && sysio_or_shmem => {
            Some("rings, counters and topology use neither sysio nor shmem".into())
        }
        _ => None,
    }
}

fn rank(package: &Package) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == package.layer())
}

/// Names of the packages in `[dependencies]` and `[build-dependencies]`, for any target.
fn dependency_names(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut names = Vec::new();
    for table in std::iter::once(manifest).chain(per_target) {
        for section in ["dependencies", "build-dependencies"] {
            let Some(section) = table.get(section).and_then(Value::as_table) else { continue };
            names.extend(section.iter().map(|(key, value)| {
                let renamed = value.get("package").and_then(Value::as_str);
                renamed.unwrap_or(key).to_owned()
            }));
        }
    }
    names
}

/// Number of the first line that contains `package` without `name =`; otherwise 1.
fn line_of(manifest: &str, package: &str) -> usize {
    manifest
        .lines()
        .position(|line| line.contains(package) && !line.contains("name ="))
        .unwrap_or(0)
        + 1
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::findings;

    /// True if a crate in folder `user` may depend on one in folder `used`.
    fn allowed(user: &str, section: &str, used: &str) -> bool {
        let manifest =
            format!("[package]\nname = \"mqnet-user\"\n[{section}]\nmqnet-used.workspace = true\n");
        let files = [
            (format!("{user}/Cargo.toml"), manifest),
            (format!("{used}/Cargo.toml"), "[package]\nname = \"mqnet-used\"\n".to_owned()),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&p[..], &t[..])).collect();
        let found = findings("dependency", &files);
        assert!(found.is_empty() || found[0].starts_with(&format!("{user}/Cargo.toml:4: ")));
        found.is_empty()
    }

    #[test]
    fn a_layer_uses_the_layers_before_it_only() {
        assert!(allowed("packet/a", "dependencies", "memory/b"));
        assert!(allowed("packet/a", "dependencies", "packet/b"));
        assert!(allowed("bin/a", "dependencies", "backend/b"));
        assert!(allowed("bin/a", "dependencies", "app/b"));
        assert!(allowed("tools/a", "dependencies", "app/b"));
        assert!(!allowed("app/a", "dependencies", "tools/b"));
        assert!(!allowed("runtime/a", "dependencies", "app/b"));
        assert!(!allowed("memory/a", "dependencies", "packet/b"));
        assert!(!allowed("backend/a", "target.'cfg(loom)'.dependencies", "runtime/b"));
        assert!(!allowed("backend/a", "build-dependencies", "bin/b"));
    }

    #[test]
    fn the_special_borders_hold() {
        assert!(!allowed("backend/a", "dependencies", "backend/b"));
        assert!(!allowed("runtime/a", "dependencies", "backend/b"));
        assert!(!allowed("app/client", "dependencies", "backend/b"));
        assert!(!allowed("app/client", "dependencies", "runtime/engine"));
        assert!(allowed("app/client", "dependencies", "runtime/control"));
        assert!(allowed("app/daemon", "dependencies", "runtime/engine"));
        assert!(allowed("app/daemon", "dependencies", "app/command"));
        assert!(!allowed("app/daemon", "dependencies", "app/client"));
        assert!(!allowed("device/a", "dependencies", "memory/sysio"));
        assert!(allowed("device/a", "dependencies", "memory/shmem"));
        assert!(!allowed("memory/rings", "dependencies", "memory/shmem"));
        assert!(!allowed("memory/topology", "dependencies", "memory/sysio"));
        assert!(!allowed("memory/sysio", "dependencies", "memory/shmem"));
        assert!(allowed("memory/shmem", "dependencies", "memory/sysio"));
    }

    #[test]
    fn tests_use_anything_and_are_used_for_development_only() {
        assert!(allowed("tests/a", "dependencies", "bin/b"));
        assert!(allowed("memory/a", "dev-dependencies", "tests/b"));
        assert!(!allowed("memory/a", "dependencies", "tests/b"));
        assert!(!allowed("bin/a", "dependencies", "xtask"));
    }

    #[test]
    fn renaming_does_not_help_and_layers_are_fixed() {
        let user = "[package]\nname = \"u\"\n[dependencies]\nx = { package = \"mqnet-used\" }\n";
        let used = "[package]\nname = \"mqnet-used\"\n";
        let files = [("memory/u/Cargo.toml", user), ("bin/used/Cargo.toml", used)];
        assert_eq!(findings("dependency", &files).len(), 1);
        assert_eq!(findings("dependency", &[("attic/u/Cargo.toml", used)]).len(), 1);
    }
}
