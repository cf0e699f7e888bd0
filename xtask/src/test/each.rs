//! The tests of a package, each in a process of its own, with a time limit of its own.
//!
//! They need real kernels and traffic, on machines that others use too. One that fails in its row
//! and passes at its second try, after all others, is called unsteady: it does not end the run, its
//! first output is shown as a failure's is, and the table names it. It is a bug, of the test or of
//! the program, until somebody has shown which; more than [`FEW`] of them at once are never luck.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::output::{self, Outcome};
use super::process::{run_program, set_env};
use super::steps::Each;
use crate::{Result, project};

/// Failures of one step that may be tried again.
const FEW: usize = 3;

/// A program of tests, and the folder that it expects to be run in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suite {
    program: PathBuf,
    folder: PathBuf,
}

/// A test that has run.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) name: String,
    /// What it said.
    pub(super) log: PathBuf,
    pub(super) time: Duration,
    ok: bool,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub(super) struct All {
    pub(super) passed: Vec<Ran>,
    /// Those that failed, and did so again if they were tried again.
    pub(super) failed: Vec<Ran>,
    /// Those that failed at first.
    pub(super) unsteady: Vec<Ran>,
    pub(super) outcome: Outcome,
}

/// Runs tests of one package.
pub(super) struct Runner<'a> {
    pub(super) each: &'a Each,
    /// Words of which a test's name has one; none: all run.
    pub(super) words: &'a [String],
    /// A line for each test, and the build.
    pub(super) log: &'a File,
    /// A file for each test.
    pub(super) folder: PathBuf,
    /// The end of all of them.
    pub(super) deadline: Instant,
    /// Called all the time, with what is running.
    pub(super) tick: &'a mut dyn FnMut(&str),
}

impl Runner<'_> {
    /// Builds and runs all of them.
    pub(super) fn run(mut self) -> Result<All> {
        std::fs::create_dir_all(&self.folder)?;
        let mut queue = Vec::new();
        let suites = match self.build()? {
            Ok(suites) => suites,
            Err(build) => return Ok(All::without_tests(build)),
        };
        for suite in suites {
            let mut names = list(&suite)?;
            names.retain(|name| {
                self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
            });
            queue.extend(names.into_iter().map(|name| (suite.clone(), name)));
        }
        let (mut all, mut failed) = (All::default(), Vec::new());
        for (number, (suite, name)) in (1..).zip(&queue) {
            if Instant::now() >= self.deadline {
                failed.push((suite, self.not_run(name, queue.len() + 1 - number)?));
                break;
            }
            let label = format!("{number}/{} {name}", queue.len());
            let ran = self.one(suite, name, "log", &label)?;
            if ran.ok { all.passed.push(ran) } else { failed.push((suite, ran)) }
        }
        let is_luck = failed.len() <= FEW && Instant::now() < self.deadline;
        for (suite, first) in failed {
            let label = format!("{} again", first.name);
            if is_luck && let Some(second) = self.again(suite, &first.name, &label)? {
                all.passed.push(second);
                all.unsteady.push(first);
            } else {
                all.failed.push(first);
            }
        }
        for ran in &all.passed {
            all.outcome.skips.extend(output::read(&text(&ran.log)?).skips);
        }
        (all.outcome.passed, all.outcome.failed) = (all.passed.len(), all.failed.len());
        Ok(all)
    }

    /// Builds the programs, and asks cargo where they are; the failed build otherwise.
    fn build(&mut self) -> Result<std::result::Result<Vec<Suite>, Ran>> {
        let [list, log] = ["programs.json", "build.log"].map(|name| self.folder.join(name));
        let start = Instant::now();
        let mut cargo = project::command("cargo");
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "-p"]);
        cargo.arg(self.each.package).stdout(File::create(&list)?);
        File::create(&log)?;
        let ok = self.wait(&mut cargo, &log, Duration::MAX, "building")?;
        if !ok {
            let name = format!("the build of {}", self.each.package);
            return Ok(Err(Ran { name, log, time: start.elapsed(), ok }));
        }
        let suites: Result<Vec<Suite>> = text(&list)?.lines().filter_map(suite).collect();
        suites.map(Ok)
    }

    /// The first of those for which no time is left.
    fn not_run(&mut self, name: &str, left: usize) -> Result<Ran> {
        let log = self.folder.join("not-run.log");
        std::fs::write(&log, format!("{left} tests did not run: the time of the step is over\n"))?;
        Ok(Ran { name: name.to_owned(), log, time: Duration::ZERO, ok: false })
    }

    fn one(&mut self, suite: &Suite, name: &str, extension: &str, label: &str) -> Result<Ran> {
        let log = self.folder.join(format!("{}.{extension}", name.replace("::", ".")));
        let mut program = project::command(&suite.program.to_string_lossy());
        program.current_dir(&suite.folder).args(["--exact", name, "--nocapture"]);
        // Anew; both its outputs go on behind each other.
        File::create(&log)?;
        program.stdout(File::options().append(true).open(&log)?);
        set_env(&mut program, self.each.env)?;
        let start = Instant::now();
        let limit = Duration::from_secs(self.each.limit_seconds);
        // One that the harness ignores ends well, too.
        let ok =
            self.wait(&mut program, &log, limit, label)? && output::read(&text(&log)?).passed > 0;
        let (name, time) = (name.to_owned(), start.elapsed());
        let verdict = if ok { "ok" } else { "FAILED" };
        writeln!(self.log, "test {name} ... {verdict} ({:.1} s)", time.as_secs_f64())?;
        Ok(Ran { name, log, time, ok })
    }

    /// The second try of a test, if that passed.
    fn again(&mut self, suite: &Suite, name: &str, label: &str) -> Result<Option<Ran>> {
        let second = self.one(suite, name, "again.log", label)?;
        Ok(second.ok.then_some(second))
    }

    /// True when it ended well, and in time.
    fn wait(
        &mut self,
        program: &mut Program,
        log: &Path,
        limit: Duration,
        label: &str,
    ) -> Result<bool> {
        let now = Instant::now();
        let deadline = now.checked_add(limit).map_or(self.deadline, |end| end.min(self.deadline));
        let mut file = File::options().create(true).append(true).open(log)?;
        program.stderr(file.try_clone()?);
        let status = run_program(program, deadline, || (self.tick)(label))?;
        if status.is_none() {
            let seconds = now.elapsed().as_secs();
            writeln!(file, "\nxtask: killed after {seconds} s: it hung")?;
        }
        Ok(status.is_some_and(|status| status.success()))
    }
}

impl All {
    /// None ran: this failed before them.
    fn without_tests(why: Ran) -> Self {
        let outcome = Outcome { failed: 1, ..Outcome::default() };
        Self { failed: vec![why], outcome, ..Self::default() }
    }
}

fn text(file: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(file)?).into_owned())
}

/// The program of tests that a line of cargo's tells of, if it does.
fn suite(line: &str) -> Option<Result<Suite>> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_tests = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_tests)?;
    let manifest = message["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
    Some(match manifest {
        Some(folder) => Ok(Suite { program: program.into(), folder: folder.into() }),
        None => Err(format!("cargo does not say where {program} comes from").into()),
    })
}

/// The names of its tests.
fn list(suite: &Suite) -> Result<Vec<String>> {
    let mut program = project::command(&suite.program.to_string_lossy());
    let output = program.args(["--list", "--format", "terse"]).output()?;
    if !output.status.success() {
        return Err(format!("{} cannot list its tests", suite.program.display()).into());
    }
    Ok(names(&String::from_utf8_lossy(&output.stdout)))
}

fn names(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/p/tests/x/Cargo.toml",
            "profile":{"test":true},"executable":"/p/target/debug/deps/x-1"}"#;
        let found = suite(&line.replace('\n', "")).unwrap().unwrap();
        let (program, folder) = ("/p/target/debug/deps/x-1".into(), "/p/tests/x".into());
        assert_eq!(found, Suite { program, folder });
        assert!(suite(&line.replace("true", "false").replace('\n', "")).is_none(), "no tests");
        assert!(suite("warning: something").is_none());
    }

    #[test]
    fn names_are_read() {
        assert_eq!(names("a::b: test\nc: test\nd: benchmark\n"), ["a::b", "c"]);
    }
}
