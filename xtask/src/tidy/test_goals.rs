//! Rule: each test outside xtask has a comment with its goal: the rule that a failure violates.

use super::Report;
use super::repository::Repository;
use super::source::Source;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    let sources = repository.sources.iter().filter(|source| source.layer() != "xtask");
    for source in sources {
        for at in source.find("# [ test ]") {
            let line = source.tokens[at].line;
            if !has_goal(source, at) {
                report.add(&source.path, line, "a test without a comment that states its goal");
            }
        }
    }
}

/// True if a comment with words precedes the attributes of the test, or is between them and the
/// function.
fn has_goal(source: &Source, at: usize) -> bool {
    let function = source.tokens[at..].iter().position(|token| token.is("fn")).map(|n| at + n);
    let keyword = function.unwrap_or(at);
    let attributes = source.attributes_before(keyword);
    let first = attributes.last().map_or(at, |attribute| attribute.start);
    let lines = source.tokens[first].line.saturating_sub(1)..=source.tokens[keyword].line;
    source.comments.iter().any(|comment| {
        lines.contains(&comment.last_line) && comment.text.contains(char::is_alphabetic)
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::places;

    fn count(path: &str, text: &str) -> usize {
        places("test-goal", &[(path, text)]).len()
    }

    #[test]
    fn a_test_states_its_goal() {
        let path = "memory/x/src/a.rs";
        assert_eq!(count(path, "#[test]\nfn a() {}"), 1);
        assert_eq!(count(path, "// ------\n#[test]\nfn a() {}"), 1);
        assert_eq!(count(path, "// Goal: nothing is lost.\n\n#[test]\nfn a() {}"), 1);
        assert_eq!(count(path, "// Goal: nothing is lost.\n#[test]\n#[ignore]\nfn a() {}"), 0);
        assert_eq!(count(path, "/// Nothing is lost.\n#[cfg(a)]\n#[test]\nfn a() {}"), 0);
        assert_eq!(count(path, "#[test]\n// Nothing is lost.\nfn a() {}"), 0);
    }

    #[test]
    fn the_names_of_these_rules_are_goals_enough() {
        assert_eq!(count("xtask/src/a.rs", "#[test]\nfn a() {}"), 0);
    }
}
