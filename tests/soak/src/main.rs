//! `mqnet-soak`: see `cargo xtask soak --help`.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mqnet_soak::{KINDS, Settings, series};
use mqnet_testkit::{Need, has};

/// All backends at the same time, under verified traffic and a seeded schedule of actions
#[derive(Parser)]
struct Arguments {
    /// Minutes until the last round begins
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of the schedule [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Backends, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = KINDS)]
    only: Vec<String>,
    /// Run only this round of the schedule
    #[arg(long)]
    round: Option<u64>,
    /// Run only these actions of the round, by number from 0, separated by commas
    #[arg(long, value_delimiter = ',', requires = "round")]
    actions: Vec<usize>,
    /// Repetitions of the round
    #[arg(long, default_value_t = 1, requires = "round")]
    times: u64,
    /// Number of consecutive runs, each with the next seed, until one fails
    #[arg(long, default_value_t = 1, conflicts_with = "round")]
    series: u64,
    /// The program has the dev profile: for the command that replays a failure
    #[arg(long, hide = true)]
    dev: bool,
    /// Folder of the results
    #[arg(long, default_value = "target/soak")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !has(&[Need::Root, Need::Program("ethtool"), Need::Program("ip")]) {
        return ExitCode::SUCCESS;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let settings = Settings {
        time: Duration::from_secs_f64(arguments.minutes.clamp(0.0, 1e6) * 60.0),
        seed: arguments.seed.unwrap_or(now.map_or(1, |time| time.as_secs())),
        only: arguments.only,
        round: arguments.round,
        actions: arguments.actions,
        times: arguments.times,
        dev: arguments.dev,
        folder: arguments.out,
    };
    if series(&settings, arguments.series) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
