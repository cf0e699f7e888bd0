//! The project's own tools: `cargo xtask test`, `tidy`, `generate`, `book`, `deny`, `stated-rust`,
//! `arm64`, `setup`, `bench`, `install`, `package`, `guest`, `soak` and `fuzz`.

#![forbid(unsafe_code)]

mod arm64;
mod book;
mod dashboard;
mod deny;
mod fuzz;
mod generate;
mod guest;
mod install;
mod kept;
mod package;
mod setup;
mod soak;
mod stated_rust;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mqnet_report::{Result, project};

/// Tools of the mqnet project
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Run all tests, or the named steps
    Test {
        /// Steps to run (see --list) [default: all]
        steps: Vec<String>,
        /// List the steps
        #[arg(long)]
        list: bool,
        /// Run only tests with one of these words in their names (steps with separate tests, such
        /// as netns and guest)
        #[arg(last = true, value_name = "WORD")]
        words: Vec<String>,
    },
    /// Check the rules of the code and the layers
    Tidy,
    /// Write the generated pages of documentation
    Generate,
    /// Build the book with mdBook and check its links
    Book,
    /// Check licenses, duplicates and sources of dependencies with cargo-deny
    Deny,
    /// Check the workspace with exactly the Rust version that Cargo.toml states
    StatedRust,
    /// Check arm64 under emulation
    Arm64 {
        /// Part of the checks
        part: arm64::Part,
    },
    /// Install the packages that the tests need, or list the missing ones; download the files of
    /// guests
    Setup,
    /// Measure the promises, compare with the peers and draw the report
    Bench(mqnet_report::Arguments),
    /// Install the program, its units, man pages and completions
    Install {
        /// Prefix of the installed files
        #[arg(long, default_value = "/usr")]
        prefix: std::path::PathBuf,
        /// Folder used in place of / (for packages)
        #[arg(long)]
        destdir: Option<std::path::PathBuf>,
    },
    /// Build packages and check them
    Package(package::Arguments),
    /// Boot a virtual machine with mqnet, for a shell or a command after `--`
    Guest(guest::Arguments),
    /// Run a soak test of all backends: verified traffic, resizes, restarts, kills, option changes
    Soak(soak::Arguments),
    /// Fuzz one target, or all one after the other, with coverage and sanitizers
    Fuzz {
        /// Target to fuzz [default: all]
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Use the stable toolchain, without sanitizers and cargo-fuzz
        #[arg(long)]
        smoke: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().tool {
        Tool::Bench(arguments) => {
            return report(mqnet_report::run(&arguments, setup::install_for_bench));
        }
        Tool::Guest(arguments) => return report(guest::run(&arguments)),
        Tool::Soak(arguments) => return report(soak::run(&arguments)),
        Tool::Test { list: true, .. } => {
            test::list();
            Ok(true)
        }
        Tool::Test { steps, words, .. } => test::run(&steps, &words),
        Tool::Tidy => tidy::run(&project::root()).map(|findings| findings == 0),
        Tool::Generate => generate::run(&project::root()).map(|()| true),
        Tool::Book => book::run().map(|()| true),
        Tool::Deny => deny::check().map(|()| true),
        Tool::StatedRust => stated_rust::check().map(|()| true),
        Tool::Arm64 { part } => arm64::run(part).map(|()| true),
        Tool::Setup => setup::run().and_then(|missing| {
            setup::guests()?;
            Ok(missing.is_empty())
        }),
        Tool::Install { prefix, destdir } => {
            install::run(&prefix, destdir.as_deref()).map(|()| true)
        }
        Tool::Package(arguments) => package::run(&arguments).map(|()| true),
        Tool::Fuzz { target, seconds, smoke: true } => {
            fuzz::smoke(target.as_deref(), seconds).map(|()| true)
        }
        Tool::Fuzz { target, seconds, .. } => {
            fuzz::with_sanitizers(target.as_deref(), seconds).map(|()| true)
        }
    };
    let code = |ok| if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    report(outcome.map(code))
}

fn report(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}
