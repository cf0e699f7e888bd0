//! Rule: a public type name has one definition in the shipped code of the workspace.

use std::collections::BTreeMap;

use super::Report;
use super::lex::Kind;
use super::repository::Repository;

/// Names that each module or crate may define, because the path distinguishes them.
const COMMON: [&str; 5] = ["Error", "Config", "Stats", "Builder", "Result"];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for source in repository.shipped() {
        for keyword in ["pub struct", "pub enum", "pub trait", "pub type", "pub union"] {
            for at in source.find(keyword) {
                let name = source.tokens.get(at + 2).filter(|token| token.kind == Kind::Word);
                let Some(name) = name else { continue };
                if !COMMON.contains(&&*name.text) && !source.is_test_line(name.line) {
                    places.entry(&name.text).or_default().push((&source.path, name.line));
                }
            }
        }
    }
    for (name, places) in places {
        if places.len() > 1 {
            let (path, line) = places[places.len() - 1];
            let others: Vec<&str> = places.iter().map(|(path, _)| *path).collect();
            let (found, others) = (places.len(), others.join(", "));
            report.add(path, line, format!("{found} public types are called `{name}`: {others}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::repository;

    #[test]
    fn a_name_has_one_definition() {
        let check = |second: &str| {
            let tree = repository(&[
                ("memory/x/src/a.rs", "pub struct Ring; pub struct Error; pub(crate) struct Slot;"),
                ("device/y/src/b.rs", second),
            ]);
            let mut report = Report::default();
            super::check(&tree, &mut report);
            report.findings.len()
        };
        assert_eq!(check("pub enum Ring {} pub struct Error; pub struct Slot;"), 1);
        assert_eq!(check("pub enum Queue {} pub struct Error; pub struct Slot;"), 0);
    }
}
