//! `mqnet ethtool`: the flags, texts, errors and exit codes of ethtool 6.1 for mqnet's netdevs.

mod call;
mod channels;
mod coalesce;
pub(crate) mod errno;
mod features;
mod info;
pub(crate) mod json;
mod number;
mod params;
mod privflags;
mod rings;
mod rss;
mod rss_set;
mod rules;
mod statistics;

#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, Write};

use clap::Args;

pub(crate) use call::Find;
use call::{BAD_COMMAND, Call};

const HELP: &str = "\
Usage: mqnet ethtool [--json] VERB DEVICE [ARGUMENTS]     (as ethtool 6.1)

  -l, --show-channels        channels                         [--json]
  -L, --set-channels         combined N
  -g, --show-ring            rings                            [--json]
  -G, --set-ring             rx N, tx N
  -c, --show-coalesce        poll window and wake batching    [--json]
  -C, --coalesce             rx-usecs N, tx-frames N
  -x, --show-rxfh-indir, --show-rxfh                          [--json]
  -X, --set-rxfh-indir, --rxfh
                             default | [start N] equal N | [start N] weight W0 W1 ...
  -n, --show-nfc             rules that send flows to queues; rule N
  -N, --config-nfc           flow-type TYPE [FIELD VALUE [m MASK]] ... action QUEUE [loc N]
                             | delete N; tcp4 udp4 sctp4 tcp6 udp6 sctp6 ip4 ip6 ether
  -S, --statistics           counters
  -i, --driver               what serves the device
  -k, --show-features, --show-offload                         [--json]
                             [--sides] both sides, and what is done for them
  -K, --features, --offload  FEATURE on|off ...; tx: what mqnet sends into the device,
                             so for a TAP the opposite of the kernel's 'ethtool -K TAP'
  --show-priv-flags          private flags
  --set-priv-flags           FLAG on|off ...
";

/// Arguments of `mqnet ethtool`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct EthtoolArgs {
    /// Arguments in the syntax of ethtool; `-h` lists the verbs.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub args: Vec<String>,
}

type Run = fn(&mut Call<'_>) -> io::Result<u8>;

/// Verb: its names, support of `--json`, and function.
struct Verb {
    names: &'static [&'static str],
    json: bool,
    run: Run,
}

const fn verb(names: &'static [&'static str], json: bool, run: Run) -> Verb {
    Verb { names, json, run }
}

const VERBS: [Verb; 16] = [
    verb(&["-l", "--show-channels"], true, channels::show),
    verb(&["-L", "--set-channels"], false, channels::set),
    verb(&["-g", "--show-ring"], true, rings::show),
    verb(&["-G", "--set-ring"], false, rings::set),
    verb(&["-c", "--show-coalesce"], true, coalesce::show),
    verb(&["-C", "--coalesce"], false, coalesce::set),
    verb(&["-x", "--show-rxfh-indir", "--show-rxfh"], true, rss::show),
    verb(&["-X", "--set-rxfh-indir", "--rxfh"], false, rss_set::set),
    verb(&["-n", "-u", "--show-nfc", "--show-ntuple"], false, rules::show),
    verb(&["-N", "-U", "--config-nfc", "--config-ntuple"], false, rules::set),
    verb(&["-S", "--statistics"], false, statistics::show),
    verb(&["-i", "--driver"], false, info::show),
    verb(&["-k", "--show-features", "--show-offload"], true, features::show),
    verb(&["-K", "--features", "--offload"], false, features::set::set),
    verb(&["--show-priv-flags"], false, privflags::show),
    verb(&["--set-priv-flags"], false, privflags::set),
];

/// Verbs of ethtool 6.1 that mqnet does not offer.
const UNSUPPORTED: &[&str] = &[
    "-s",
    "--change",
    "-a",
    "--show-pause",
    "-A",
    "--pause",
    "-d",
    "--register-dump",
    "-e",
    "--eeprom-dump",
    "-E",
    "--change-eeprom",
    "-r",
    "--negotiate",
    "-p",
    "--identify",
    "-t",
    "--test",
    "--phy-statistics",
    "-T",
    "--show-time-stamping",
    "-f",
    "--flash",
    "-P",
    "--show-permaddr",
    "-w",
    "--get-dump",
    "-W",
    "--set-dump",
    "-m",
    "--dump-module-eeprom",
    "--module-info",
    "--show-eee",
    "--set-eee",
    "--set-phy-tunable",
    "--get-phy-tunable",
    "--get-tunable",
    "--set-tunable",
    "--reset",
    "--show-fec",
    "--set-fec",
    "-Q",
    "--per-queue",
    "--cable-test",
    "--cable-test-tdr",
    "--show-tunnels",
    "--show-module",
    "--set-module",
    "--monitor",
];

/// Runs one command and returns the exit code, which is 1 if the output cannot be written.
pub(crate) fn run(
    args: &EthtoolArgs,
    find: Find<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    dispatch(&args.args, find, out, err).unwrap_or(1)
}

fn dispatch(
    args: &[String],
    find: Find<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let flags = args.iter().take_while(|arg| *arg == "--json").count();
    let (json, rest) = (flags > 0, args.get(flags..).unwrap_or_default());
    if let [flag] = rest {
        if flag == "-h" || flag == "--help" {
            out.write_all(HELP.as_bytes())?;
            return Ok(0);
        }
        if flag == "--version" {
            writeln!(out, "mqnet ethtool {} (as ethtool 6.1)", env!("CARGO_PKG_VERSION"))?;
            return Ok(0);
        }
    }
    let verb = rest.first().and_then(|name| {
        VERBS.iter().find(|verb| verb.names.contains(&name.as_str()) && (verb.json || !json))
    });
    match (verb, rest) {
        (Some(verb), [_, dev, args @ ..]) => {
            let mut call = Call { dev, args, json, find, out, err };
            (verb.run)(&mut call)
        }
        (None, [option, _, ..]) if !json && UNSUPPORTED.contains(&option.as_str()) => {
            writeln!(err, "mqnet ethtool does not support {option}")?;
            Ok(1)
        }
        (None, [dev]) if !json && !dev.is_empty() && !dev.starts_with('-') => {
            writeln!(err, "mqnet ethtool does not support a device without an option")?;
            Ok(1)
        }
        _ => {
            err.write_all(BAD_COMMAND.as_bytes())?;
            Ok(1)
        }
    }
}
