//! `cargo xtask test`: runs all checks in order until the first failure.

mod disk;
mod each;
mod failed;
mod output;
mod process;
mod steps;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mqnet_testkit::Figures;

use crate::{Result, kept, project, setup};
use each::{Ran, Runner};
use output::Outcome;
use steps::{STEPS, Step};

/// Maximum number of printed lines of a step that failed without a failed test; the log contains
/// all lines.
const SHOWN_LINES: usize = 300;
/// Maximum number of printed lines of a failed test; `LINE_CHARS` limits each line. Log viewers
/// show a limited number of lines for all failed tests together.
const TEST_LINES: usize = 60;
const LINE_CHARS: usize = 500;

/// Number of tests listed as the longest of a step.
const LONGEST: usize = 4;

/// Finished step.
struct Done {
    step: &'static Step,
    ok: bool,
    time: Duration,
    /// Duration of the last command of the step, after everything was built.
    last_command: Duration,
    outcome: Outcome,
    log: PathBuf,
    /// Failed, unsteady and longest tests among those with a separate process.
    failed: Vec<Ran>,
    unsteady: Vec<Ran>,
    longest: Vec<Ran>,
}

/// Prints the names of the steps.
pub(crate) fn list() {
    for step in STEPS {
        let choice = if step.by_choice { " (only when named)" } else { "" };
        println!("{:12} {}{choice}", step.name, step.title);
    }
}

/// Prepares the machine, runs the named steps (or all usual ones) and prints a table. `words`
/// select tests by name. Returns false after a failure.
pub(crate) fn run(names: &[String], words: &[String]) -> Result<bool> {
    let chosen = choose(names)?;
    if let (false, Some(step)) = (words.is_empty(), chosen.iter().find(|step| step.each.is_none()))
    {
        let name = step.name;
        return Err(format!(
            "{name} runs as a whole: name a step such as netns or guest before the words"
        )
        .into());
    }
    let missing = setup::run()?;
    if !missing.is_empty() && project::no_skip() {
        return Err("the above is missing, and MQNET_NO_SKIP=1 requires all tests".into());
    }
    let folder = project::target().join("xtask");
    std::fs::create_dir_all(&folder)?;
    if names.is_empty() {
        disk::warn_before();
    }
    let (mut done, commit): (Vec<Done>, _) = (Vec::new(), project::commit());
    for (index, step) in chosen.iter().enumerate() {
        let label = format!("[{}/{}] {} ...", index + 1, chosen.len(), step.title);
        let log = folder.join(format!("{}.log", step.name));
        done.push(run_step(step, words, &commit, &label, log)?);
        let last = &done[index];
        println!("{label} {} ({})", verdict(last), seconds(last.time));
        if !last.ok {
            show_failure(last)?;
            break;
        }
        show_unsteady(last)?;
    }
    let ran: usize = done.iter().map(|done| done.outcome.passed + done.outcome.failed).sum();
    if !words.is_empty() && ran == 0 {
        return Err(format!("no test has {} in its name", words.join(" or ")).into());
    }
    let ok = summarize(&done);
    if words.is_empty()
        && let Err(error) = keep_times(&done, &commit)
    {
        println!("xtask: times are not kept: {error}");
    }
    Ok(ok)
}

/// Stores the durations of steps that passed without a skip, and their sum if these are all usual
/// steps. After a failure or skip, the older stored duration of the step, and the older sum, are
/// deleted.
fn keep_times(done: &[Done], commit: &str) -> Result<()> {
    let figures = |name: &str, time: Duration| {
        let seconds = [time.as_secs_f64()];
        Figures::of("tests", name).case(name, "s", &[("this machine", &seconds)], &[])
    };
    let is_whole = |done: &Done| done.ok && done.outcome.skips.is_empty();
    for step in done {
        let figures = match step.step.name {
            "demo" => figures("mqnet demo", step.last_command),
            name => figures(&format!("step {name}, with what it builds"), step.time),
        };
        if is_whole(step) { kept::keep(figures, commit)? } else { kept::forget(&figures) }
    }
    let all = figures("all steps", done.iter().map(|done| done.time).sum());
    let ran = |step: &Step| done.iter().any(|done| done.step.name == step.name);
    let ran_all = STEPS.iter().filter(|step| !step.by_choice).all(ran);
    match done.iter().all(is_whole) {
        // The sum of other selections, or with steps by choice, is another figure.
        true if ran_all && !done.iter().any(|done| done.step.by_choice) => kept::keep(all, commit)?,
        true => {}
        false => kept::forget(&all),
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Step>> {
    for name in names {
        if !STEPS.iter().any(|step| step.name == name) {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            return Err(format!("no step `{name}`; allowed: {}", known.join(", ")).into());
        }
    }
    let is_named = |step: &Step| names.iter().any(|name| name == step.name);
    let is_chosen = |step: &&Step| if names.is_empty() { !step.by_choice } else { is_named(step) };
    Ok(STEPS.iter().filter(is_chosen).collect())
}

fn run_step(
    step: &'static Step,
    words: &[String],
    commit: &str,
    label: &str,
    log: PathBuf,
) -> Result<Done> {
    let start = Instant::now();
    let deadline = start + Duration::from_secs(step.limit_seconds) * project::time_factor();
    let mut progress = Progress::new(label, start);
    let mut file = File::create(&log)?;
    let (mut ok, mut last_command) = (true, Duration::ZERO);
    for command in step.commands {
        let begin = Instant::now();
        let status = process::run(command, &file, deadline, || progress.tick(""))?;
        if status.is_none() {
            let limit = step.limit_seconds;
            writeln!(file, "xtask: killed: `{}` hung for {limit} s", command.line)?;
        }
        ok = status.is_some_and(|status| status.success());
        last_command = begin.elapsed();
        if !ok {
            break;
        }
    }
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let mut all = each::All { outcome: output::read(&text), ..each::All::default() };
    if let Some(each) = step.each.as_ref().filter(|_| ok) {
        let folder = log.with_extension("");
        let progress = Mutex::new(&mut progress);
        let tick = &|what: &str| progress.lock().unwrap_or_else(PoisonError::into_inner).tick(what);
        let running = Mutex::default();
        let log = &file;
        all = Runner { each, words, commit, log, folder, deadline, tick, running }.run()?;
        ok = all.failed.is_empty();
    }
    drop(progress);
    let each::All { mut passed, failed, unsteady, mut outcome } = all;
    if ok && step.has_tests && words.is_empty() && outcome.passed + outcome.failed == 0 {
        println!("xtask: not a single test ran");
        ok = false;
    }
    ok &= outcome.failed == 0 && (outcome.skips.is_empty() || !project::no_skip());
    if !ok {
        // A step without a test harness, such as clippy, is counted as one failure.
        outcome.failed = outcome.failed.max(1);
    }
    passed.sort_by_key(|ran| std::cmp::Reverse(ran.time));
    passed.truncate(LONGEST);
    let (time, longest) = (start.elapsed(), passed);
    Ok(Done { step, ok, time, last_command, outcome, log, failed, unsteady, longest })
}

/// Progress line of a running step on a terminal.
struct Progress<'a> {
    label: &'a str,
    start: Instant,
    shown: Option<(u64, String)>,
}

impl<'a> Progress<'a> {
    fn new(label: &'a str, start: Instant) -> Self {
        Self { label, start, shown: None }
    }

    fn tick(&mut self, what: &str) {
        let now = Some((self.start.elapsed().as_secs(), what.to_owned()));
        if !std::io::stdout().is_terminal() || self.shown == now {
            return;
        }
        self.shown = now;
        print!("\r\x1b[K{} {} s  {what} ", self.label, self.start.elapsed().as_secs());
        // Errors are ignored: a closed terminal must not stop the tests.
        let _ = std::io::stdout().flush();
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            print!("\r\x1b[K");
        }
    }
}

fn verdict(done: &Done) -> &'static str {
    if done.ok { "ok" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn show_failure(done: &Done) -> Result<()> {
    let text = String::from_utf8_lossy(&std::fs::read(&done.log)?).into_owned();
    let names: Vec<&str> = failed::names(&text);
    if names.is_empty() && done.failed.is_empty() {
        show_end(&text, SHOWN_LINES);
    }
    // Failed tests are printed in the format of cargo's harness, for scripts that search for it.
    for name in names {
        println!("test {name} ... FAILED");
        show_end(failed::output(&text, name).unwrap_or("(no output)"), TEST_LINES);
    }
    for ran in &done.failed {
        println!("test {} ... FAILED ({})", ran.name, seconds(ran.time));
        show_log(ran)?;
    }
    show_unsteady(done)?;
    if project::no_skip() && !done.outcome.skips.is_empty() {
        println!("MQNET_NO_SKIP=1, and these were skipped:");
    }
    for reason in &done.outcome.skips {
        println!("SKIP: {reason}");
    }
    disk::explain_failure();
    println!("The whole output is in {}", done.log.display());
    Ok(())
}

fn show_log(ran: &Ran) -> Result<()> {
    show_end(&String::from_utf8_lossy(&std::fs::read(&ran.log)?), TEST_LINES);
    println!("Its whole output is in {}", ran.log.display());
    Ok(())
}

/// Prints the last `most` lines, each shortened to `LINE_CHARS` characters.
fn show_end(text: &str, most: usize) {
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(most);
    if hidden > 0 {
        println!("... {hidden} lines before these are in the log");
    }
    for line in &lines[hidden..] {
        match line.char_indices().nth(LINE_CHARS) {
            Some((at, _)) => println!("{}...", &line[..at]),
            None => println!("{line}"),
        }
    }
}

/// Prints the output of the first attempt of unsteady tests.
fn show_unsteady(done: &Done) -> Result<()> {
    for ran in &done.unsteady {
        let name = &ran.name;
        println!("UNSTEADY: {name} failed, and passed when it ran again, alone. Its first output:");
        show_log(ran)?;
    }
    Ok(())
}

/// Prints the table and a last line with sums for scripts.
fn summarize(done: &[Done]) -> bool {
    println!();
    println!("{:32} {:>8} {:>8} {:>8} {:>8}", "step", "result", "time", "passed", "skipped");
    for step in done {
        let (title, result, time) = (step.step.title, verdict(step), seconds(step.time));
        let Outcome { passed, skips, .. } = &step.outcome;
        println!("{title:32} {result:>8} {time:>8} {passed:>8} {:>8}", skips.len());
    }
    for done in done {
        for reason in &done.outcome.skips {
            println!("skipped in {}: {reason}", done.step.name);
        }
        for ran in &done.unsteady {
            println!("unsteady in {}: {}", done.step.name, ran.name);
        }
        let longest = done.longest.iter();
        let longest: Vec<_> =
            longest.map(|ran| format!("{} {}", ran.name, seconds(ran.time))).collect();
        if !longest.is_empty() {
            println!("longest in {}: {}", done.step.name, longest.join(", "));
        }
    }
    let passed: usize = done.iter().map(|done| done.outcome.passed).sum();
    let failed: usize = done.iter().map(|done| done.outcome.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}
