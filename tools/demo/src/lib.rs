//! `mqnet demo`: two hosts on one machine, without root. Each host is a process in its own user and
//! network namespace, with its own network stack of the kernel. An NTB link joins the hosts. All
//! bytes of their TCP and UDP traffic are verified, also while one end of the link is killed and
//! restarted.

#![forbid(unsafe_code)]

mod host;
mod kernel;
mod peer;
mod plot;
mod protocol;
mod report;
mod script;
mod tcp;
mod udp;
mod world;

use std::fs::File;
use std::path::PathBuf;

use clap::value_parser;
use mqnet_command::Failure;

pub use host::{HostArgs, run as run_host};
use report::Report;
use script::Script;

/// Arguments of `mqnet demo`.
#[derive(clap::Args, Debug)]
pub struct DemoArgs {
    /// Draw the throughput of each channel over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(short, long)]
    json: bool,
    /// Total seconds of traffic
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = value_parser!(u64).range(3..=3600))]
    seconds: u64,
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    // Open the plot file before the traffic: an invalid path must fail before the run.
    if let Some(path) = &args.plot {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        file.map_err(|e| Failure::BadInput(format!("--plot {}: {e}", path.display())))?;
    }
    kernel::check_tun().map_err(Failure::Broken)?;
    let mut script = Script::start()?;
    let played = script.play(args.seconds)?;
    let world = script.end();
    let report = Report::new(&played, &world);
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        let program = std::env::args().next().unwrap_or_default();
        print!("{}{}", report.table(), report::next_steps(&program));
    }
    if let Some(path) = &args.plot {
        plot::draw(path, &played, &world)
            .map_err(|e| Failure::Broken(format!("drawing {}: {e}", path.display())))?;
    }
    match report.problems().is_empty() {
        true => Ok(()),
        false => Err(Failure::Broken(format!("not verified: {}", report.problems().join("; ")))),
    }
}
