//! Rule: a generated page equals the output of its generator.

use super::Report;
use super::repository::Repository;
use crate::generate::PAGES;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for (page, source, text) in PAGES {
        let differs = repository.files.get(page) != Some(&text());
        if differs && repository.files.contains_key(source) {
            report.add(page, 1, format!("differs from {source}: cargo xtask generate"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::PAGES;
    use crate::tidy::testing::findings;

    #[test]
    fn generated_pages_are_current() {
        let (page, source, text) = PAGES[0];
        // Number of other pages of the same source: the test has no files for those pages.
        let others = PAGES.iter().filter(|(other, from, _)| *from == source && *other != page);
        let others = others.count();
        let count = |files: &[(&str, &str)]| findings("generated", files).len() - others;
        assert_eq!(count(&[(source, ""), (page, &text())]), 0);
        assert_eq!(count(&[(source, ""), (page, "old")]), 1);
        assert_eq!(count(&[(source, "")]), 1);
    }
}
