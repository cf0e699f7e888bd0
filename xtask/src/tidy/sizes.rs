//! Rule: lines, functions and files have a limited size.

use super::Report;
use super::lex::Kind;
use super::repository::Repository;
use super::source::Source;

const LINE_CHARS: usize = 100;
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;
const INLINE_TEST_LINES: usize = 150;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        check_lines(source, report);
        check_functions(source, report);
        check_file(source, report);
    }
}

fn check_lines(source: &Source, report: &mut Report) {
    for (index, line) in source.text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS {
            let message = format!("{chars} characters in a line, at most {LINE_CHARS}");
            report.add(&source.path, index + 1, message);
        }
    }
}

/// Checks the length of functions, from `fn` to the closing brace, without documentation and
/// attributes.
fn check_functions(source: &Source, report: &mut Report) {
    for at in source.find("fn") {
        let Some(name) = source.tokens.get(at + 1).filter(|name| name.kind == Kind::Word) else {
            continue;
        };
        let Some(open) = body(source, at) else { continue };
        let first = source.tokens[at].line;
        let lines = source.tokens[source.closing(open)].line + 1 - first;
        if lines > FUNCTION_LINES {
            let message = format!("`{}` has {lines} lines, at most {FUNCTION_LINES}", name.text);
            report.add(&source.path, first, message);
        }
    }
}

/// Index of the brace that opens the body of the function at `at`; `None` for a declaration.
fn body(source: &Source, at: usize) -> Option<usize> {
    let mut at = at;
    while let Some(token) = source.tokens.get(at) {
        if token.is("{") {
            return Some(at);
        } else if token.is(";") {
            return None;
        } else if token.is("(") || token.is("[") {
            at = source.closing(at);
        }
        at += 1;
    }
    None
}

fn check_file(source: &Source, report: &mut Report) {
    let mut lines = source.text.lines().count();
    for item in source.test_items.iter().filter(|item| item.inline_module) {
        let own = item.last + 1 - item.first;
        lines -= own;
        if own > INLINE_TEST_LINES {
            let message = format!(
                "inline tests of {own} lines, at most {INLINE_TEST_LINES}: move them to a file"
            );
            report.add(&source.path, item.first, message);
        }
    }
    if lines > FILE_LINES {
        let message = format!("{lines} lines in a file, at most {FILE_LINES} (without tests)");
        report.add(&source.path, 1, message);
    }
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::places;

    fn found(text: &str) -> Vec<String> {
        places("size", &[("memory/x/src/a.rs", text)])
    }

    #[test]
    fn lines_are_measured_in_characters() {
        assert_eq!(found(&format!("\n// {}", "é".repeat(98))), ["memory/x/src/a.rs:2"]);
        assert_eq!(found(&format!("\n// {}", "é".repeat(97))).len(), 0);
    }

    #[test]
    fn functions_are_measured_to_their_brace() {
        let function = |lines: usize| {
            format!("trait T {{ fn t(a: [u8; 4]); }}\nfn f()\n{{{}}}", "\n".repeat(lines - 2))
        };
        assert_eq!(found(&function(71)), ["memory/x/src/a.rs:2"]);
        assert_eq!(found(&function(70)).len(), 0);
    }

    #[test]
    fn files_are_measured_without_inline_tests() {
        assert_eq!(found(&"\n".repeat(601)), ["memory/x/src/a.rs:1"]);
        let with_tests =
            |tests| format!("{}#[cfg(test)]\nmod t {{{}}}\n", "\n".repeat(600), "\n".repeat(tests));
        assert_eq!(found(&with_tests(148)).len(), 0);
        assert_eq!(found(&with_tests(149)), ["memory/x/src/a.rs:601"]);
    }
}
