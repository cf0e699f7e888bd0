//! Command line: the benchmarks, and the hidden commands of helper processes.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use mqnet_command::Failure;
use mqnet_daemon::args::{LinkArgs, SandboxArgs};
use mqnet_daemon::{link, log, receive, run};

use super::ntb_ends::PLUG;
use super::{BenchArgs, Helper};

/// Measures mqnet and compares it with a peer, if there is one, in alternating time slices.
#[derive(Debug, Parser)]
#[command(name = "mqnet-bench", version, max_term_width = 100)]
struct Cli {
    /// Log more on stderr (twice: debug messages).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(flatten)]
    bench: BenchArgs,
}

/// Command line of a helper process that a benchmark starts.
#[derive(Debug, Parser)]
#[command(name = "mqnet-bench")]
struct Started {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    #[command(flatten)]
    Helper(Helper),
    /// `mqnet link` of the same build
    #[command(hide = true)]
    Link(LinkArgs),
    /// The process of a link that receives descriptors
    #[command(hide = true)]
    ReceiveDescriptors(SandboxArgs),
}

/// True if the first word is the name of a helper process.
fn is_started(words: &[OsString]) -> bool {
    let Some(word) = words.get(1) else { return false };
    Started::command().get_subcommands().any(|program| *word == *program.get_name())
}

fn broken(e: Box<dyn std::error::Error>) -> Failure {
    Failure::Broken(e.to_string())
}

fn dispatch(words: Vec<OsString>) -> Result<(), Failure> {
    if !is_started(&words) {
        let cli = Cli::parse_from(words);
        log::start(cli.verbose);
        run::take_stores()?;
        return super::run(&cli.bench, Some(&PLUG)).map_err(broken);
    }
    let started = Started::parse_from(words);
    log::start(0);
    run::take_stores()?;
    match &started.program {
        Program::Helper(helper) => super::run_helper(helper, Some(&PLUG)).map_err(broken),
        Program::Link(args) => link::run(args),
        Program::ReceiveDescriptors(args) => receive::run(args),
    }
}

/// Runs the program.
pub(super) fn main() -> ExitCode {
    match dispatch(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::BadInput(what)) => {
            eprintln!("mqnet-bench: {what}");
            ExitCode::from(2)
        }
        Err(Failure::Exit(code)) => ExitCode::from(code),
        Err(Failure::Broken(what)) => {
            eprintln!("mqnet-bench: {what}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: clap's own consistency checks hold for every command.
    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
        Started::command().debug_assert();
    }

    // Goal: the first word distinguishes benchmarks from helper processes.
    #[test]
    fn started_programs_are_recognized() {
        let started = |line: &str| {
            is_started(&line.split(' ').map(OsString::from).collect::<Vec<OsString>>())
        };
        for line in ["x bench-exec true", "x link null: null:", "x receive-descriptors"] {
            assert!(started(line), "{line}");
        }
        for line in ["x", "x ring", "x instr --only link", "x --help"] {
            assert!(!started(line), "{line}");
        }
    }
}
