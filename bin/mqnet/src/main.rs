//! `mqnet`: joins any two packet endpoints.

#![forbid(unsafe_code)]

mod cli;
mod generate;
#[cfg(test)]
mod reference;
mod verbs;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mqnet_command::Failure;
use mqnet_daemon::{config, daemon, doctor, ivshmem_server, link, log, receive, run};

use cli::{Cli, Command};

fn dispatch(command: Command, control: Option<&str>, verbose: bool) -> Result<(), Failure> {
    if let Some(done) = verbs::run(&command, control, verbose)? {
        return Ok(done);
    }
    run::take_stores()?;
    match command {
        Command::Link(args) => link::run(&args),
        Command::VhostUserNet(args) => match args.link()? {
            Some(link) => link::run(&link),
            None => Ok(()),
        },
        Command::IvshmemServer(args) => ivshmem_server::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Demo(args) => mqnet_demo::run(&args),
        Command::Config(command) => config::run(&command),
        Command::DemoHost(args) => mqnet_demo::run_host(&args),
        Command::ReceiveDescriptors(args) => receive::run(&args),
        Command::Doctor(args) => doctor::run(&args, &mut std::io::stdout()),
        Command::Completions(args) => {
            generate::completions(&args, Cli::command(), &mut std::io::stdout())
        }
        Command::CompleteAddress(args) => generate::complete_address(&args, &mut std::io::stdout()),
        Command::Man(args) => generate::man(&args, Cli::command()),
        // All other commands were run by `verbs::run` before.
        _ => Ok(()),
    }
}

/// Command line. If the program was started as `vhost-user-net`, that command is inserted.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().and_then(|me| Path::new(me).file_name());
    if name == Some(OsStr::new(cli::VHOST_USER_NET)) {
        words.insert(1, cli::VHOST_USER_NET.into());
    }
    words
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(words());
    log::start(cli.verbose);
    let done = dispatch(cli.command, cli.control.as_deref(), cli.verbose > 0);
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
