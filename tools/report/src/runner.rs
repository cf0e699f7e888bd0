//! Runs the sections one after the other within a time budget, with a progress display.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::sections::Section;
use crate::{Result, project};

const POLL: Duration = Duration::from_millis(100);
/// Time between the stop signal and the kill of a section, in which the section cleans up.
const GRACE: Duration = Duration::from_secs(20);
/// Multiple of the expected seconds after which a section is stopped; one minute is added.
const PATIENCE: u32 = 3;

/// Result of a section.
pub(super) struct Ran {
    pub(super) seconds: f64,
    /// Output, or the reason why there is none.
    pub(super) outcome: std::result::Result<Value, String>,
}

/// Settings shared by all sections of a run.
pub(super) struct Runner {
    pub(super) program: PathBuf,
    /// Folder for the output of the sections.
    pub(super) folder: PathBuf,
    pub(super) quick: bool,
    pub(super) root: bool,
    pub(super) budget: Duration,
}

impl Runner {
    /// Runs all sections; the results have the order of the sections.
    pub(super) fn run(&self, sections: &[&Section]) -> Result<Vec<Ran>> {
        fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot make {}: {error}", self.folder.display()))?;
        let start = Instant::now();
        let progress = Progress::new(sections, self.quick);
        let mut ran = Vec::new();
        for (at, section) in sections.iter().enumerate() {
            progress.begin(at);
            let left = self.budget.saturating_sub(start.elapsed());
            let one = self.one(section, left, |elapsed| progress.show(at, elapsed))?;
            progress.end(at, &one);
            ran.push(one);
        }
        progress.bar.finish_and_clear();
        Ok(ran)
    }

    fn one(&self, section: &Section, left: Duration, tick: impl FnMut(Duration)) -> Result<Ran> {
        let cost = Duration::from_secs(section.cost(self.quick));
        let skipped = |reason: &str| Ran { seconds: 0.0, outcome: Err(reason.to_owned()) };
        if section.root && !self.root {
            return Ok(skipped("needs root (or a user namespace: `unshare -Urn`)"));
        }
        if left < cost / 2 {
            return Ok(skipped("no time left: name fewer sections"));
        }
        let limit = (cost * PATIENCE + Duration::from_secs(60)).min(left);
        let start = Instant::now();
        let outcome = self.output(section, limit, tick)?;
        Ok(Ran { seconds: start.elapsed().as_secs_f64(), outcome })
    }

    /// Runs a section with its output in files, because a full pipe would block the section. The
    /// inner error is a failure of the section.
    fn output(
        &self,
        section: &Section,
        limit: Duration,
        tick: impl FnMut(Duration),
    ) -> Result<std::result::Result<Value, String>> {
        let file = |end: &str| self.folder.join(format!("{}.{end}", section.name));
        let (json, errors) = (file("json"), file("err"));
        let mut command = project::command(&self.program.to_string_lossy());
        command.args(section.words(self.quick)).stdin(Stdio::null());
        command.stdout(File::create(&json)?).stderr(File::create(&errors)?);
        let program = self.program.display();
        let child = command.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
        match wait(child, limit, tick)? {
            None => Ok(Err(format!("stopped: it took longer than {} s", limit.as_secs()))),
            Some(false) => Ok(Err(last_line(&errors))),
            Some(true) => {
                let text = fs::read_to_string(&json)?;
                Ok(serde_json::from_str(&text).map_err(|error| format!("no JSON: {error}")))
            }
        }
    }
}

/// True if the child succeeded, false if it failed; `None` if it had to be stopped.
fn wait(mut child: Child, limit: Duration, mut tick: impl FnMut(Duration)) -> Result<Option<bool>> {
    let start = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!asked).then(|| status.success()));
        }
        let elapsed = start.elapsed();
        if elapsed >= limit + GRACE {
            child.kill()?;
        } else if elapsed >= limit && !asked {
            asked = true;
            let pid = child.id().to_string();
            project::command("kill").args(["-INT", &pid]).stderr(Stdio::null()).status()?;
        }
        tick(elapsed);
        sleep(POLL);
    }
}

/// Last line of a program's errors, as the reason of its failure.
fn last_line(errors: &Path) -> String {
    let text = fs::read_to_string(errors).unwrap_or_default();
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map_or_else(|| "failed without output".to_owned(), |line| line.replace("error: ", ""))
}

/// Progress bar on a terminal; otherwise a line for each section.
struct Progress {
    bar: ProgressBar,
    plain: bool,
    names: Vec<&'static str>,
    /// Seconds of each section.
    costs: Vec<u64>,
}

impl Progress {
    fn new(sections: &[&Section], quick: bool) -> Self {
        let costs: Vec<u64> = sections.iter().map(|section| section.cost(quick)).collect();
        let bar = ProgressBar::new(costs.iter().sum());
        let style = ProgressStyle::with_template("{prefix} {bar:30} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let names = sections.iter().map(|section| section.name).collect();
        Self { bar, plain: !std::io::stderr().is_terminal(), names, costs }
    }

    fn label(&self, at: usize) -> String {
        format!("[{}/{}] {}", at + 1, self.names.len(), self.names[at])
    }

    fn begin(&self, at: usize) {
        self.bar.set_prefix(self.label(at));
        self.show(at, Duration::ZERO);
        if self.plain {
            let left = clock(left(&self.costs, at, 0));
            println!("{} ... (about {} s, all of it {left})", self.label(at), self.costs[at]);
        }
    }

    fn show(&self, at: usize, elapsed: Duration) {
        let before: u64 = self.costs[..at].iter().sum();
        let seconds = elapsed.as_secs();
        self.bar.set_position(before + seconds.min(self.costs[at]));
        self.bar
            .set_message(format!("{seconds} s, {} left", clock(left(&self.costs, at, seconds))));
    }

    fn end(&self, at: usize, ran: &Ran) {
        let text = match &ran.outcome {
            Ok(_) => format!("{} {:.0} s", self.label(at), ran.seconds),
            Err(reason) => format!("{} skipped: {reason}", self.label(at)),
        };
        self.bar.suspend(|| println!("{text}"));
    }
}

/// Remaining seconds. A section that exceeds its expected time counts as done.
fn left(costs: &[u64], at: usize, elapsed: u64) -> u64 {
    costs[at].saturating_sub(elapsed) + costs[at + 1..].iter().sum::<u64>()
}

fn clock(seconds: u64) -> String {
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &'static str, root: bool) -> Section {
        let (answers, packages) = ("What?", &[][..]);
        Section { name, answers, packages, root, seconds: 1, quick: None }
    }

    /// Creates a program that is a shell script. Another process writes the file: a file that this
    /// process has open for writing while another test forks could not be executed.
    fn program(name: &str, script: &str) -> Runner {
        let folder = project::target().join("bench-tests").join(name);
        fs::create_dir_all(&folder).unwrap();
        let (text, program) = (folder.join("text"), folder.join("program"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mut install = project::command("install");
        assert!(install.args(["-m", "755"]).args([&text, &program]).status().unwrap().success());
        Runner { program, folder, quick: false, root: false, budget: Duration::from_secs(3600) }
    }

    // Goal: the program gets the arguments of the section, and its JSON is returned.
    #[test]
    fn json_comes_back() {
        let runner = program("json", "echo \"[\\\"$*\\\"]\"");
        let ran = runner.run(&[&section("ring", false)]).unwrap();
        assert_eq!(ran[0].outcome, Ok(serde_json::json!(["ring --json"])));
    }

    // Goal: every failed section has a reason, and the following sections run.
    #[test]
    fn failures_are_reasons() {
        let script = "case $1 in a) echo 'error: no such device' >&2; exit 1;; b) echo hm;; \
                      *) echo 1;; esac";
        let runner = program("failures", script);
        let sections =
            [section("a", false), section("b", false), section("c", true), section("d", false)];
        let ran = runner.run(&sections.iter().collect::<Vec<_>>()).unwrap();
        let reasons: Vec<String> = ran
            .iter()
            .map(|ran| ran.outcome.as_ref().map_or_else(String::clone, Value::to_string))
            .collect();
        assert_eq!(reasons[0], "no such device");
        assert!(reasons[1].starts_with("no JSON") && reasons[2].starts_with("needs root"));
        assert_eq!(reasons[3], "1");
    }

    // Goal: a section that hangs is stopped, and a section without remaining time is not started.
    #[test]
    fn time_is_limited() {
        let mut child = project::command("sleep");
        let child = child.arg("598.25").spawn().unwrap();
        let id = child.id();
        assert_eq!(wait(child, Duration::from_millis(10), |_| {}).unwrap(), None);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let mut runner = program("budget", "echo 1");
        runner.budget = Duration::ZERO;
        let ran = runner.run(&[&section("a", false)]).unwrap();
        assert!(ran[0].outcome.as_ref().unwrap_err().starts_with("no time left"));
    }

    // Goal: the remaining time decreases, but not below the time of the following sections.
    #[test]
    fn time_left_counts_down() {
        let costs = [10, 20, 30];
        assert_eq!((left(&costs, 0, 0), left(&costs, 0, 4), left(&costs, 1, 99)), (60, 56, 30));
        assert_eq!(clock(125), "2:05 min");
    }
}
