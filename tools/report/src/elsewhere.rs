//! Sections of the report that other commands measure: in guests, and under the traffic of tests.
//!
//! These commands store their figures in the build folder (`kept.rs`). This module reads the
//! figures with their date and commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use super::measured;
use super::report::{Kept, Section};
use crate::{Result, project};

/// Section measured by another command.
struct Elsewhere {
    name: &'static str,
    answers: &'static str,
    /// Command that measures the whole section.
    command: &'static str,
    /// Parts of the section; the section is skipped if one of them is missing.
    parts: &'static [&'static str],
}

#[rustfmt::skip]
const SECTIONS: &[Elsewhere] = &[
    Elsewhere { name: "resize", answers: "How long is traffic silent while a link changes?",
        command: "cargo xtask test netns -- resize retune",
        parts: &["no change", "200 resizes from one end", "200 resizes from either end",
            "both ends at once", "64 channels", "rings", "mtu", "another spread"] },
    Elsewhere { name: "loss", answers: "How long is traffic silent when a group loses a member?",
        command: "cargo xtask test netns -- group",
        parts: &["one of two TAPs deleted", "one of two windows cut, a to b",
            "one of two windows cut, b to a"] },
    Elsewhere { name: "idle", answers: "What does a link cost that has nothing to do?",
        command: "cargo xtask test netns -- idle", parts: &["link", "doorbells"] },
    Elsewhere { name: "guests", answers: "How long does a guest boot, and what crosses its nodes?",
        command: "cargo xtask test guest -- boot near",
        parts: &["boot 6.1", "boot 7.3", "nodes"] },
    Elsewhere { name: "tunnel", answers: "What does a ring that stops bring TCP on a slow path?",
        command: "cargo xtask guest --bench tunnel", parts: &["tunnel"] },
    Elsewhere { name: "ivshmem", answers: "How fast are two guests that share a memory, against \
        virtio cards at a bridge?",
        command: "cargo xtask guest --bench ivshmem", parts: &["ivshmem"] },
    Elsewhere { name: "ntb", answers: "How fast is a guest's ntb_netdev, against vhost-user and \
        ivshmem?",
        command: "cargo xtask guest --bench ntb", parts: &["ntb"] },
    Elsewhere { name: "tests", answers: "How long do the tests take, and the demo?",
        command: "cargo xtask test",
        parts: &["all steps", "step guest, with what it builds", "mqnet demo"] },
];

/// Stored part of a section.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Part {
    part: String,
    unix_time: u64,
    commit: String,
    /// Build profile of the measured program.
    profile: String,
    notes: Vec<String>,
    cases: Vec<Value>,
}

/// Command that measures the named section; `None` for a section that `cargo xtask bench` measures.
pub(super) fn command(name: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|section| section.name == name).map(|section| section.command)
}

/// Names, questions and commands of the sections.
pub(super) fn list() -> impl Iterator<Item = [&'static str; 3]> {
    SECTIONS.iter().map(|section| [section.name, section.answers, section.command])
}

/// Replaces the sections of other commands by the stored sections. A section without stored figures
/// is skipped with a reason.
pub(super) fn add(sections: &mut Vec<Section>) {
    sections.retain(|section| command(&section.name).is_none());
    sections.extend(SECTIONS.iter().map(|section| read_in(section, &project::figures())));
}

fn read_in(section: &Elsewhere, folder: &Path) -> Section {
    let mut read = Section {
        name: section.name.to_owned(),
        answers: section.answers.to_owned(),
        command: section.command.to_owned(),
        ..Section::default()
    };
    let figures = parts(section, folder).and_then(join).and_then(|(kept, raw)| {
        let (cases, notes) = measured::read(&raw)?;
        Ok((kept, raw, cases, notes))
    });
    match figures {
        Ok((kept, raw, cases, notes)) => {
            (read.kept, read.raw, read.cases, read.notes) = (Some(kept), raw, cases, notes);
        }
        Err(why) => read.skipped = Some(format!("{why}; `{}` measures it", section.command)),
    }
    read
}

/// Stored parts of a section, in the order of the section. Files of other parts are left-overs of
/// removed or renamed tests. Missing parts are an error.
fn parts(section: &Elsewhere, folder: &Path) -> Result<Vec<Part>> {
    let begin = format!("{}.", section.name);
    let is_own = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&begin))
    };
    // A missing folder is treated as empty.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut kept = Vec::new();
    for path in entries.map(|entry| entry.path()).filter(is_own) {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read(&path).map_err(|error| failed(&error))?;
        let part: Value = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        if section.parts.iter().any(|name| part["part"] == *name) {
            kept.push(Part::deserialize(part).map_err(|error| failed(&error))?);
        }
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in section.parts {
        match kept.iter().position(|part| part.part == *name) {
            Some(at) => found.push(kept.swap_remove(at)),
            None => missing.push(*name),
        }
    }
    match missing.as_slice() {
        [] => Ok(found),
        _ => Err(format!("not measured yet: {}", missing.join(", ")).into()),
    }
}

/// Combines all parts into the output of one section, with the date and commit of the oldest part.
fn join(parts: Vec<Part>) -> Result<(Kept, Value)> {
    let oldest = parts.iter().min_by_key(|part| part.unix_time).ok_or("a section of nothing")?;
    let kept = Kept { date: date(oldest.unix_time), commit: oldest.commit.clone() };
    let (mut notes, mut cases) = (Vec::new(), Vec::new());
    for Part { part, unix_time, commit, profile, notes: own, cases: its } in parts {
        let date = date(unix_time);
        notes.push(format!("{part}: of {date}, commit {commit}, profile {profile}"));
        notes.extend(own);
        cases.extend(its);
    }
    Ok((kept, json!({ "notes": notes, "cases": cases })))
}

/// Last second that the format supports.
const DATE_MAX: u64 = 253_402_300_799;

fn date(unix_time: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(unix_time.min(DATE_MAX));
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use mqnet_testkit::Figures;

    use super::super::sections;
    use super::*;

    // Goal: no section has the name of another section, and each section has a question.
    #[test]
    fn names_are_their_own() {
        for (at, section) in SECTIONS.iter().enumerate() {
            let measured = sections::SECTIONS.iter().map(|other| other.name);
            let mut others = measured.chain(SECTIONS[..at].iter().map(|other| other.name));
            assert!(others.all(|other| other != section.name), "{}", section.name);
            assert!(section.answers.ends_with('?') && section.command.starts_with("cargo xtask"));
        }
    }

    // Goal: stored parts form one section with the date of the oldest part, without obsolete parts.
    // If a part is missing or unreadable, the section states that part and the command that
    // measures it.
    #[test]
    fn what_is_kept_is_read() {
        let folder = project::target().join("bench-tests").join("elsewhere");
        let _ = fs::remove_dir_all(&folder);
        let (answers, command) = ("What?", "cargo xtask test x");
        let section = Elsewhere { name: "resize", answers, command, parts: &["a", "b"] };
        let skipped = || read_in(&section, &folder).skipped.unwrap();
        assert_eq!(skipped(), "not measured yet: a, b; `cargo xtask test x` measures it");
        let keep = |name: &str, part: &str, samples: &[f64]| {
            let figures = Figures::of(name, part).verdict(true, &format!("{part}: good"));
            let figures = figures.case(part, "ms", &[("silence", samples)], &[]);
            figures.keep_in(&folder, "0123", "tested").unwrap();
        };
        keep("resize", "b", &[1.0, 3.0]);
        keep("resized", "a", &[1.0]);
        keep("resize", "of old", &[1.0]);
        assert!(skipped().starts_with("not measured yet: a; "));
        keep("resize", "a", &[5.0]);
        let read = read_in(&section, &folder);
        assert_eq!(read.kept.unwrap().commit, "0123");
        assert_eq!(read.cases.iter().map(|case| &*case.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read.cases[1].lines[0].all.unwrap().median, 2.0);
        assert!(read.notes.contains(&"kept: b: good".to_owned()), "{:?}", read.notes);
        fs::write(folder.join("resize.c.json"), r#"{"part": "c"}"#).unwrap();
        assert_eq!(read_in(&section, &folder).skipped, None);
        fs::write(folder.join("resize.a.json"), r#"{"part": "a"}"#).unwrap();
        assert!(skipped().contains("resize.a.json") && skipped().contains(command));
        assert!(date(u64::MAX).starts_with("9999-12-31"));
    }
}
