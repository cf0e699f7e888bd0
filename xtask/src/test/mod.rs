//! `cargo xtask test`: everything that must hold, in order, until the first failure.

mod again;
mod output;
mod process;
mod steps;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Result, project, setup};
use output::Outcome;
use steps::{Command, STEPS, Step};

/// Lines of a step that failed without a test that did; the log has all of them.
const SHOWN_LINES: usize = 300;
/// Lines of a failed test, and characters of a line: whoever reads sees the ends of them all, on a
/// page that keeps only so much.
const TEST_LINES: usize = 60;
const LINE_CHARS: usize = 500;

/// A finished step.
struct Done {
    step: &'static Step,
    ok: bool,
    time: Duration,
    outcome: Outcome,
    log: PathBuf,
    /// Tests that failed first, and passed when they ran again, alone.
    unsteady: Vec<String>,
}

/// Prints the names of the steps.
pub(crate) fn list() {
    for step in STEPS {
        println!("{:12} {}", step.name, step.title);
    }
}

/// Sets up, runs the steps named (or all), prints a table. False when something failed.
pub(crate) fn run(names: &[String]) -> Result<bool> {
    let chosen = choose(names)?;
    let missing = setup::run()?;
    if !missing.is_empty() && project::no_skip() {
        return Err("the above is missing, and MQNET_NO_SKIP=1 asks for all tests".into());
    }
    let folder = project::target().join("xtask");
    std::fs::create_dir_all(&folder)?;
    let mut done: Vec<Done> = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        let label = format!("[{}/{}] {} ...", index + 1, chosen.len(), step.title);
        let log = folder.join(format!("{}.log", step.name));
        done.push(run_step(step, &label, log)?);
        let last = &done[index];
        println!("{label} {} ({})", verdict(last), seconds(last.time));
        if !last.ok {
            show_failure(last)?;
            break;
        }
        show_unsteady(last)?;
    }
    Ok(summarize(&done))
}

fn choose(names: &[String]) -> Result<Vec<&'static Step>> {
    for name in names {
        if !STEPS.iter().any(|step| step.name == name) {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            return Err(format!("no step `{name}`; there are: {}", known.join(", ")).into());
        }
    }
    let is_chosen = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(is_chosen).collect())
}

/// Where the second try of a step goes.
fn again_log(log: &Path) -> PathBuf {
    log.with_extension("again.log")
}

fn run_step(step: &'static Step, label: &str, log: PathBuf) -> Result<Done> {
    let start = Instant::now();
    let deadline = start + Duration::from_secs(step.limit_seconds);
    let mut ok = true;
    let file = File::create(&log)?;
    // One of an earlier run, if there is one.
    let _ = std::fs::remove_file(again_log(&log));
    for command in step.commands {
        ok = run_command(step, command, None, &file, (start, deadline), label)?;
        if !ok {
            break;
        }
    }
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let mut outcome = output::read(&text);
    let mut unsteady = Vec::new();
    if let Some(command) = step.commands.last().filter(|_| step.tries_again && !ok) {
        let names = again::candidates(&text);
        if !names.is_empty() && names.len() == outcome.failed {
            let log = again_log(&log);
            let (file, times) = (File::create(&log)?, (start, deadline));
            ok = run_command(step, command, Some(&names), &file, times, label)?;
            let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
            let second = output::read(&text);
            let still = again::failed(&text);
            if second.passed + still.len() == names.len() {
                outcome.passed += second.passed;
                outcome.failed = still.len();
                outcome.skips.extend(second.skips);
                let passed = names.into_iter().filter(|name| !still.contains(name));
                unsteady = passed.map(str::to_owned).collect();
            }
        }
    }
    if ok && step.has_tests && outcome.passed + outcome.failed == 0 {
        println!("xtask: not a single test ran");
        ok = false;
    }
    ok &= outcome.failed == 0 && (outcome.skips.is_empty() || !project::no_skip());
    if !ok {
        // A step without a test harness, such as clippy, fails as one.
        outcome.failed = outcome.failed.max(1);
    }
    Ok(Done { step, ok, time: start.elapsed(), outcome, log, unsteady })
}

/// Runs one command of a step, or only the named tests of it; true when it succeeded in time.
fn run_command(
    step: &Step,
    command: &Command,
    tests: Option<&[&str]>,
    mut file: &File,
    (start, deadline): (Instant, Instant),
    label: &str,
) -> Result<bool> {
    let terminal = std::io::stdout().is_terminal();
    let mut shown = None;
    let tick = || {
        let elapsed = start.elapsed().as_secs();
        if terminal && shown != Some(elapsed) {
            shown = Some(elapsed);
            print!("\r{label} {elapsed} s ");
            // A terminal that went away is no reason to stop the tests.
            let _ = std::io::stdout().flush();
        }
    };
    // Exactly these: `xdp::a` is part of the name `af_xdp::a`, too.
    let more = tests.map_or(Vec::new(), |names| [&["--exact"], names].concat());
    let status = process::run(command, &more, file, deadline, tick)?;
    if status.is_none() {
        let limit = step.limit_seconds;
        writeln!(file, "xtask: killed: `{}` hung for {limit} s", command.line)?;
    }
    if terminal {
        print!("\r\x1b[K");
    }
    Ok(status.is_some_and(|status| status.success()))
}

fn verdict(done: &Done) -> &'static str {
    if done.ok { "ok" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn show_failure(done: &Done) -> Result<()> {
    let text = String::from_utf8_lossy(&std::fs::read(&done.log)?).into_owned();
    let failed: Vec<&str> = again::failed(&text);
    if failed.is_empty() {
        show_end(&text, SHOWN_LINES);
    }
    for name in failed {
        let is_unsteady = done.unsteady.iter().any(|known| known == name);
        // As cargo's harness says it, for scripts that look for it.
        println!("test {name} ... {}", if is_unsteady { "unsteady" } else { "FAILED" });
        show_end(again::output(&text, name).unwrap_or("(no output)"), TEST_LINES);
    }
    if project::no_skip() && !done.outcome.skips.is_empty() {
        println!("MQNET_NO_SKIP=1, and these were skipped:");
    }
    for reason in &done.outcome.skips {
        println!("SKIP: {reason}");
    }
    println!("The whole output is in {}", done.log.display());
    let again = again_log(&done.log);
    if again.exists() {
        println!("and that of the second try in {}", again.display());
    }
    Ok(())
}

/// The last lines of it, none of them long.
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

/// What is known of tests that passed only when they ran again.
fn show_unsteady(done: &Done) -> Result<()> {
    let text = String::from_utf8_lossy(&std::fs::read(&done.log)?).into_owned();
    for name in &done.unsteady {
        println!("UNSTEADY: {name} failed, and passed when it ran again, alone. Its first output:");
        show_end(again::output(&text, name).unwrap_or("(no output)"), TEST_LINES);
    }
    Ok(())
}

/// The table, and as the last line the sum that scripts read.
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
        for name in &done.unsteady {
            println!("unsteady in {}: {name}", done.step.name);
        }
    }
    let passed: usize = done.iter().map(|done| done.outcome.passed).sum();
    let failed: usize = done.iter().map(|done| done.outcome.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}
