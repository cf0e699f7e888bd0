//! Rule: every Rust file is compiled, because a `mod` declares it.

use super::Report;
use super::repository::Repository;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        if !repository.reached.contains(&source.path) {
            report.add(&source.path, 1, "no crate compiles this file: declare it or delete it");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::places;

    #[test]
    fn a_file_that_nothing_declares_is_dead() {
        let files = [
            ("memory/x/src/lib.rs", "// mod dead;\nmod alive;"),
            ("memory/x/src/alive.rs", ""),
            ("memory/x/src/dead.rs", ""),
            ("memory/x/tests/suite.rs", ""),
            ("scratch.rs", ""),
        ];
        assert_eq!(places("dead-file", &files), ["memory/x/src/dead.rs:1", "scratch.rs:1"]);
    }
}
