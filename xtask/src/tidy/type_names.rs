//! One public type name, one definition in the workspace: a known name is a known type.

use std::collections::BTreeMap;

use super::Report;
use super::lex::Kind;
use super::repository::Repository;

/// Names that each module or crate may define: their meaning follows from the path.
const COMMON: [&str; 5] = ["Error", "Config", "Stats", "Builder", "Result"];

/// Names with several definitions, and their numbers. The list only shrinks.
const KNOWN: [(&str, usize); 57] = [
    ("Action", 2),
    ("Address", 2),
    ("Bell", 2),
    ("ChannelStats", 2),
    ("Channels", 2),
    ("Client", 2),
    ("Command", 2),
    ("Consumer", 3),
    ("Device", 7),
    ("Direction", 2),
    ("Driver", 3),
    ("Endpoint", 2),
    ("Event", 2),
    ("Feature", 2),
    ("FieldMatch", 2),
    ("FlowRule", 2),
    ("Found", 2),
    ("Head", 2),
    ("InOrder", 2),
    ("Insn", 2),
    ("Ivshmem", 2),
    ("Lane", 2),
    ("Limits", 2),
    ("Link", 2),
    ("Look", 2),
    ("Map", 2),
    ("Mode", 4),
    ("Nic", 2),
    ("Object", 2),
    ("OpenError", 2),
    ("Options", 2),
    ("Outcome", 2),
    ("Packet", 2),
    ("PagePool", 2),
    ("Part", 3),
    ("Piece", 2),
    ("Place", 7),
    ("Plan", 2),
    ("Producer", 2),
    ("Program", 2),
    ("Qdisc", 2),
    ("Queue", 3),
    ("Refusal", 2),
    ("Refused", 4),
    ("Request", 3),
    ("Segment", 2),
    ("Sender", 2),
    ("Server", 2),
    ("Side", 2),
    ("Spread", 2),
    ("Table", 3),
    ("Tap", 2),
    ("Used", 2),
    ("Verdict", 2),
    ("Wish", 2),
    ("XdpMode", 2),
    ("XdpProgram", 2),
];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    check_except(repository, report, &KNOWN);
}

fn check_except(repository: &Repository, report: &mut Report, known: &[(&str, usize)]) {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for source in repository.shipped() {
        for keyword in ["pub struct", "pub enum", "pub trait", "pub type", "pub union"] {
            for at in source.find(keyword) {
                let name = source.tokens.get(at + 2).filter(|token| token.kind == Kind::Word);
                let Some(name) = name else { continue };
                if !COMMON.contains(&&*name.text) && !source.is_test_line(name.line) {
                    places.entry(&name.text).or_default().push((&source.path, name.line));
                }
            }
        }
    }
    for (name, places) in places {
        let allowed = known.iter().find(|(known, _)| *known == name).map_or(1, |&(_, n)| n);
        let (found, (path, line)) = (places.len(), places[places.len() - 1]);
        if found > allowed {
            let others: Vec<&str> = places.iter().map(|(path, _)| *path).collect();
            let others = others.join(", ");
            report.add(path, line, format!("{found} public types are called `{name}`: {others}"));
        } else if found < allowed && allowed > 1 {
            let message = format!("{found} public types are called `{name}`: lower `KNOWN`");
            report.add(path, line, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::repository;

    #[test]
    fn a_name_has_one_definition() {
        let tree = repository(&[
            ("memory/x/src/a.rs", "pub struct Place; pub struct Error; pub(crate) struct Slot;"),
            ("device/y/src/b.rs", "pub enum Place {} pub struct Error; pub struct Slot;"),
        ]);
        let check = |known: &[(&str, usize)]| {
            let mut report = Report::default();
            check_except(&tree, &mut report, known);
            report.findings.len()
        };
        assert_eq!((check(&[]), check(&[("Place", 2)]), check(&[("Place", 3)])), (1, 0, 1));
    }
}
