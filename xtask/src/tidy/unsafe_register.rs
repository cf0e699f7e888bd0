//! Rule: the register lists each file with unsafe code, with a reason. A crate without such a file
//! forbids unsafe code.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Report;
use super::package::Package;
use super::repository::Repository;
use super::source::Source;

/// Path of the register. An entry that is no longer needed is a finding.
const REGISTER: &str = "xtask/unsafe-register.toml";

/// Crates that require unsafe code for their purpose.
const UNSAFE_CRATES: [&str; 4] = ["memory/sysio", "memory/shmem", "memory/rings", "packet/pktbuf"];

/// Minimum length of a reason in characters.
const SHORTEST_REASON: usize = 20;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    let register = read_register(repository, report);
    for source in &repository.sources {
        let listed = register.contains_key(&source.path);
        match first_unsafe(source) {
            Some(line) if !listed => {
                report.add(
                    &source.path,
                    line,
                    format!("unsafe code that {REGISTER} does not list"),
                );
            }
            None if listed => {
                let line = register[&source.path];
                report.add(
                    REGISTER,
                    line,
                    format!("`{}` has no unsafe code: unlist it", source.path),
                );
            }
            _ => {}
        }
    }
    for (path, line) in &register {
        if !repository.files.contains_key(path) {
            report.add(REGISTER, *line, format!("`{path}` does not exist: unlist it"));
        }
    }
    for package in &repository.packages {
        check_roots(repository, package, &register, report);
    }
}

/// Registered paths with their lines in the register.
fn read_register(repository: &Repository, report: &mut Report) -> BTreeMap<String, usize> {
    let Some(text) = repository.files.get(REGISTER) else { return BTreeMap::new() };
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            report.add(REGISTER, 1, format!("not valid TOML: {error}"));
            return BTreeMap::new();
        }
    };
    let mut register = BTreeMap::new();
    for (path, reason) in table.get("files").and_then(Value::as_table).into_iter().flatten() {
        let line = text.lines().position(|line| line.contains(path.as_str())).unwrap_or(0) + 1;
        if reason.as_str().is_none_or(|reason| reason.trim().len() < SHORTEST_REASON) {
            report.add(REGISTER, line, format!("`{path}` needs a reason in words"));
        }
        register.insert(path.clone(), line);
    }
    register
}

/// Line of the first `unsafe`, or of an attribute that permits unsafe code; `None` if there is
/// neither.
fn first_unsafe(source: &Source) -> Option<usize> {
    let word = source.tokens.iter().find(|token| token.is("unsafe")).map(|token| token.line);
    let allowed = ["allow", "expect", "warn"].iter().find_map(|level| {
        let pattern = format!("{level} (");
        source.find(&pattern).find_map(|at| {
            let list = &source.tokens[at..source.closing(at + 1)];
            list.iter().find(|token| token.is("unsafe_code")).map(|token| token.line)
        })
    });
    word.into_iter().chain(allowed).min()
}

/// Checks that the library and the programs of a crate forbid unsafe code. A crate outside
/// [`UNSAFE_CRATES`] with a registered file denies unsafe code instead, because `forbid` cannot be
/// lifted for one module.
fn check_roots(
    repository: &Repository,
    package: &Package,
    register: &BTreeMap<String, usize>,
    report: &mut Report,
) {
    if UNSAFE_CRATES.contains(&package.folder.as_str()) {
        return;
    }
    let has_registered = register.keys().any(|path| path.starts_with(&package.file("src/")));
    let level = if has_registered { "deny" } else { "forbid" };
    let programs = package.file("src/bin/");
    let roots = [package.file("src/lib.rs"), package.file("src/main.rs")];
    for source in &repository.sources {
        let is_program = source
            .path
            .strip_prefix(&programs)
            .is_some_and(|rest| rest.matches('/').count() == 0 || rest.ends_with("/main.rs"));
        if !is_program && !roots.contains(&source.path) {
            continue;
        }
        let carries =
            |level: &str| source.find(&format!("# ! [ {level} ( unsafe_code ) ]")).next().is_some();
        if !carries("forbid") && !carries(level) {
            report.add(&source.path, 1, format!("`#![{level}(unsafe_code)]` is missing"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::{findings, places};

    const FORBID: &str = "#![forbid(unsafe_code)]\n";

    #[test]
    fn unsafe_code_must_be_listed() {
        let bad = ("memory/shmem/src/lib.rs", "fn a() {}\nunsafe impl Send for A {}");
        assert_eq!(places("unsafe", &[bad]), ["memory/shmem/src/lib.rs:2"]);
        let lifted = ("memory/shmem/src/lib.rs", "#![allow(dead_code, unsafe_code)]");
        assert_eq!(places("unsafe", &[lifted]), ["memory/shmem/src/lib.rs:1"]);
        let words = ("memory/shmem/src/lib.rs", "// unsafe\nconst A: &str = \"unsafe\";");
        assert_eq!(findings("unsafe", &[words]), [""; 0]);
    }

    #[test]
    fn the_register_may_only_shrink() {
        let register = "[files]\n\"memory/shmem/src/lib.rs\" = \"maps memory of the kernel\"\n\
            \"memory/shmem/src/gone.rs\" = \"maps memory of the kernel\"\n";
        let files = [("xtask/unsafe-register.toml", register), ("memory/shmem/src/lib.rs", "")];
        let found = findings("unsafe", &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("unsafe-register.toml:2: ") && found[0].contains("unlist"));
        assert!(found[1].contains("does not exist"));
    }

    #[test]
    fn a_listed_file_needs_a_reason() {
        let register = "[files]\n\"memory/shmem/src/lib.rs\" = \"speed\"\n";
        let files =
            [("xtask/unsafe-register.toml", register), ("memory/shmem/src/lib.rs", "unsafe {}")];
        assert_eq!(places("unsafe", &files), ["xtask/unsafe-register.toml:2"]);
    }

    #[test]
    fn other_crates_forbid_it() {
        assert_eq!(places("unsafe", &[("packet/wire/src/lib.rs", "")]).len(), 1);
        assert_eq!(places("unsafe", &[("bin/a/src/bin/b.rs", "")]).len(), 1);
        assert_eq!(places("unsafe", &[("packet/wire/src/lib.rs", FORBID)]).len(), 0);
        assert_eq!(places("unsafe", &[("packet/wire/src/a.rs", "")]).len(), 0);
    }

    #[test]
    fn a_crate_with_a_registered_module_denies_it() {
        let register = "[files]\n\"packet/wire/src/a.rs\" = \"needs an intrinsic of the CPU\"\n";
        let module = ("packet/wire/src/a.rs", "#![allow(unsafe_code)]");
        let with_root = |root| {
            let files = [
                ("xtask/unsafe-register.toml", register),
                module,
                ("packet/wire/src/lib.rs", root),
            ];
            findings("unsafe", &files).len()
        };
        assert_eq!(with_root(""), 1);
        assert_eq!(with_root("#![deny(unsafe_code)]"), 0);
    }
}
