//! Rule: no file contains a path below a user's or a working directory of one machine.

use super::Report;
use super::repository::Repository;

/// User directories and working directories, in two parts each, so that this file does not violate
/// the rule.
const PLACES: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for (path, text) in &repository.files {
        for (index, line) in text.lines().enumerate() {
            for place in PLACES.into_iter().filter(|place| names(line, place)) {
                report.add(path, index + 1, format!("a path of one machine: `{place}`"));
            }
        }
    }
}

/// True if `place` starts a path in `line`. False if it continues a path, as in `target/x/`.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.})/$".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::PLACES;
    use crate::tidy::testing::findings;

    #[test]
    fn homes_and_work_folders_are_found_in_any_file() {
        for place in PLACES {
            let text = format!("fine\nsee `{place}x`");
            let found = findings("machine-path", &[("docs/a.md", &text)]);
            assert_eq!(found, [format!("docs/a.md:2: a path of one machine: `{place}`")]);
        }
    }

    #[test]
    fn a_folder_of_the_project_is_no_machine() {
        let text = PLACES.map(|place| format!("target{place}x $DIR{place}x")).join("\n");
        assert!(findings("machine-path", &[("docs/a.md", &text)]).is_empty());
    }
}
