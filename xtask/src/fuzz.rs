//! Runs the fuzz targets: for a short time on the stable toolchain, or for longer under sanitizers.

use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use toml::{Table, Value};

use crate::{Result, project};

const FOLDER: &str = "tests/fuzz";

/// Compiler options for the coverage feedback of libFuzzer, which need neither nightly nor
/// cargo-fuzz.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cdebug-assertions",
];

/// Limits of a single input, in seconds and MiB. The time limit is long, because a target's threads
/// wait for each other, which can take seconds on a busy machine.
const LIMITS: [&str; 2] = ["-timeout=20", "-rss_limit_mb=1024"];

/// Fuzzes each target for `seconds` with the stable toolchain. A crash is an error.
pub(crate) fn smoke(only: Option<&str>, seconds: u32) -> Result<()> {
    let targets = targets(only)?;
    if targets.is_empty() {
        println!("SKIP: {FOLDER} has no targets");
        return Ok(());
    }
    let host = host()?;
    let build = project::target().join("fuzz-smoke");
    let mut cargo = project::command("cargo");
    // With --target, RUSTFLAGS apply to the project's code but not to build scripts.
    cargo.args(["build", "--release", "--target", &host, "--manifest-path"]);
    cargo.arg(format!("{FOLDER}/Cargo.toml")).arg("--target-dir").arg(&build);
    run(cargo.env("RUSTFLAGS", COVERAGE.join(" ")), "the build of the fuzz targets")?;
    // As many fuzzers run at a time as there are CPUs.
    let at_a_time = std::thread::available_parallelism().map_or(1, NonZero::get);
    for targets in targets.chunks(at_a_time) {
        let start = |target: &String| Ok(fuzzer(&build, &host, target, seconds)?.spawn()?);
        let started: Vec<Result<Child>> = targets.iter().map(start).collect();
        // All fuzzers are awaited before the first failure ends the run.
        let ended: Vec<Result<ExitStatus>> =
            started.into_iter().map(|fuzzer| Ok(fuzzer?.wait()?)).collect();
        for (target, status) in targets.iter().zip(ended) {
            let status = status?;
            // Logs are printed one after the other, so that the output of a crash is contiguous and
            // last.
            print!("{}", String::from_utf8_lossy(&std::fs::read(log(&build, target))?));
            check(status, &format!("fuzz target `{target}`"))?;
        }
    }
    Ok(())
}

/// Command of one target, with folders for new inputs and for failed ones.
fn fuzzer(build: &Path, host: &str, target: &str, seconds: u32) -> Result<Command> {
    let [found, corpus] = ["found", "corpus"].map(|name| build.join(name).join(target));
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&corpus)?;
    let program = build.join(host).join("release").join(target);
    let mut fuzzer = project::command(&program.to_string_lossy());
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.arg(format!("-artifact_prefix={}/", found.display())).args(LIMITS).arg(&corpus);
    fuzzer.args(seeds(target));
    let log = File::create(log(build, target))?;
    fuzzer.stdout(log.try_clone()?).stderr(log);
    Ok(fuzzer)
}

/// Folder of the target's inputs in the source tree; `None` if it does not exist. libFuzzer writes
/// only into the first folder of its arguments, and only reads all others.
fn seeds(target: &str) -> Option<PathBuf> {
    let folder = project::root().join(FOLDER).join("corpus").join(target);
    folder.is_dir().then_some(folder)
}

/// Log file of a fuzzer.
fn log(build: &Path, target: &str) -> PathBuf {
    build.join(format!("{target}.log"))
}

/// Fuzzes each target for `seconds` with cargo-fuzz on nightly, with the address sanitizer. A crash
/// is an error.
pub(crate) fn with_sanitizers(only: Option<&str>, seconds: u32) -> Result<()> {
    let targets = targets(only)?;
    if targets.is_empty() {
        return Err(format!("{FOLDER} has no targets").into());
    }
    let there = project::command("rustup")
        .args(["run", "nightly", "cargo", "fuzz", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        return Err("cargo-fuzz on the nightly toolchain is missing; get it with\n    \
            rustup toolchain install nightly && cargo install cargo-fuzz\n\
            or use `cargo xtask fuzz --smoke` (stable toolchain, no sanitizers)"
            .into());
    }
    for target in targets {
        println!("fuzzing {target} for {seconds} s");
        let mut fuzzer = project::command("rustup");
        // Only rustup's cargo accepts `+nightly`; in the path of xtask, the toolchain's cargo
        // precedes rustup's cargo.
        fuzzer.args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", FOLDER, &target]);
        // Without this folder, cargo-fuzz would write new inputs into the source tree.
        let learned = project::target().join("fuzz-corpus").join(&target);
        std::fs::create_dir_all(&learned)?;
        fuzzer.arg(learned).args(seeds(&target));
        fuzzer.arg("--").arg(format!("-max_total_time={seconds}")).args(LIMITS);
        run(&mut fuzzer, &format!("fuzz target `{target}`"))?;
    }
    Ok(())
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    check(command.status().map_err(|error| format!("{what}: {error}"))?, what)
}

fn check(status: ExitStatus, what: &str) -> Result<()> {
    if status.success() { Ok(()) } else { Err(format!("{what} failed: {status}").into()) }
}

/// Targets declared by the fuzz crate, or the named one. An unknown name is an error.
fn targets(only: Option<&str>) -> Result<Vec<String>> {
    let manifest = project::root().join(FOLDER).join("Cargo.toml");
    let all = declared_targets(&manifest)?;
    let Some(name) = only else { return Ok(all) };
    if all.iter().any(|target| target == name) {
        return Ok(vec![name.to_owned()]);
    }
    Err(format!("no fuzz target `{name}`; allowed: {}", all.join(", ")).into())
}

fn declared_targets(manifest: &Path) -> Result<Vec<String>> {
    let Ok(text) = std::fs::read_to_string(manifest) else { return Ok(Vec::new()) };
    let table: Table = text.parse()?;
    let programs = table.get("bin").and_then(Value::as_array);
    let names = programs.into_iter().flatten().filter_map(|bin| bin.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Target triple of this machine.
fn host() -> Result<String> {
    let output = project::command("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "`rustc -vV` names no host".into())
}
