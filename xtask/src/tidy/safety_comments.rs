//! Rule: each unsafe block, implementation and foreign block has a comment with its soundness
//! argument. Each unsafe function and trait documents the requirements on its user.

use super::Report;
use super::lex::Kind;
use super::repository::Repository;
use super::source::Source;

/// Maximum number of lines from the end of a comment to its `unsafe`, which may be on a later line
/// of the same statement.
const REACH: usize = 4;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        let mut previous = 0;
        for at in source.find("unsafe") {
            let line = source.tokens[at].line;
            if is_declaration(source, at) {
                if !documented(source, at) && !reasoned(source, line, previous) {
                    report.add(
                        &source.path,
                        line,
                        "unsafe declaration without a `# Safety` section",
                    );
                }
            } else if needs_reason(source, at) {
                if line != previous && !reasoned(source, line, previous) {
                    report.add(&source.path, line, "unsafe code without a `// SAFETY:` comment");
                }
                previous = line;
            }
        }
    }
}

/// True for `unsafe fn name` and `unsafe trait Name`, false for the type `unsafe fn(u8)`.
fn is_declaration(source: &Source, at: usize) -> bool {
    let mut keyword = at + 1;
    if source.matches(keyword, "extern") {
        keyword += 1;
        if source.tokens.get(keyword).is_some_and(|token| token.kind == Kind::Literal) {
            keyword += 1;
        }
    }
    let is_keyword = source.matches(keyword, "fn") || source.matches(keyword, "trait");
    is_keyword && source.tokens.get(keyword + 1).is_some_and(|name| name.kind == Kind::Word)
}

/// True for unsafe blocks, implementations and foreign blocks, because the author of the block
/// guarantees soundness.
fn needs_reason(source: &Source, at: usize) -> bool {
    ["{", "impl", "extern"].iter().any(|next| source.matches(at + 1, next))
        && !source.tokens.get(at + 3).is_some_and(|token| token.is("fn"))
        && !source.matches(at + 2, "fn")
}

/// True if a SAFETY comment ends at most [`REACH`] lines above `line`, and below the `previous`
/// unsafe code: one comment covers one block.
fn reasoned(source: &Source, line: usize, previous: usize) -> bool {
    source.comment_near("SAFETY:", line.saturating_sub(REACH).max(previous + 1), line)
}

/// True if the documentation of the declaration has a `# Safety` section.
fn documented(source: &Source, at: usize) -> bool {
    let attributes = source.attributes_before(at);
    let first = attributes.last().map_or(at, |attribute| attribute.start);
    let line = source.tokens[first].line;
    source.comment_near("# Safety", line.saturating_sub(1), source.tokens[at].line)
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::places;

    fn lines(text: &str) -> Vec<String> {
        places("safety", &[("memory/sysio/src/a.rs", text)])
            .iter()
            .map(|place| place.rsplit(':').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_block_needs_its_own_reason() {
        assert_eq!(lines("fn a() {\n    unsafe { b() }\n}"), ["2"]);
        assert_eq!(lines("// SAFETY: it is.\nunsafe impl Send for A {}"), [""; 0]);
        assert_eq!(lines("// SAFETY: it is.\nlet a =\n    unsafe { b() };"), [""; 0]);
        assert_eq!(lines("// SAFETY: it is.\nunsafe { b() };\nunsafe { b() };"), ["3"]);
        assert_eq!(lines("// SAFETY: far.\n\n\n\n\n\n\nunsafe { b() };"), ["8"]);
    }

    #[test]
    fn a_declaration_needs_a_section() {
        assert_eq!(lines("/// Does it.\npub unsafe fn a() {}"), ["2"]);
        let good =
            "/// Does it.\n/// # Safety\n/// Never call it.\n#[inline]\npub unsafe fn a() {}";
        assert_eq!(lines(good), [""; 0]);
        assert_eq!(lines("/// Bad.\nunsafe extern \"C\" fn a() {}"), ["2"]);
        assert_eq!(lines("unsafe trait A {}"), ["1"]);
    }

    #[test]
    fn a_type_promises_nothing() {
        assert_eq!(lines("type A = unsafe fn(u8);\ntype B = unsafe extern \"C\" fn(u8);"), [""; 0]);
    }
}
