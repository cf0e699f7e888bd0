//! Each layer states its rule in a short README.

use super::Report;
use super::repository::{ROOMS, Repository, SUPPORT};

const README_LINES: usize = 25;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for room in ROOMS.iter().chain(&SUPPORT) {
        let path = format!("{room}/README.md");
        let Some(text) = repository.files.get(&path) else {
            report.add(&path, 1, "the room has no README");
            continue;
        };
        let lines = text.lines().count();
        if lines > README_LINES {
            report.add(&path, 1, format!("{lines} lines, at most {README_LINES}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::findings;

    #[test]
    fn every_room_has_a_short_readme() {
        let rooms = ROOMS.iter().chain(&SUPPORT);
        let paths: Vec<String> = rooms.map(|room| format!("{room}/README.md")).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (&path[..], "# x\n")).collect();
        assert_eq!(findings("readme", &files).len(), 0);
        let long = "\n".repeat(26);
        files[0].1 = &long;
        files.pop();
        assert_eq!(
            findings("readme", &files),
            [
                "memory/README.md:1: 26 lines, at most 25",
                "xtask/README.md:1: the room has no README"
            ]
        );
    }
}
