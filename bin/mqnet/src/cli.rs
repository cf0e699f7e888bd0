//! The command line.

use std::ops::RangeInclusive;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, value_parser};

use mqnet_address::{CHANNELS, POLL_WINDOW, WORKERS, parse_cpus};
use mqnet_engine::Cpus;

use crate::bench::{self, BenchArgs};
use crate::config::ConfigCommand;
use crate::demo::{DemoArgs, HostArgs};
use crate::doctor::DoctorArgs;
use crate::endpoint::{Endpoint, parse};
use crate::generate::{CompletionsArgs, ManArgs};
use crate::ethtool::EthtoolArgs;
use crate::ynl::YnlArgs;

/// Why a command ended badly.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for makes no sense: exit code 2, nothing was touched.
    BadInput(String),
    /// It could not be done: exit code 1.
    Broken(String),
    /// Everything has been said; this exit code.
    Exit(u8),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(e: E) -> Self {
        Self::Broken(e.to_string())
    }
}

/// Plugs any two packet endpoints together and gives the link what a good NIC has: many queues,
/// backpressure instead of drops, counters that account for every packet.
#[derive(Debug, Parser)]
#[command(name = "mqnet", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more on stderr (twice: still more).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join two endpoints and run the link until Ctrl-C.
    Link(LinkArgs),
    /// Build two hosts, link them, run traffic, kill one side and watch the link heal (no root).
    Demo(DemoArgs),
    /// Look at configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// One host of the demo.
    #[command(hide = true)]
    DemoHost(HostArgs),
    /// Say what this kernel and this user can do, and which knob changes that.
    Doctor(DoctorArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Write the man pages.
    #[command(hide = true)]
    Man(ManArgs),
    /// Measure, interleaved with a peer where there is one.
    Bench(BenchArgs),
    /// Show and change a device in the manner of ethtool.
    Ethtool(EthtoolArgs),
    /// Query the `netdev` family in the manner of the kernel's ynl tool.
    Ynl(YnlArgs),
    #[command(flatten)]
    BenchHelper(bench::Helper),
}

fn whole(range: &RangeInclusive<u32>) -> RangeInclusive<i64> {
    i64::from(*range.start())..=i64::from(*range.end())
}

fn channels() -> impl TypedValueParser<Value = u16> {
    value_parser!(u16).range(whole(&CHANNELS))
}

fn workers() -> impl TypedValueParser<Value = u16> {
    value_parser!(u16).range(whole(&WORKERS))
}

fn poll_window() -> impl TypedValueParser<Value = u32> {
    value_parser!(u32).range(whole(&POLL_WINDOW))
}

const ADDRESSES: &str = "\
Endpoint addresses:
  tap:NAME      a TAP device; options: netns=NAME|PATH mac=M mtu=N address=IP/PREFIX (repeatable)
                persist fd=N[:N...] (queues that the parent process has attached)
  ntb:SOCKET    a bridge to the mqnet that uses the same socket; options: window=SIZE (16M) mtu=N
  null:         swallows everything

Example, two hosts that talk (the second line on the other host):
  mqnet link tap:a,address=10.0.0.1/24 ntb:/run/x.sock --channels 4
  mqnet link tap:b,address=10.0.0.2/24 ntb:/run/x.sock --channels 4";

#[derive(Args, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct LinkArgs {
    /// One endpoint.
    #[arg(value_parser = parse)]
    pub(crate) a: Endpoint,
    /// The other endpoint.
    #[arg(value_parser = parse)]
    pub(crate) b: Endpoint,
    /// Channels wanted [default: as many as the other end of the bridge wants, else 1]; two ends
    /// that both want some settle on the smaller number.
    #[arg(short, long, value_parser = channels())]
    pub(crate) channels: Option<u16>,
    /// Worker threads [default: one a channel, at most one a CPU].
    #[arg(short, long, value_parser = workers())]
    pub(crate) workers: Option<u16>,
    /// CPUs for the workers: auto (distinct cores), float (not pinned) or a list like 0-3,8.
    #[arg(long, default_value = "auto", value_parser = parse_cpus)]
    pub(crate) cpus: Cpus,
    /// Microseconds that a lane is polled after its last frame before it sleeps.
    #[arg(long, value_name = "US", default_value_t = 1000, value_parser = poll_window())]
    pub(crate) poll_window: u32,
    /// One JSON object a second on stdout instead of the status line.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Milliseconds between two status lines or JSON objects.
    #[arg(long, value_name = "MS", default_value_t = 1000, hide = true,
          value_parser = value_parser!(u64).range(10..=60_000))]
    pub(crate) interval_ms: u64,
    /// End in good order when this process, our parent, ends.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) with_parent: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: clap's own consistency checks hold for every command.
    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    // Goal: what cannot be is refused with the field and the range.
    #[test]
    fn bad_options_are_refused() {
        let base = ["mqnet", "link", "tap:a", "null:"];
        for (option, value, words) in [
            ("--channels", "0", "1..=64"),
            ("--channels", "65", "1..=64"),
            ("--cpus", "x", "auto or float"),
            ("--poll-window", "1000001", "0..=1000000"),
        ] {
            let args = base.iter().copied().chain([option, value]);
            let text = Cli::try_parse_from(args).unwrap_err().to_string();
            assert!(text.contains(words), "{option} {value}: {text}");
        }
    }
}
