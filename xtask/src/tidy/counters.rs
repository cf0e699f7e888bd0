//! Rule: every counter is counted somewhere.

use std::collections::BTreeMap;

use super::Report;
use super::lex::Kind;
use super::repository::Repository;
use super::source::Source;

/// Methods that change a counter.
const COUNTING: [&str; 3] = ["add", "inc", "set"];

/// Reports counters without code that counts them. If several types have a counter of one name,
/// that name must be counted in at least as many places.
pub(super) fn check(repository: &Repository, report: &mut Report) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for name in repository.shipped().flat_map(counted_names) {
        *places.entry(name).or_default() += 1;
    }
    for source in repository.shipped() {
        for (name, line) in declared(source) {
            match places.get_mut(name) {
                Some(left) if *left > 0 => *left -= 1,
                Some(_) => {
                    let message = format!("more counters `{name}` than places that count one");
                    report.add(&source.path, line, message);
                }
                None => {
                    let message = format!("counter `{name}` is never counted: no `.{name}.add(`");
                    report.add(&source.path, line, message);
                }
            }
        }
    }
}

/// Names and lines of fields of type `Counter`, `path::Counter` or `[Counter; N]` outside tests.
fn declared(source: &Source) -> impl Iterator<Item = (&str, usize)> {
    let tokens = &source.tokens;
    source.find("Counter").filter_map(move |at| {
        let ends = [",", "}", ";"].iter().any(|mark| source.matches(at + 1, mark));
        let mut start = at;
        while start > 1 && tokens[start - 1].is("::") {
            start -= 2;
        }
        if start > 0 && tokens[start - 1].is("[") {
            start -= 1;
        } else if tokens.get(at + 1)?.is(";") {
            return None;
        }
        let colon = start.checked_sub(1)?;
        let name = tokens.get(colon.checked_sub(1)?)?;
        // `$name: Counter` and `$name:ident: Counter` are patterns of a macro. The macro's call
        // contains the names.
        let before = colon.checked_sub(2).and_then(|at| tokens.get(at));
        let is_pattern = before.is_some_and(|token| token.is("$") || token.is(":"));
        let is_field = ends && tokens[colon].is(":") && name.kind == Kind::Word && !is_pattern;
        (is_field && !source.is_test_line(name.line)).then_some((&name.text[..], name.line))
    })
}

/// Names in `.name.add(` and `.name[index].add(` outside tests, with any method of [`COUNTING`],
/// also over several lines.
fn counted_names(source: &Source) -> impl Iterator<Item = &str> {
    let tokens = &source.tokens;
    source.find(".").filter_map(move |at| {
        let name = tokens.get(at + 1).filter(|name| name.kind == Kind::Word)?;
        let mut dot = at + 2;
        if tokens.get(dot)?.is("[") {
            dot = source.closing(dot) + 1;
        }
        let counts = COUNTING.iter().any(|method| source.matches(dot, &format!(". {method} (")));
        (counts && !source.is_test_line(name.line)).then_some(&name.text[..])
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::findings;

    fn count(text: &str) -> usize {
        findings("counter", &[("memory/x/src/a.rs", text)]).len()
    }

    #[test]
    fn a_counter_must_be_counted() {
        assert_eq!(count("struct S { pub rx: Counter, tx: crate::Counter }"), 2);
        assert_eq!(count("struct S { rx: Counter }\nfn f(s: &S) { s.stats\n .rx\n .add(1); }"), 0);
        assert_eq!(count("struct S { rx: Counter }\nfn f(s: &S) { s.rx.get(); }"), 1);
        assert_eq!(
            count("struct S { rx: Counter }\n#[cfg(test)] mod t { fn f() { s.rx.inc() } }"),
            1
        );
    }

    #[test]
    fn one_place_cannot_count_for_two() {
        let two = "struct R { kicks: Counter }\nstruct T { kicks: Counter }\n";
        assert_eq!(count(&format!("{two}fn f() {{ r.kicks.add(1); }}")), 1);
        assert_eq!(count(&format!("{two}fn f() {{ r.kicks.add(1); t.kicks.add(1); }}")), 0);
    }

    #[test]
    fn arrays_count_by_index() {
        assert_eq!(count("struct S { drops: [Counter; 4] }"), 1);
        assert_eq!(count("struct S { drops: [Counter; 4] }\nfn f() { s.drops[a[0]].inc(); }"), 0);
    }

    #[test]
    fn only_fields_declare() {
        assert_eq!(count("use a::{Counter, B};\nfn f(c: &Counter, d: Counter) -> Counter {}"), 0);
        assert_eq!(count("macro_rules! m { ($name:ident) => { struct S { $name: Counter } } }"), 0);
        assert_eq!(count("macro_rules! m { ($name:ident: Counter, $other:tt) => {} }"), 0);
        assert_eq!(count("table! { S { name: Counter, \"help\" => lane; } }"), 1);
    }
}
