//! Rule: the files of a crate do not import each other in a circle. Each file can then be read and
//! tested together with the files that it imports.
//!
//! An import is a path through `crate`, `super`, `self`, a child module or an imported module, in a
//! `use` item or in an expression. Paths to modules that contain the file are not imports, because
//! a file may use items of its parent, such as types that a command and its parts share. Test code
//! is omitted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Report;
use super::lex::{Kind, Token};
use super::package::Package;
use super::repository::Repository;
use super::source::Source;

/// Path of a module from the root of its crate.
type Module = Vec<String>;

/// Imported files, each with the line of its first import.
type Imports = BTreeMap<usize, usize>;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for package in &repository.packages {
        let files = files(package, &repository.sources);
        for circle in circles(&graph(&files, &repository.sources)) {
            let name = |&file: &usize| {
                let path = &repository.sources[file].path;
                path.trim_start_matches(&package.file("src/")).to_owned()
            };
            let names: Vec<String> = circle.way.iter().chain(&circle.way[..1]).map(name).collect();
            let (members, path) = (circle.members, names.join(" -> "));
            let message = format!("imports in a circle, {members} files in all: {path}");
            report.add(&repository.sources[circle.way[0]].path, circle.line, message);
        }
    }
}

/// Sources of a crate without tests, by module. Files in `src/bin` belong to other crates.
fn files(package: &Package, sources: &[Source]) -> BTreeMap<Module, usize> {
    let mut found = BTreeMap::new();
    for (at, source) in sources.iter().enumerate().filter(|(_, source)| !source.test_only) {
        let inner = source.path.strip_prefix(&package.file("src/"));
        let Some(inner) = inner.and_then(|inner| inner.strip_suffix(".rs")) else { continue };
        let mut module: Module = inner.split('/').map(str::to_owned).collect();
        let is_root = ["lib", "main"].contains(&inner);
        if module[0] == "bin" {
            continue;
        }
        if is_root || module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        found.entry(module).or_insert(at);
    }
    found
}

fn graph(files: &BTreeMap<Module, usize>, sources: &[Source]) -> BTreeMap<usize, Imports> {
    let imports = |(module, &at): (&Module, &usize)| (at, imports(files, module, &sources[at]));
    files.iter().map(imports).collect()
}

fn imports(files: &BTreeMap<Module, usize>, own: &Module, source: &Source) -> Imports {
    let mut reader = Reader { files, own, names: BTreeMap::new(), found: BTreeMap::new() };
    // The first pass reads the `use` items. The second pass reads paths, which may begin with an
    // imported name.
    for in_use in [true, false] {
        let mut around: Vec<Option<String>> = Vec::new();
        let mut at = 0;
        while let Some(token) = source.tokens.get(at) {
            let inner: Module = own.iter().chain(around.iter().flatten()).cloned().collect();
            let end = if token.is("use") {
                at + 1 + source.tokens[at..].iter().take_while(|token| !token.is(";")).count()
            } else {
                at + 1
            };
            if token.is("{") {
                let is_module = at > 1 && source.tokens[at - 2].is("mod");
                around.push(is_module.then(|| source.tokens[at - 1].text.clone()));
            } else if token.is("}") {
                around.pop();
            } else if source.is_test_line(token.line) || token.is("use") != in_use {
            } else if in_use {
                reader.tree(&source.tokens[at + 1..end], &inner, None);
            } else if is_path_start(&source.tokens, at) {
                reader.tree(path(&source.tokens[at..]), &inner, None);
            }
            at = end;
        }
    }
    reader.found
}

/// True for the first word of a path of several words.
fn is_path_start(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    tokens[at].kind == Kind::Word
        && tokens.get(at + 1).is_some_and(|next| next.is("::"))
        && !before.is_some_and(|token| token.is("::"))
}

/// Words of a path, and the marks between them.
fn path(tokens: &[Token]) -> &[Token] {
    let is_part = |token: &&Token| token.is("::") || token.kind == Kind::Word;
    let mut len = 1;
    while let [mark, word] = tokens.get(len..len + 2).unwrap_or_default() {
        if !mark.is("::") || !is_part(&word) {
            break;
        }
        len += 2;
    }
    &tokens[..len]
}

/// Reader of the imports of one file.
struct Reader<'a> {
    files: &'a BTreeMap<Module, usize>,
    own: &'a Module,
    /// Modules by their imported names.
    names: BTreeMap<String, Module>,
    found: Imports,
}

impl Reader<'_> {
    /// Reads a tree of `use`, or a path. The path continues from the module `base`. Without `base`
    /// the path starts at the root of the crate, or is resolved in the module `inner`.
    fn tree(&mut self, tokens: &[Token], inner: &Module, base: Option<Module>) {
        let mut module = base;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if token.is("{") {
                let end = closing(&tokens[at..]) + at;
                for part in parts(&tokens[at + 1..end]) {
                    self.tree(part, inner, module.clone());
                }
                return;
            }
            if token.kind != Kind::Word {
                at += 1;
                continue;
            }
            if token.is("as") {
                break;
            }
            let Some(next) = self.step(module.as_ref(), inner, &token.text) else {
                // The word is not a module, so it names an item of `module`.
                return self.note(module.as_ref(), token.line);
            };
            module = Some(next);
            at += 1;
        }
        self.note(module.as_ref(), tokens.first().map_or(0, |token| token.line));
        // The whole path is a module, and its last word becomes a name of the module.
        let last = tokens.iter().rev().find(|token| token.kind == Kind::Word);
        if let (Some(module), Some(last)) = (module, last) {
            self.names.insert(last.text.clone(), module);
        }
    }

    /// Module for `word` in `module`, or at the start of a path; `None` if `word` is not a module.
    fn step(&self, module: Option<&Module>, inner: &Module, word: &str) -> Option<Module> {
        let below = |module: &Module| {
            let child: Module = module.iter().cloned().chain([word.to_owned()]).collect();
            self.files.contains_key(&child).then_some(child)
        };
        match (word, module) {
            ("crate", None) => Some(Module::new()),
            ("self", _) => Some(module.unwrap_or(inner).clone()),
            ("super", _) => {
                let mut above = module.unwrap_or(inner).clone();
                above.pop().map(|_| above)
            }
            (_, Some(module)) => below(module),
            (_, None) => below(inner).or_else(|| self.names.get(word).cloned()),
        }
    }

    /// Records an import of the file of `module`, unless that module contains this file.
    fn note(&mut self, module: Option<&Module>, line: usize) {
        let Some(module) = module.filter(|module| !self.own.starts_with(module)) else { return };
        if let Some(&file) = self.files.get(module) {
            self.found.entry(file).or_insert(line);
        }
    }
}

fn closing(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Parts between commas that are not within inner braces.
fn parts(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    let splits = |token: &Token| {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        depth == 0 && token.is(",")
    };
    tokens.split(splits).collect()
}

/// Files that import each other in a circle.
#[derive(Debug)]
struct Circle {
    /// Shortest circle.
    way: Vec<usize>,
    /// Line of the first import of the circle.
    line: usize,
    /// Number of all files that import each other, directly or indirectly, with the files of `way`.
    members: usize,
}

fn circles(graph: &BTreeMap<usize, Imports>) -> Vec<Circle> {
    let reach: BTreeMap<usize, BTreeSet<usize>> =
        graph.keys().map(|&file| (file, reachable(graph, file))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for (&file, there) in &reach {
        if !there.contains(&file) || done.contains(&file) {
            continue;
        }
        let members: Vec<usize> =
            there.iter().copied().filter(|other| reach[other].contains(&file)).collect();
        let ways = members.iter().filter_map(|&member| way_around(graph, member));
        if let Some(way) = ways.min_by_key(Vec::len) {
            let line = graph[&way[0]][way.get(1).unwrap_or(&way[0])];
            found.push(Circle { line, way, members: members.len() });
        }
        done.extend(members);
    }
    found
}

/// Files that `file` imports directly or indirectly.
fn reachable(graph: &BTreeMap<usize, Imports>, file: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        open.extend(graph[&file].keys().filter(|&&next| seen.insert(next)));
    }
    seen
}

/// Shortest chain of imports from `file` back to `file`; `None` if there is no circle.
fn way_around(graph: &BTreeMap<usize, Imports>, file: usize) -> Option<Vec<usize>> {
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from([vec![file]]);
    while let Some(way) = open.pop_front() {
        for &next in graph[way.last()?].keys() {
            if next == file {
                return Some(way);
            }
            if seen.insert(next) {
                open.push_back(way.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {

    use crate::tidy::testing::{findings, places};

    const LIB: (&str, &str) = ("app/x/src/lib.rs", "mod a;\nmod b;\nmod c;");

    /// Findings of the rule in a crate of three files and a child of the first file.
    fn circles(a: &str, b: &str, c: &str, child: &str) -> Vec<String> {
        let files = [
            LIB,
            ("app/x/src/a.rs", a),
            ("app/x/src/b.rs", b),
            ("app/x/src/c.rs", c),
            ("app/x/src/a/child.rs", child),
        ];
        findings("import-circle", &files)
    }

    #[test]
    fn circles_are_found_whole() {
        let found = circles(
            "use std::io;\nuse crate::b::B;",
            "use super::c;",
            "fn f(_: crate::a::A) {}",
            "",
        );
        let message =
            "app/x/src/a.rs:2: imports in a circle, 3 files in all: a.rs -> b.rs -> c.rs -> a.rs";
        assert_eq!(found, [message]);
        assert!(circles("use crate::b::B;", "use super::c;", "fn f() {}", "").is_empty());
    }

    #[test]
    fn every_form_of_an_import_counts() {
        for import in [
            "use crate::{c, a::A};",
            "use crate::{c::{C, D}, a};",
            "use super::a as other;",
            "fn f() { super::a::f() }",
            "mod inner { use super::super::a::A; }",
            "mod inner { fn f() { super::super::a::f() } }",
        ] {
            assert_eq!(circles("use crate::b;", import, "", "").len(), 1, "{import}");
        }
        let through_a_name = "use crate::c;\nfn f() { c::f() }";
        assert_eq!(
            circles("", through_a_name, "use crate::a;\nfn f() { a::child::f() }", "use crate::b;")
                .len(),
            1
        );
    }

    #[test]
    fn similar_words_are_not_modules() {
        for import in [
            "use a::A;",
            "fn f() { other::a::f() }",
            "fn f(a: u8) -> u8 { a }",
            "#[cfg(test)]\nmod tests { use crate::a::A; }",
            "// crate::a::A\nconst S: &str = \"crate::a::A\";",
            "pub(in crate::a) fn f() {}",
        ] {
            let found = circles("use crate::b;", import, "", "");
            let expected = usize::from(import.contains("pub(in"));
            assert_eq!(found.len(), expected, "{import}");
        }
    }

    #[test]
    fn a_part_may_use_what_contains_it() {
        let a = "mod child;\nuse child::Child;\npub struct A;\nfn f() { child::g() }";
        assert!(circles(a, "", "", "use super::A;\nuse crate::a::A as B;").is_empty());
        let found = circles(a, "use crate::a::A;", "", "use super::A;\nuse crate::b::B;");
        assert_eq!(found.len(), 1, "a -> child -> b -> a");
    }

    #[test]
    fn each_group_of_files_is_one_finding() {
        let files = [
            LIB,
            ("app/x/src/a.rs", "use crate::b::B;"),
            ("app/x/src/b.rs", "use crate::a::A;"),
            ("app/y/src/main.rs", "mod a;\nmod b;\n"),
            ("app/y/src/a/mod.rs", "use crate::b::B;"),
            ("app/y/src/b.rs", "\nuse crate::a::A;"),
        ];
        assert_eq!(places("import-circle", &files), ["app/x/src/a.rs:1", "app/y/src/a/mod.rs:1"]);
    }
}
