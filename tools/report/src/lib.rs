//! `cargo xtask bench`: every comparison that SPECIFICATION.md promises, as figures and plots.
//!
//! `mqnet-bench` measures. The report runs the sections of `mqnet-bench`, computes confidence
//! intervals of the medians, checks the promises, and draws the report.

#![forbid(unsafe_code)]

mod baseline;
mod elsewhere;
mod figures;
#[cfg(test)]
mod fixture;
mod html;
mod interval;
mod limits;
mod machine;
mod measured;
mod peers;
mod plot;
pub mod project;
mod promises;
mod report;
mod runner;
mod sections;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use baseline::Comparison;
use limits::Limits;
use machine::Machine;
use promises::{Outcome, Verdict};
use report::Report;
use runner::{Ran, Runner};
use sections::{SECTIONS, Section};

/// Result with any error; its text is for the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Function that installs the named system packages if it can.
pub type Installer = fn(packages: &[&str]);

/// Total seconds of all sections in a full run; a quick run has a separate budget.
const BUDGET: u64 = 25 * 60;
const QUICK_BUDGET: u64 = 3 * 60;
/// Exit code of a regression.
const REGRESSED: u8 = 3;
/// Documents with figures from a report.
const DOCUMENTS: [&str; 2] =
    ["book/src/explanation/systems.md", "book/src/measurements/measurements.md"];
/// Section with the limits of the machine, part of every run.
const LIMITS: &str = "limits";

/// Measure the promises of SPECIFICATION.md and draw the results
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Sections to run (see --list) [default: all]
    names: Vec<String>,
    /// Fewer sizes, shorter slices, 10 pairs: 3 minutes instead of 25
    #[arg(long)]
    quick: bool,
    /// List the sections
    #[arg(long)]
    list: bool,
    /// Folder of report.json, report.html and the output of each section [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Compare with this report.json; exit code 3 after a regression
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Store this run's report as baseline.json in the same folder
    #[arg(long)]
    save_baseline: bool,
    /// Write the figures of this run into the book: measurements.md and systems.md
    #[arg(long, conflicts_with = "quick")]
    docs: bool,
    /// Program to measure, instead of building one [default: $MQNET_BENCH]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Check and draw this report.json of an earlier run again, instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "quick", "bin"])]
    report: Option<PathBuf>,
}

/// Runs the command. `installer` installs the packages that the sections need.
pub fn run(arguments: &Arguments, installer: Installer) -> Result<ExitCode> {
    if arguments.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let quick = arguments.quick;
    let chosen = choose(&arguments.names, quick)?;
    // Promises and baseline are read before the measurement, so that errors are reported early.
    let table = promises::table()?;
    let old = arguments.baseline.as_deref().map(Report::load).transpose()?;
    // The results of an earlier report are written to the folder of that report.
    let place =
        arguments.report.as_deref().and_then(Path::parent).map(|at| Path::new(".").join(at));
    let usual = || place.unwrap_or_else(|| project::target().join("bench"));
    let out = arguments.out.clone().unwrap_or_else(usual);
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let out = fs::canonicalize(out)?;
    let mut report = match &arguments.report {
        Some(file) => earlier(file, arguments.docs)?,
        None => measure(arguments, &chosen, &out, installer)?,
    };
    let judge = |promise: &promises::Promise| {
        let section = promise.section.as_deref().and_then(|name| report.section(name));
        promise.judge(section, report.quick)
    };
    report.promises = table.iter().map(judge).collect();
    let compared = old.map(|old| baseline::compare(&old, &report));
    write(&report, compared.as_ref(), &out, arguments.save_baseline)?;
    // Write no document if a promise is stale: the document would keep that promise's old figure.
    if arguments.docs && report.promises.iter().all(|promise| !promise.stale) {
        fill_documents(&report)?;
    }
    Ok(summarize(&report, compared.as_ref(), &out))
}

/// Loads the report of an earlier run; `docs` with a quick report is an error. A report of all
/// sections also gets the stored sections of other commands.
fn earlier(file: &Path, docs: bool) -> Result<Report> {
    let mut report = Report::load(file)?;
    if docs && report.quick {
        let why = "gives figures that are not exact enough for documents: omit --docs";
        return Err(format!("--report {}: {why}", file.display()).into());
    }
    if SECTIONS.iter().all(|section| report.section(section.name).is_some()) {
        elsewhere::add(&mut report.sections);
    }
    Ok(report)
}

/// Runs the sections; the caller checks the promises.
fn measure(
    arguments: &Arguments,
    chosen: &[&'static Section],
    out: &Path,
    installer: Installer,
) -> Result<Report> {
    let quick = arguments.quick;
    let from_environment = std::env::var_os("MQNET_BENCH").map(PathBuf::from);
    let program = program(arguments.bin.clone().or(from_environment).as_deref())?;
    install(chosen, installer);
    let peers = peers::versions();
    for peer in &peers {
        match (&peer.version, &peer.skipped) {
            (Some(version), _) => println!("{:24} {version}", peer.name),
            (None, reason) => {
                println!("{:24} skipped: {}", peer.name, reason.as_deref().unwrap_or("?"))
            }
        }
    }
    let budget = Duration::from_secs(if quick { QUICK_BUDGET } else { BUDGET });
    let folder = out.join("sections");
    let machine = Machine::this();
    let runner = Runner {
        program: program.clone(),
        folder,
        quick,
        root: nix::unistd::geteuid().is_root(),
        budget,
    };
    let ran = runner.run(chosen)?;
    let mut sections: Vec<_> =
        chosen.iter().zip(ran).map(|(section, ran)| sort_out(section, ran, quick)).collect();
    // Sections of other commands are added unless sections were named.
    if arguments.names.is_empty() {
        elsewhere::add(&mut sections);
    }
    let limits = sections.iter().find(|section| section.name == LIMITS);
    let limits = limits.map(|section| Limits::of(&section.cases)).unwrap_or_default();
    for section in &mut sections {
        // Sections of other commands are omitted: they were measured at other times, and in guests.
        let here = section.kept.is_none();
        let rows = section.cases.iter().filter(|_| here).filter_map(|case| limits.comparison(case));
        section.beside = rows.collect();
    }
    Ok(Report {
        version: report::VERSION,
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        commit: project::commit(),
        program: program.display().to_string(),
        quick,
        machine,
        limits,
        peers,
        promises: Vec::new(),
        sections,
    })
}

fn list() {
    println!("{:10} {:>6} {:>6}  root  question", "section", "s", "quick");
    for section in SECTIONS {
        let quick = section.quick.map_or("-".to_owned(), |(_, seconds)| seconds.to_string());
        let root = if section.root { "yes" } else { "" };
        let Section { name, seconds, answers, .. } = section;
        println!("{name:10} {seconds:>6} {quick:>6}  {root:4}  {answers}");
    }
    for [name, answers, command] in elsewhere::list() {
        println!("{name:10} {:>6} {:>6}  {:4}  {answers} ({command})", "-", "-", "");
    }
}

/// Named sections and the section with the limits. Without names, all sections (of a quick run, if
/// `quick`).
fn choose(names: &[String], quick: bool) -> Result<Vec<&'static Section>> {
    for name in names {
        if let Some(command) = elsewhere::command(name) {
            return Err(format!("`{name}` is measured by `{command}`; all sections show it").into());
        }
        if !SECTIONS.iter().any(|section| section.name == name) {
            let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
            return Err(format!("no section `{name}`; allowed: {}", known.join(", ")).into());
        }
        if quick && SECTIONS.iter().any(|s| s.name == name && s.quick.is_none()) {
            return Err(format!("`{name}` is not part of a quick run: omit --quick").into());
        }
    }
    let is_chosen = |section: &&Section| match names {
        [] => !quick || section.quick.is_some(),
        names => section.name == LIMITS || names.iter().any(|name| name == section.name),
    };
    Ok(SECTIONS.iter().filter(is_chosen).collect())
}

/// Path of the named program, or of a new build with the profile of packages (`dist`).
fn program(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return fs::canonicalize(path)
            .map_err(|error| format!("--bin {}: {error}", path.display()).into());
    }
    let build = project::command("cargo")
        .args(["build", "--profile", "dist", "-p", "mqnet-bench"])
        .status()?;
    if !build.success() {
        return Err("the program could not be built".into());
    }
    Ok(project::target().join("dist/mqnet-bench"))
}

/// Installs the packages of the sections. A package that cannot be installed is no error here: its
/// section reports it.
fn install(chosen: &[&Section], installer: Installer) {
    let mut packages: Vec<&str> = chosen.iter().flat_map(|s| s.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    installer(&packages);
}

fn sort_out(section: &Section, ran: Ran, quick: bool) -> report::Section {
    let read = ran.outcome.and_then(|raw| match measured::read(&raw) {
        Ok((cases, notes)) => Ok((raw, cases, notes)),
        Err(error) => Err(error.to_string()),
    });
    let (skipped, (raw, cases, notes)) = match read {
        Ok(read) => (None, read),
        Err(reason) => (Some(reason), Default::default()),
    };
    report::Section {
        name: section.name.to_owned(),
        answers: section.answers.to_owned(),
        command: section.command(quick),
        seconds: ran.seconds,
        kept: None,
        skipped,
        notes,
        cases,
        beside: Vec::new(),
        raw,
    }
}

fn write(report: &Report, compared: Option<&Comparison>, out: &Path, keep: bool) -> Result<()> {
    report.save(&out.join("report.json"))?;
    let page = out.join("report.html");
    fs::write(&page, html::page(report, compared)?)
        .map_err(|error| format!("{}: {error}", page.display()))?;
    if keep {
        report.save(&out.join("baseline.json"))?;
    }
    Ok(())
}

/// Writes the figures into all documents, or into none after an error.
fn fill_documents(report: &Report) -> Result<()> {
    let mut files = Vec::new();
    for document in DOCUMENTS {
        let path = project::root().join(document);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
        let (text, filled) = figures::fill(&text, report).map_err(|error| failed(&error))?;
        files.push((path, text, format!("{document}: {filled} figures of this run")));
    }
    for (path, text, output) in files {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{output}");
    }
    Ok(())
}

/// Prints missed promises, changes, and the paths of the results; returns the exit code.
fn summarize(report: &Report, compared: Option<&Comparison>, out: &Path) -> ExitCode {
    let count =
        |outcome| report.promises.iter().filter(|promise| promise.outcome == outcome).count();
    println!();
    for promise in report.promises.iter().filter(|p| p.outcome == Outcome::Missed) {
        println!("missed: {}", line(promise));
        promise.why.iter().for_each(|why| println!("        why: {why}"));
    }
    let stale: Vec<&Verdict> = report.promises.iter().filter(|promise| promise.stale).collect();
    for promise in &stale {
        println!("{}: {} (tools/report/promises.toml)", promise.text, promise.measured);
    }
    for change in compared.iter().flat_map(|compared| &compared.changes) {
        println!("{}: {}", if change.worse { "WORSE" } else { "better" }, change.text());
    }
    compared.iter().flat_map(|compared| &compared.losses).for_each(|loss| println!("LOST: {loss}"));
    let [met, missed, unknown] = [Outcome::Met, Outcome::Missed, Outcome::NotMeasured].map(count);
    println!("{met} promises met, {missed} missed, {unknown} not measured");
    println!("{}/report.html, report.json", out.display());
    let regressed = compared.is_some_and(Comparison::is_worse);
    match (regressed, stale.is_empty()) {
        (true, _) => ExitCode::from(REGRESSED),
        (false, false) => ExitCode::FAILURE,
        (false, true) => ExitCode::SUCCESS,
    }
}

fn line(promise: &Verdict) -> String {
    let section = promise.section.as_deref().unwrap_or("-");
    let unsure = if promise.unsure { ", within its interval" } else { "" };
    let Verdict { text, measured, promised, .. } = promise;
    match promise.bound {
        Some(_) => format!("{section}: {text}: {measured} (promised {promised}{unsure})"),
        None => format!("{section}: {text}: {measured}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the limits are part of every selection, and sections have the order of the table. An
    // unknown name, and a name that a quick run omits, are refused with a remedy.
    #[test]
    fn sections_are_chosen() {
        let names = |asked: &[&str], quick| -> Vec<&str> {
            let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
            choose(&asked, quick).unwrap().iter().map(|section| section.name).collect()
        };
        assert_eq!(names(&["link", "ring"], false), ["limits", "ring", "link"]);
        assert_eq!(names(&[], false).len(), SECTIONS.len());
        assert!(!names(&[], true).contains(&"rxbuf"));
        let refused = |name: &str| choose(&[name.to_owned()], true).unwrap_err().to_string();
        assert!(refused("lnk").contains("allowed: limits, ring"));
        assert!(refused("rxbuf").contains("--quick"));
        assert!(refused("tunnel").contains("cargo xtask guest --bench tunnel"));
    }

    // Goal: a section that failed or printed unexpected output is skipped with its reason.
    #[test]
    fn failures_are_skipped_rows() {
        let ran = |outcome| Ran { seconds: 1.0, outcome };
        let failed = sort_out(&SECTIONS[0], ran(Err("no root".to_owned())), false);
        assert_eq!(failed.skipped.as_deref(), Some("no root"));
        let odd = sort_out(&SECTIONS[0], ran(Ok(serde_json::json!({"a": 1}))), false);
        assert!(odd.skipped.unwrap().contains("mqnet-bench") && odd.cases.is_empty());
    }
}
