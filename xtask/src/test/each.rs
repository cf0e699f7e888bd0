//! Runs the tests of a package in separate processes with time limits, several in parallel where
//! allowed.
//!
//! Most tests need real kernels and traffic on shared machines. A test that fails at first, and
//! passes in a second attempt after all other tests, is unsteady: the run continues, the first
//! output is printed, and the table lists the test. An unsteady test is a bug of the test or of the
//! program. More than [`FEW`] failures in one step are not repeated.

use std::fs::File;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::output::{self, Outcome};
use super::process::{run_program, set_env};
use super::steps::Each;
use crate::{Result, kept, project};

/// Maximum number of failures in one step that are repeated.
const FEW: usize = 3;

/// Test program and its working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suite {
    /// Name of the cargo target.
    name: String,
    program: PathBuf,
    folder: PathBuf,
}

/// Prefix of the names of tests that belong to the step `hostile`.
const HOSTILE: &str = "hostile::";

/// Finished test.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) name: String,
    /// Log file.
    pub(super) log: PathBuf,
    pub(super) time: Duration,
    ok: bool,
}

/// Results of all tests.
#[derive(Debug, Default)]
pub(super) struct All {
    pub(super) passed: Vec<Ran>,
    /// Tests that failed and did not pass in a second attempt.
    pub(super) failed: Vec<Ran>,
    /// Tests that failed at first and passed in a second attempt.
    pub(super) unsteady: Vec<Ran>,
    pub(super) outcome: Outcome,
}

/// Runs tests of one package.
pub(super) struct Runner<'a> {
    pub(super) each: &'a Each,
    /// Commit for stored figures.
    pub(super) commit: &'a str,
    /// Words that select tests by name; empty for all.
    pub(super) words: &'a [String],
    /// Log with a line for each test and the output of the build.
    pub(super) log: &'a File,
    /// Folder with a file for each test.
    pub(super) folder: PathBuf,
    /// Deadline of all tests.
    pub(super) deadline: Instant,
    /// Called periodically with the names of the running tests.
    pub(super) tick: &'a (dyn Fn(&str) + Sync),
    /// Names of the running tests.
    pub(super) running: Mutex<Vec<String>>,
}

/// Progress shared by all lanes.
#[derive(Default)]
struct Turns {
    /// Index of the next test that any lane may run.
    next: AtomicUsize,
    begun: AtomicUsize,
    over: AtomicBool,
}

/// Test program and name of the test.
type Test = (Suite, String);

impl Runner<'_> {
    /// Builds and runs all tests.
    pub(super) fn run(self) -> Result<All> {
        std::fs::create_dir_all(&self.folder)?;
        let mut queue = Vec::new();
        let suites = match self.build()? {
            Ok(suites) => suites,
            Err(build) => return Ok(All::without_tests(build)),
        };
        for suite in suites {
            let mut names = list(&suite)?;
            names.retain(|name| {
                (self.words.is_empty() || self.words.iter().any(|word| name.contains(word)))
                    && name.starts_with(HOSTILE) == self.each.is_hostile
            });
            queue.extend(names.into_iter().map(|name| (suite.clone(), name)));
        }
        let (mut all, mut failed) = (All::default(), Vec::new());
        for (index, ran) in self.in_lanes(&queue)? {
            if ran.ok { all.passed.push(ran) } else { failed.push((&queue[index].0, ran)) }
        }
        let is_luck = self.each.second_try && failed.len() <= FEW && Instant::now() < self.deadline;
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

    /// Runs the tests in parallel lanes until all have run or the deadline is reached. Returns the
    /// finished tests with their indices in `queue`.
    fn in_lanes(&self, queue: &[Test]) -> Result<Vec<(usize, Ran)>> {
        let is_apart = |at: &usize| self.each.apart.iter().any(|word| queue[*at].1.contains(word));
        let (apart, shared): (Vec<usize>, Vec<usize>) = (0..queue.len()).partition(is_apart);
        let turns = Turns::default();
        let (turns, shared) = (&turns, &shared[..]);
        let lane = |own: &[usize]| {
            self.lane(queue, own, shared, turns).map_err(|error| {
                // Set `over`: the other lanes then start no more tests.
                turns.over.store(true, Ordering::Relaxed);
                error.to_string()
            })
        };
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let own = |number| if number == 0 { &apart[..] } else { &[] };
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..self.each.lanes.min(cpus))
                .map(|number| scope.spawn(move || lane(own(number))))
                .collect();
            let mut ran = Vec::new();
            for lane in lanes {
                ran.extend(lane.join().map_err(|_| "a lane of tests panicked")??);
            }
            Ok(ran)
        })
    }

    /// Runs the tests in `own`, then tests in `shared` that no lane has started.
    fn lane(
        &self,
        queue: &[Test],
        own: &[usize],
        shared: &[usize],
        turns: &Turns,
    ) -> Result<Vec<(usize, Ran)>> {
        let (mut ran, mut own) = (Vec::new(), own.iter());
        loop {
            let mut next = || shared.get(turns.next.fetch_add(1, Ordering::Relaxed));
            let Some(&index) = own.next().or_else(&mut next) else { return Ok(ran) };
            if turns.over.load(Ordering::Relaxed) {
                return Ok(ran);
            }
            let (_, name) = &queue[index];
            if Instant::now() >= self.deadline {
                // Several lanes may detect the end of the time simultaneously; each then reports a
                // failed entry.
                turns.over.store(true, Ordering::Relaxed);
                let left = queue.len() - turns.begun.load(Ordering::Relaxed);
                ran.push((index, self.not_run(name, left)?));
                return Ok(ran);
            }
            let number = turns.begun.fetch_add(1, Ordering::Relaxed) + 1;
            let label = format!("{number}/{} {name}", queue.len());
            ran.push((index, self.one(&queue[index].0, name, "log", &label)?));
        }
    }

    /// Builds the programs and returns their paths, or the failed build.
    ///
    /// The whole workspace is built: a single package enables fewer features of its dependencies,
    /// so cargo would build dependencies again for each package.
    fn build(&self) -> Result<std::result::Result<Vec<Suite>, Ran>> {
        let [list, log] = ["programs.json", "build.log"].map(|name| self.folder.join(name));
        let start = Instant::now();
        let mut cargo = project::command("cargo");
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--workspace"]);
        cargo.stdout(File::create(&list)?);
        File::create(&log)?;
        let ok = self.wait(&mut cargo, &log, Duration::MAX, "building")?;
        if !ok {
            let name = "the build of all tests".to_owned();
            return Ok(Err(Ran { name, log, time: start.elapsed(), ok }));
        }
        let of_package = |line| suite(line, self.each.package);
        let suites: Result<Vec<Suite>> = text(&list)?.lines().filter_map(of_package).collect();
        suites.map(Ok)
    }

    /// Returns a failed entry. Its log states that `left` tests did not run for lack of time.
    fn not_run(&self, name: &str, left: usize) -> Result<Ran> {
        let log = self.folder.join("not-run.log");
        std::fs::write(&log, format!("{left} tests did not run: the time of the step is over\n"))?;
        Ok(Ran { name: name.to_owned(), log, time: Duration::ZERO, ok: false })
    }

    fn one(&self, suite: &Suite, name: &str, extension: &str, label: &str) -> Result<Ran> {
        let file = format!("{}.{}.{extension}", suite.name, name.replace("::", "."));
        let log = self.folder.join(file);
        let mut program = project::command(&suite.program.to_string_lossy());
        program.current_dir(&suite.folder).args(["--exact", name, "--nocapture"]);
        // The log is truncated here; stdout and stderr are then both appended.
        File::create(&log)?;
        program.stdout(File::options().append(true).open(&log)?);
        set_env(&mut program, self.each.env)?;
        let figures = kept::OfTest::of(name, self.commit, &mut program)?;
        let start = Instant::now();
        let limit = Duration::from_secs(self.each.limit_seconds) * project::time_factor();
        // An ignored test also exits successfully, so a passed test is required.
        let ok =
            self.wait(&mut program, &log, limit, label)? && output::read(&text(&log)?).passed > 0;
        if let Err(error) = figures.settle(ok) {
            writeln!(&*self.log, "figures of {name}: {error}")?;
        }
        let (name, time) = (name.to_owned(), start.elapsed());
        let verdict = if ok { "ok" } else { "FAILED" };
        let line = format!("test {name} ... {verdict} ({:.1} s)\n", time.as_secs_f64());
        // One call writes the line, because lanes share the file.
        (&*self.log).write_all(line.as_bytes())?;
        Ok(Ran { name, log, time, ok })
    }

    /// Runs a failed test again; returns the passed attempt, or `None` if the test fails again.
    fn again(&self, suite: &Suite, name: &str, label: &str) -> Result<Option<Ran>> {
        let second = self.one(suite, name, "again.log", label)?;
        Ok(second.ok.then_some(second))
    }

    /// True if the program succeeds before its limit and before the deadline of the step.
    fn wait(
        &self,
        program: &mut Program,
        log: &Path,
        limit: Duration,
        label: &str,
    ) -> Result<bool> {
        let now = Instant::now();
        let deadline = now.checked_add(limit).map_or(self.deadline, |end| end.min(self.deadline));
        let mut file = File::options().create(true).append(true).open(log)?;
        program.stderr(file.try_clone()?);
        let running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running().push(label.to_owned());
        let status = run_program(program, deadline, || (self.tick)(&running().join(", ")));
        running().retain(|other| other != label);
        let status = status?;
        if status.is_none() {
            let seconds = now.elapsed().as_secs();
            writeln!(file, "\nxtask: killed after {seconds} s: no end in time")?;
        }
        Ok(status.is_some_and(|status| status.success()))
    }
}

impl All {
    /// Results of a failure before any test.
    fn without_tests(why: Ran) -> Self {
        let outcome = Outcome { failed: 1, ..Outcome::default() };
        Self { failed: vec![why], outcome, ..Self::default() }
    }
}

fn text(file: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(file)?).into_owned())
}

/// Test program of the package, if the line of cargo's output contains one; `None` otherwise.
fn suite(line: &str, package: &str) -> Option<Result<Suite>> {
    let message: Value = serde_json::from_str(line).ok()?;
    // Format: `path+file:///a/folder#name@version`
    let id = message["package_id"].as_str()?;
    let is_its = id.rsplit_once('#')?.1.strip_prefix(package)?.starts_with('@');
    let is_tests =
        is_its && message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_tests)?;
    let name = message["target"]["name"].as_str()?.to_owned();
    let manifest = message["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
    Some(match manifest {
        Some(folder) => Ok(Suite { name, program: program.into(), folder: folder.into() }),
        None => Err(format!("cargo does not report the package of {program}").into()),
    })
}

/// Names of the tests of a program.
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
        let line = r#"{"reason":"compiler-artifact",
            "package_id":"path+file:///p/tests/x#mqnet-x@0.1.0",
            "manifest_path":"/p/tests/x/Cargo.toml","target":{"name":"x"},
            "profile":{"test":true},"executable":"/p/target/debug/deps/x-1"}"#;
        let line = line.replace('\n', "");
        let found = suite(&line, "mqnet-x").unwrap().unwrap();
        let (program, folder) = ("/p/target/debug/deps/x-1".into(), "/p/tests/x".into());
        assert_eq!(found, Suite { name: "x".to_owned(), program, folder });
        assert!(suite(&line.replace("true", "false"), "mqnet-x").is_none(), "no tests");
        assert!(suite(&line, "mqnet").is_none(), "another package");
        assert!(suite("warning: something", "mqnet-x").is_none());
    }

    #[test]
    fn names_are_read() {
        assert_eq!(names("a::b: test\nc: test\nd: benchmark\n"), ["a::b", "c"]);
    }
}
