//! Rule: every test named in a document exists. `netns::resize::nothing_changes` is a function of
//! that name in a file with `netns` and `resize` in its path.

use super::Report;
use super::repository::Repository;

/// First words of a test name in a document: the suites and the layers.
const FIRST: [&str; 12] = [
    "netns",
    "guest",
    "conformance",
    "soak",
    "memory",
    "packet",
    "device",
    "backend",
    "runtime",
    "app",
    "tools",
    "bin",
];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            // Every second part of the line is between backquotes.
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_test(name)) {
                if !exists(repository, name) {
                    report.add(path, index + 1, format!("no such test: `{name}`"));
                }
            }
        }
    }
}

fn is_test(name: &str) -> bool {
    let words: Vec<&str> = name.split("::").collect();
    let is_word = |word: &&str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    };
    words.len() > 2 && FIRST.contains(&words[0]) && words.iter().all(is_word)
}

fn exists(repository: &Repository, name: &str) -> bool {
    let words: Vec<&str> = name.split("::").collect();
    let [places @ .., function] = &words[..] else { return false };
    repository.sources.iter().any(|source| {
        let mut parts = source.path.trim_end_matches(".rs").split('/');
        places.iter().all(|place| parts.any(|part| part == *place))
            && source.find(&format!("fn {function}")).next().is_some()
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::findings;

    #[test]
    fn names_lead_somewhere() {
        let text =
            "`netns::life::lives` `netns::life::dies`\n`std::fs::read` `netns::other::lives`";
        let files = [("docs/a.md", text), ("tests/netns/tests/life.rs", "#[test]\nfn lives() {}")];
        assert_eq!(
            findings("named-test", &files),
            [
                "docs/a.md:1: no such test: `netns::life::dies`",
                "docs/a.md:2: no such test: `netns::other::lives`"
            ]
        );
    }
}
