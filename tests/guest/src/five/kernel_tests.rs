//! The kernel's network tests on mqnet netdevs.

use std::time::Duration;

use serde_json::{Value, json};

use super::PAIRS;
use super::answers::Answer;
use super::report::aligned;
use crate::Result;
use crate::cards::Cards;
use crate::guest::{Guest, Outcome};

const SCRIPT: &str = include_str!("../../scripts/selftests.sh");
/// List with a line for each program. A mark at the start of a line selects the runs that include
/// its program (see [`When`]).
const LIST: &str = include_str!("../../scripts/selftests.list");
/// Environment variable with words. If it is set, programs with one of these words in their names
/// replace the default selection.
const CHOICE: &str = "MQNET_GUEST_SELFTESTS";

/// Number of netdevs of each kind.
const NETDEVS: u32 = 8;
/// virtio-net netdevs without receive offloads, for programs that need complete checksums (XDP).
const PLAIN: [u32; 2] = [2, 3];
const MEMORY_MIB: u32 = 1536;
/// Time limits: for the default tests of one folder, and for all folders or a user's selection.
const LIMIT: Duration = Duration::from_secs(560);
const LIMIT_CHOSEN: Duration = Duration::from_secs(3600);

/// Selection of the runs that include a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// All test runs.
    Tests,
    /// The comparison only (`-`): together these programs take minutes on a slow machine.
    Comparison,
    /// An explicit selection only (`~`): all cases are skipped on mqnet netdevs, or the program
    /// takes minutes.
    Choice,
}

/// Program in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    line: String,
    pub(super) when: When,
    place: String,
    file: String,
    /// Time limit in seconds.
    pub(super) seconds: u32,
}

impl Program {
    /// Parses the programs of a list without comment lines.
    pub(super) fn list(text: &str) -> Result<Vec<Self>> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Self::read).collect()
    }

    fn read(line: &str) -> Result<Self> {
        let (when, line) = match line.split_at_checked(1) {
            Some(("~", line)) => (When::Choice, line),
            Some(("-", line)) => (When::Comparison, line),
            _ => (When::Tests, line),
        };
        let words: Vec<&str> = line.split(' ').collect();
        let &[place, file, _first, _netdevs, seconds, ..] = words.as_slice() else {
            return Err(format!("no line of a kernel's test: {line}").into());
        };
        let (place, file, seconds) = (place.to_owned(), file.to_owned(), seconds.parse()?);
        Ok(Self { line: line.to_owned(), when, place, file, seconds })
    }

    fn name(&self) -> &str {
        self.file.split('.').next().unwrap_or_default()
    }

    pub(super) fn is_python(&self) -> bool {
        self.file.ends_with(".py")
    }

    /// Name in the tables: relative to `drivers/net` or `net`.
    pub(super) fn label(&self) -> String {
        let place = self.place.trim_start_matches("drivers/").trim_start_matches("net");
        let place = place.trim_start_matches('/');
        if place.is_empty() { self.name().to_owned() } else { format!("{place}/{}", self.name()) }
    }

    /// Output of the first attempt on netdevs of `side`, and of the second attempt if the first one
    /// failed.
    fn printed(&self, outcome: &Outcome, side: &str) -> Result<[String; 2]> {
        let place = self.place.replace('/', "-");
        let name = |of: &str| format!("selftests/{side}/{place}-{}.{of}", self.name());
        let second = outcome.text(&name("second")).unwrap_or_default();
        Ok([outcome.text(&name("first"))?, second])
    }

    /// True if the result belongs to a case of this program.
    fn gave(&self, answer: &Answer) -> bool {
        let rest = answer.test.strip_prefix(&self.label());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ' ']))
    }
}

/// Results of the tests.
#[derive(Clone, Debug)]
pub struct KernelTests {
    release: String,
    programs: Vec<Program>,
    answers: Vec<Answer>,
    known: Vec<Answer>,
}

impl KernelTests {
    pub(super) fn run(guest: Guest, place: &str, known: Vec<Answer>) -> Result<Self> {
        let choice = std::env::var(CHOICE).unwrap_or_default();
        let words: Vec<&str> = choice.split_whitespace().collect();
        let usual = if place.is_empty() { When::Comparison } else { When::Tests };
        let mut programs = Program::list(LIST)?;
        programs.retain(|program| match words.is_empty() {
            _ if !program.place.starts_with(place) => false,
            true => program.when <= usual,
            false => words.iter().any(|word| program.label().contains(word)),
        });
        if programs.is_empty() && words.is_empty() {
            return Err(format!("no program of the list is in {place}").into());
        }
        if programs.is_empty() {
            // The user's selection has no program in this folder.
            let release = "(not booted)".to_owned();
            return Ok(Self { release, programs, answers: Vec::new(), known });
        }
        let lines: Vec<&str> = programs.iter().map(|program| program.line.as_str()).collect();
        let head = format!("NETDEVS={NETDEVS} PROGRAMS='{}'\n", lines.join("\n"));
        let cards = Cards::start("selftests", NETDEVS, PAIRS)?;
        let limit = if words.is_empty() && !place.is_empty() { LIMIT } else { LIMIT_CHOSEN };
        let guest = guest.limit(limit).script("selftests", &(head + SCRIPT));
        let outcome = cards.put_into(guest, MEMORY_MIB, &PLAIN).run()?;
        println!("{}", outcome.passed("selftests")?.output);
        let mut answers = Vec::new();
        for program in &programs {
            let printed = |side| {
                let printed = program.printed(&outcome, side)?;
                if !printed[1].is_empty() {
                    let label = program.label();
                    println!(
                        "{side} {label}, its first try:\n{}\nits second:\n{}",
                        printed[0], printed[1]
                    );
                }
                Result::Ok(printed)
            };
            answers.extend(Answer::of(program, &printed("vduse")?, &printed("vhost-user")?)?);
        }
        Ok(Self { release: outcome.release, programs, answers, known })
    }

    /// Results that are not documented, and documented results that were not found, as table rows
    /// of the document.
    pub fn complaints(&self) -> Vec<String> {
        let row = |a: &Answer| format!("| {} | {} | {} |", a.test, a.vduse, a.vhost_user);
        let other = self.answers.iter().filter(|a| !self.known.contains(a));
        let ran = |a: &&Answer| self.programs.iter().any(|program| program.gave(a));
        let known = self.known.iter().filter(ran);
        let absent = known.filter(|a| !self.answers.contains(a));
        other
            .map(|a| format!("new end of a test: {}", row(a)))
            .chain(absent.map(|a| format!("not so any more: {}", row(a))))
            .collect()
    }

    /// Number of cases that passed on VDUSE, and number of cases that passed on virtio-net.
    pub fn passed(&self) -> (usize, usize) {
        let passed = |end: fn(&Answer) -> &String| {
            self.answers.iter().filter(|a| end(a).starts_with("pass")).count()
        };
        (passed(|a| &a.vduse), passed(|a| &a.vhost_user))
    }

    /// Readable table.
    pub fn table(&self) -> String {
        let mut rows = vec![["kernel's test", "vduse", "vhost-user"].map(str::to_owned)];
        let row = |a: &Answer| [&a.test, &a.vduse, &a.vhost_user].map(String::clone);
        rows.extend(self.answers.iter().map(row));
        format!("kernel {}\n\n{}", self.release, aligned(&rows))
    }

    /// Results as JSON.
    pub fn json(&self) -> Value {
        let answer =
            |a: &Answer| json!({ "test": a.test, "vduse": a.vduse, "vhost-user": a.vhost_user });
        json!({
            "kernel": self.release,
            "kernel-tests": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "complaints": self.complaints(),
        })
    }
}
