//! `mqnet doctor`: features of this kernel and privileges of this user, each with the setting that
//! enables it.

mod caps;
mod kernel;
mod machine;
mod tun;

use std::io::Write;
use std::path::Path;

use clap::Args;
use mqnet_command::{Failure, json_text, put};
use serde::Serialize;

use crate::leftovers;

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// First restore the queues, tables, interrupts and XPS that a killed mqnet has left changed
    /// (every start of a link does this).
    #[arg(long)]
    pub(crate) put_back: bool,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok,
    /// The feature works with limits, or its state is unknown.
    Warn,
    No,
}

/// Report of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Check {
    level: Level,
    what: &'static str,
    /// State that the check found.
    found: String,
    /// Purpose of the feature.
    why: &'static str,
    /// Advice, if the result is not ok.
    #[serde(skip_serializing_if = "String::is_empty")]
    knob: String,
    /// True if TAP devices and bridges need the feature.
    needed: bool,
}

impl Check {
    fn new(what: &'static str, why: &'static str) -> Self {
        let (level, found, knob) = (Level::Ok, String::new(), String::new());
        Self { level, what, found, why, knob, needed: false }
    }

    fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    fn ok(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    fn warn(self, found: impl Into<String>, knob: impl Into<String>) -> Self {
        Self { level: Level::Warn, found: found.into(), knob: knob.into(), ..self }
    }

    fn no(self, found: impl Into<String>, knob: impl Into<String>) -> Self {
        Self { level: Level::No, found: found.into(), knob: knob.into(), ..self }
    }
}

/// Root folder of all files that the checks read: `/`, except in tests.
struct Root<'a>(&'a Path);

impl Root<'_> {
    /// Trimmed text of a file; `None` if the file cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    fn exists(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// Names in a directory, sorted; empty if the directory cannot be read.
    fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Tries to open a file for reading and writing.
    fn open(&self, path: &str) -> std::io::Result<()> {
        std::fs::File::options().read(true).write(true).open(self.0.join(path)).map(drop)
    }
}

/// Runs the command. Exit status 1 if a requirement is missing, or if settings remain after
/// `--put-back`.
pub fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if args.put_back {
        // Messages go to stderr, so that stdout stays JSON.
        leftovers::put_back(leftovers::PATIENCE).iter().for_each(|what| eprintln!("{what}"));
    }
    let checks = examine(&Root(Path::new("/")));
    put(out, &if args.json { json_text(&checks, true)? } else { text(&checks) })?;
    if is_missing_basics(&checks) || args.put_back && !leftovers::all().is_empty() {
        Err(Failure::Exit(1))
    } else {
        Ok(())
    }
}

fn examine(root: &Root<'_>) -> Vec<Check> {
    let caps = caps::Caps::read(root);
    let mut checks = vec![kernel::version(root)];
    checks.extend(tun::checks(root, &caps));
    checks.extend(kernel::checks(root, &caps));
    checks.extend(machine::checks(root));
    checks
}

fn is_missing_basics(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.needed && check.level == Level::No)
}

fn text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let level = match check.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::No => "no  ",
        };
        out += &format!("{level}  {:<width$}  {}\n", check.what, check.found);
        if check.level != Level::Ok {
            let indent = " ".repeat(width + 8);
            out += &format!("{indent}why: {}\n{indent}do:  {}\n", check.why, check.knob);
        }
    }
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    out += &format!(
        "{} ok, {} warnings, {} missing: {}\n",
        count(Level::Ok),
        count(Level::Warn),
        count(Level::No),
        if is_missing_basics(checks) {
            "a requirement of TAPs or bridges is missing"
        } else {
            "links can run on this machine"
        }
    );
    out
}

#[cfg(test)]
mod tests;
