//! Rule: each `repr(C)` struct and union, which is shared with a peer or the kernel, has a
//! compile-time assertion of its size in the same file.

use super::Report;
use super::repository::Repository;
use super::source::Source;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        for (name, line) in repr_c_types(source) {
            if !source.is_test_line(line) && !has_assertion(source, &name) {
                let message =
                    format!("no `const _: () = assert!(size_of::<{name}>() == N);` in this file");
                report.add(&source.path, line, message);
            }
        }
    }
}

/// Names and lines of the types with `repr(C, ...)`.
fn repr_c_types(source: &Source) -> Vec<(String, usize)> {
    let keywords = ["struct", "union"].into_iter().flat_map(|keyword| source.find(keyword));
    let laid_out = keywords.filter(|&at| {
        source.attributes_before(at).into_iter().any(|attribute| {
            attribute.clone().any(|at| {
                source.matches(at, "repr (")
                    && (at..source.closing(at + 1)).any(|inner| source.matches(inner, "C"))
            })
        })
    });
    laid_out
        .filter_map(|at| Some((source.tokens.get(at + 1)?.text.clone(), source.tokens[at].line)))
        .collect()
}

/// True if the file contains `const _: () = assert!(... size_of::<Name>() == ...);`, with any path
/// to the name.
fn has_assertion(source: &Source, name: &str) -> bool {
    source.find("const _ : ( ) =").any(|start| {
        let rest = &source.tokens[start..];
        let end = start + rest.iter().position(|token| token.is(";")).unwrap_or(rest.len());
        let mut sizes = (start..end).filter(|&at| source.matches(at, "size_of :: <"));
        sizes.any(|at| measured_name(source, at + 3) == name)
            && (start..end).any(|at| source.matches(at, "= ="))
            && (start..end).any(|at| source.matches(at, "assert !"))
    })
}

/// Last word of the path at `at`: `Name` of `crate::layout::Name<u8>`.
fn measured_name(source: &Source, at: usize) -> &str {
    let mut at = at;
    while source.tokens.get(at + 1).is_some_and(|token| token.is("::")) {
        at += 2;
    }
    source.tokens.get(at).map_or("", |token| &token.text)
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::findings;

    fn count(text: &str) -> usize {
        findings("repr-c", &[("memory/x/src/a.rs", text)]).len()
    }

    #[test]
    fn a_laid_out_type_needs_its_size() {
        assert_eq!(count("#[repr(C)]\n#[derive(Debug)]\npub(crate) struct A { a: u8 }"), 1);
        assert_eq!(count("#[repr(C, align(64))] union A { a: u8 }"), 1);
        assert_eq!(count("#[cfg_attr(not(loom), repr(C))] struct A;"), 1);
        assert_eq!(count("#[repr(transparent)] struct A(u8);\n#[repr(u8)] enum B {}"), 0);
    }

    #[test]
    fn only_an_assertion_of_its_size_counts() {
        let with = |rest: &str| count(&format!("#[repr(C)] struct A {{ a: u8 }}\n{rest}"));
        assert_eq!(with("const _: () = assert!(size_of::<A>() == 1);"), 0);
        assert_eq!(with("const _: () = assert!(core::mem::size_of::<super::A>() == 1, \"A\");"), 0);
        assert_eq!(with("const _: () = assert!(size_of::<B>() == 1);"), 1);
        assert_eq!(with("const _: () = assert!(size_of::<A>() <= 8);"), 1);
        assert_eq!(with("fn a() { assert!(size_of::<A>() == 1); }"), 1);
    }
}
