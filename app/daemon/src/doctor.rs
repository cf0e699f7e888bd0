//! `mqnet doctor`: what this kernel and this user can do, and which knob changes that.

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
    /// JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// First put back what a killed mqnet has left of queues, tables, interrupts and XPS (every
    /// start of a link does)
    #[arg(long)]
    pub(crate) put_back: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok,
    /// It works, but not as well as it could, or is not known.
    Warn,
    No,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Check {
    level: Level,
    what: &'static str,
    /// What was found.
    found: String,
    /// What it is good for.
    why: &'static str,
    /// What to do when it is not ok.
    #[serde(skip_serializing_if = "String::is_empty")]
    knob: String,
    /// True when neither a TAP nor a bridge works without it.
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

/// Where facts are read, so that tests can make other machines.
struct Root<'a>(&'a Path);

impl Root<'_> {
    /// The trimmed text of a file.
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

    /// Names in a directory.
    fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Whether a device can be opened for reading and writing.
    fn open(&self, path: &str) -> std::io::Result<()> {
        std::fs::File::options().read(true).write(true).open(self.0.join(path)).map(drop)
    }
}

/// Runs the command.
pub fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if args.put_back {
        // Where the answer is JSON it stays so.
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
            "something that TAPs or bridges need is missing"
        } else {
            "links can run here"
        }
    );
    out
}

#[cfg(test)]
mod tests;
