//! Recorded output of the program by section (`fixtures/bench.json`), for tests.
//!
//! The output was recorded in short runs: the figures have no meaning, the names are those that the
//! program prints.

use serde_json::Value;

use super::interval::Figure;
use super::limits::Limits;
use super::machine::Machine;
use super::measured::{self, Case, Line, Unit};
use super::promises::{self, Promise};
use super::report::{self, Report, Section};

fn raw(section: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../fixtures/bench.json")).unwrap();
    all[section].clone()
}

/// True if the section is recorded.
pub(super) fn has(section: &str) -> bool {
    !raw(section).is_null()
}

pub(super) fn cases(section: &str) -> Vec<Case> {
    measured::read(&raw(section)).unwrap().0
}

pub(super) fn section(name: &str) -> Section {
    let raw = raw(name);
    let (cases, notes) = measured::read(&raw).unwrap();
    let limits = Limits::of(&self::cases("limits"));
    Section {
        name: name.to_owned(),
        answers: "What?".to_owned(),
        command: format!("mqnet-bench {name}"),
        seconds: 1.0,
        kept: None,
        skipped: None,
        beside: cases.iter().filter_map(|case| limits.comparison(case)).collect(),
        notes,
        cases,
        raw,
    }
}

/// Report with the recorded output of `sections`.
pub(super) fn report(sections: &[&str]) -> Report {
    let sections: Vec<Section> = sections.iter().map(|name| section(name)).collect();
    let judge = |promise: &Promise| {
        let name = promise.section.as_deref().unwrap_or_default();
        promise.judge(sections.iter().find(|section| section.name == name), false)
    };
    Report {
        version: report::VERSION,
        date: "2026-11-22T12:00:00Z".to_owned(),
        commit: "0123456789ab".to_owned(),
        program: "target/release/mqnet-bench".to_owned(),
        quick: false,
        machine: Machine::this(),
        limits: Limits::of(&cases("limits")),
        peers: Vec::new(),
        promises: promises::table().unwrap().iter().map(judge).collect(),
        sections,
    }
}

/// Case with `contenders` (name and values), and the ratio of the first contender to each other
/// contender.
pub(super) fn case(
    name: &str,
    kind: &str,
    bytes: Option<u64>,
    contenders: &[(&str, &[f64])],
) -> Case {
    let line = |who: String, values: &[f64]| {
        let all = Figure::of(values);
        Line { who, skipped: None, all, near: None, far: None }
    };
    let lines = contenders.iter().map(|(who, values)| line((*who).to_owned(), values)).collect();
    let (first, ours) = contenders[0];
    let ratios = contenders[1..].iter().map(|(who, theirs)| {
        let values: Vec<f64> = ours.iter().zip(*theirs).map(|(a, b)| a / b).collect();
        line(format!("{first} / {who}"), &values)
    });
    let unit = Unit { kind: kind.to_owned(), bytes };
    Case { name: name.to_owned(), unit, lines, ratios: ratios.collect() }
}
