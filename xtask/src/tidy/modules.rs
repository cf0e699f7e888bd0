//! Follows `mod` declarations from the roots of each crate, as the compiler does.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::lex::Kind;
use super::package::Package;
use super::source::{Source, is_test_cfg};

/// Declaration `mod name;` or `include!("file")`.
#[derive(Debug, PartialEq, Eq)]
struct Declared {
    /// Possible files for the declaration.
    candidates: Vec<String>,
    test: bool,
}

/// Marks the sources that only tests declare, and returns the paths of all sources that are
/// declared.
pub(super) fn mark_tests(packages: &[Package], sources: &mut [Source]) -> BTreeSet<String> {
    let by_path: BTreeMap<String, usize> =
        sources.iter().enumerate().map(|(at, source)| (source.path.clone(), at)).collect();
    // Path, and true if it is reached by tests only. A file that is reached in both ways is not a
    // test.
    let mut reached: BTreeMap<String, bool> = BTreeMap::new();
    let mut open: Vec<(String, bool, bool)> = packages
        .iter()
        .flat_map(|package| roots(package, by_path.keys()))
        .map(|path| (path, true, false))
        .collect();
    while let Some((path, is_root, test)) = open.pop() {
        let Some(&at) = by_path.get(&path) else { continue };
        let source = &sources[at];
        let test = test || source.test_only;
        if reached.get(&path).is_some_and(|&before| before == test || !before) {
            continue;
        }
        reached.insert(path.clone(), test);
        for declared in declarations(source, is_root) {
            let test = test || declared.test;
            open.extend(declared.candidates.into_iter().map(|path| (path, false, test)));
        }
    }
    for source in sources {
        source.test_only |= reached.get(&source.path).copied().unwrap_or(false);
    }
    reached.into_keys().collect()
}

/// Root files of a package: those that Cargo finds by their path, and those that the manifest
/// names with `path`.
fn roots<'a>(package: &Package, paths: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = paths
        .filter(|path| {
            let Some(inner) = path.strip_prefix(&format!("{}/", package.folder)) else {
                return false;
            };
            match inner.split('/').collect::<Vec<_>>()[..] {
                ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
                ["src", "bin", file] | ["tests" | "benches" | "examples", file] => {
                    file.ends_with(".rs")
                }
                ["src", "bin", _, file] | ["tests" | "benches" | "examples", _, file] => {
                    file == "main.rs"
                }
                _ => false,
            }
        })
        .cloned()
        .collect();
    for section in ["lib", "bin", "test", "bench", "example"] {
        let targets = match package.manifest.get(section) {
            Some(Value::Array(targets)) => targets.as_slice(),
            Some(target) => std::slice::from_ref(target),
            None => &[],
        };
        let named = targets.iter().filter_map(|target| target.get("path")?.as_str());
        found.extend(named.map(|path| normal(&package.file(path))));
    }
    found
}

/// Declarations in `source`. Modules of a root file are in the folder of that file.
fn declarations(source: &Source, is_root: bool) -> Vec<Declared> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let stem = file.trim_end_matches(".rs");
    let prefix =
        if is_root || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    // Entry for each open brace: the name of its module, if it opens a module.
    let mut around: Vec<Option<&str>> = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let next = |step: usize| source.tokens.get(at + step);
        if token.is("{") {
            let is_module = at > 1 && source.tokens[at - 2].is("mod");
            around.push(is_module.then(|| source.tokens[at - 1].text.as_str()));
        } else if token.is("}") {
            around.pop();
        } else if source.matches(at, "include ! (") {
            let Some(file) = next(3).filter(|name| name.kind == Kind::Literal) else { continue };
            let path = normal(&format!("{folder}/{}", file.text.trim_matches('"')));
            let test = source.is_test_line(token.line);
            found.push(Declared { candidates: vec![path], test });
        } else if token.is("mod") && next(2).is_some_and(|end| end.is(";")) {
            let inner: String = around.iter().flatten().map(|name| format!("/{name}")).collect();
            let name = source.tokens[at + 1].text.trim_start_matches("r#");
            found.push(declared_module(source, at, folder, &format!("{prefix}{inner}"), name));
        }
    }
    found
}

fn declared_module(source: &Source, at: usize, folder: &str, base: &str, name: &str) -> Declared {
    let mut candidates = vec![format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")];
    let mut test = source.is_test_line(source.tokens[at].line);
    for attribute in source.attributes_before(at) {
        test |= is_test_cfg(&source.tokens[attribute.clone()]);
        for equals in attribute.filter(|&at| source.matches(at, "path =")) {
            let file = source.tokens[equals + 2].text.trim_matches('"');
            candidates.push(normal(&format!("{folder}/{file}")));
        }
    }
    Declared { candidates, test }
}

/// Normalizes a path: `a/./b/../c` -> `a/c`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::repository;

    #[test]
    fn modules_are_followed_through_files_folders_and_attributes() {
        let repository = repository(&[
            ("memory/x/src/lib.rs", "mod a;\nmod b { mod c; }\ninclude!(\"gen/d.rs\");"),
            ("memory/x/src/a.rs", "#[cfg_attr(loom, path = \"odd.rs\")]\nmod e;"),
            ("memory/x/src/a/e.rs", ""),
            ("memory/x/src/odd.rs", ""),
            ("memory/x/src/b/c.rs", "pub mod deep;"),
            ("memory/x/src/b/c/deep/mod.rs", ""),
            ("memory/x/src/gen/d.rs", ""),
            ("memory/x/src/lonely.rs", "mod a;"),
        ]);
        let missed: Vec<&str> = repository
            .sources
            .iter()
            .map(|source| source.path.as_str())
            .filter(|path| !repository.reached.contains(*path))
            .collect();
        assert_eq!(missed, ["memory/x/src/lonely.rs"]);
    }

    #[test]
    fn a_file_is_a_test_when_only_tests_declare_it() {
        let repository = repository(&[
            ("memory/x/src/lib.rs", "#[cfg(test)]\nmod t;\nmod both;\nmod a;"),
            ("memory/x/src/t.rs", "mod inner;\n#[path = \"../both.rs\"] mod both;"),
            ("memory/x/src/t/inner.rs", ""),
            ("memory/x/src/both.rs", ""),
            ("memory/x/src/a.rs", "#[cfg(all(test, loom))]\npub(crate) mod tests;"),
            ("memory/x/src/a/tests.rs", ""),
        ]);
        let tests: Vec<&str> = repository
            .sources
            .iter()
            .filter(|source| source.test_only)
            .map(|source| source.path.as_str())
            .collect();
        assert_eq!(
            tests,
            ["memory/x/src/a/tests.rs", "memory/x/src/t.rs", "memory/x/src/t/inner.rs"]
        );
    }
}
