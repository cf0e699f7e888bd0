//! `mqnet`: plugs any two packet endpoints together.

#![forbid(unsafe_code)]

mod api;
mod bench;
mod capture;
mod cli;
mod config;
mod demo;
mod doctor;
mod endpoint;
mod generate;
mod ethtool;
mod link;
mod monitor;
mod show;
mod stats;
mod status;
mod top;
mod why;
mod ynl;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, Failure};
use mqnet_control_api::{ApiError, Code};

fn broken(e: Box<dyn std::error::Error>) -> Failure {
    Failure::Broken(e.to_string())
}

fn exit(code: u8) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code)) }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let done = match cli.command {
        Command::Link(args) => link::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Config(command) => config::run(&command),
        Command::DemoHost(args) => demo::host::run(&args),
        Command::Doctor(args) => doctor::run(&args, &mut std::io::stdout()),
        Command::Completions(args) => generate::completions(&args, &mut std::io::stdout()),
        Command::Man(args) => generate::man(&args),
        Command::Bench(args) => bench::run(&args, Some(&bench::PLUG)).map_err(broken),
        Command::Ethtool(args) => {
            let find = |dev: &str| -> Result<Box<dyn api::Api>, _> {
                Err(ApiError::new(Code::NoDevice, format!("no mqnet has a device '{dev}'")))
            };
            exit(ethtool::run(&args, &find, &mut std::io::stdout(), &mut std::io::stderr()))
        }
        Command::Ynl(args) => {
            let all = || -> Result<Vec<Box<dyn api::Api>>, _> { Ok(Vec::new()) };
            exit(ynl::run(&args, &all, &mut std::io::stdout(), &mut std::io::stderr()))
        }
        Command::BenchHelper(helper) => {
            bench::run_helper(&helper, Some(&bench::PLUG)).map_err(broken)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::BadInput(what)) => {
            eprintln!("mqnet: {what}");
            ExitCode::from(2)
        }
        Err(Failure::Exit(code)) => ExitCode::from(code),
        Err(Failure::Broken(what)) => {
            eprintln!("mqnet: {what}");
            ExitCode::FAILURE
        }
    }
}
