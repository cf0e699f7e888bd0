//! `cargo xtask soak`: runs all backends under traffic at the same time, for a long time.

use std::process::ExitCode;

use clap::Args;

use crate::{Result, project};

/// Arguments passed to `mqnet-soak`
#[derive(Args)]
pub(crate) struct Arguments {
    /// Minutes until the last round begins
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of the schedule [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Backends, separated by commas: tap, xdp, group, ntb, ivshmem, vhost, testpmd [default: all]
    #[arg(long)]
    only: Option<String>,
    /// Run only this round of the schedule
    #[arg(long)]
    round: Option<u64>,
    /// Run only these actions of the round, by number from 0, separated by commas
    #[arg(long, requires = "round")]
    actions: Option<String>,
    /// Repetitions of the round
    #[arg(long, requires = "round")]
    times: Option<u64>,
    /// Number of consecutive runs, each with the next seed, which end after a failure
    #[arg(long, conflicts_with = "round")]
    series: Option<u64>,
    /// Test the program of the dev profile, with its assertions
    #[arg(long)]
    dev: bool,
}

/// Builds both programs and runs the soak; returns its status.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let profile = if arguments.dev { "debug" } else { "release" };
    build("mqnet", arguments.dev)?;
    build("mqnet-soak", true)?;
    let program = project::target().join("debug/mqnet-soak");
    let mut soak = project::command(&program.to_string_lossy());
    soak.env("MQNET_BIN", project::target().join(profile).join("mqnet"));
    soak.arg("--out").arg(project::target().join("soak"));
    soak.args(["--minutes", &arguments.minutes.to_string()]);
    if arguments.dev {
        soak.arg("--dev");
    }
    let numbers = [
        ("--seed", arguments.seed),
        ("--series", arguments.series),
        ("--round", arguments.round),
        ("--times", arguments.times),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            soak.args([name, &value.to_string()]);
        }
    }
    for (name, list) in [("--only", &arguments.only), ("--actions", &arguments.actions)] {
        if let Some(list) = list {
            soak.args([name, list]);
        }
    }
    let ok = soak.status()?.success();
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(package: &str, dev: bool) -> Result<()> {
    let mut cargo = project::command("cargo");
    cargo.args(["build", "-q", "-p", package]);
    if !dev {
        cargo.arg("--release");
    }
    match cargo.status()?.success() {
        true => Ok(()),
        false => Err(format!("`cargo build -p {package}` failed").into()),
    }
}
