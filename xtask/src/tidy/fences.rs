//! Rule: the comment of each fence and each `SeqCst` operation names its partner and the order that
//! the pair guarantees.

use super::Report;
use super::lex::Kind;
use super::repository::Repository;
use super::source::Source;

/// Maximum number of lines between the end of the comment and the fence.
const REACH: usize = 6;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        let fences = source.find("fence (").chain(source.find("compiler_fence ("));
        for at in fences.chain(source.find("SeqCst")) {
            let line = source.tokens[at].line;
            let is_definition = at > 0 && source.tokens[at - 1].is("fn");
            if source.is_test_line(line) || is_definition || is_import(source, at) {
                continue;
            }
            if !source.comment_near("Pairs with", line.saturating_sub(REACH), line) {
                let message = "no `// Pairs with <function>: <what it orders>` above";
                report.add(&source.path, line, message);
            }
        }
    }
}

/// True if the token is within `use path::{...};`.
fn is_import(source: &Source, at: usize) -> bool {
    let before = source.tokens[..at].iter().rev();
    before
        .take_while(|token| {
            token.kind == Kind::Word || ["::", "{", "}", ","].iter().any(|mark| token.is(mark))
        })
        .any(|token| token.is("use"))
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::places;

    fn count(text: &str) -> usize {
        places("fence", &[("memory/x/src/a.rs", text)]).len()
    }

    #[test]
    fn a_fence_names_its_partner() {
        assert_eq!(count("fn a() { fence(Ordering::Acquire); }"), 1);
        assert_eq!(count("fn a() { flag.store(1, SeqCst); }"), 1);
        assert_eq!(count("// Pairs with b: flag before data.\nfence(Acquire);"), 0);
        assert_eq!(count("// Pairs with b: this.\n\n\n\n\n\n\n\nfence(Acquire);"), 1);
    }

    #[test]
    fn imports_definitions_and_tests_need_none() {
        assert_eq!(count("use std::sync::atomic::{\n    Ordering::{self, SeqCst}, fence};"), 0);
        assert_eq!(count("#[cfg(test)]\nmod t { fn a() { fence(SeqCst); } }"), 0);
        assert_eq!(count("fn fence(order: Ordering) {}"), 0);
    }
}
