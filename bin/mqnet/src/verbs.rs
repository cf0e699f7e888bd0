//! Dispatch of the commands that send requests to a running mqnet.

use std::io::stdout;

use mqnet_client as client;
use mqnet_client::Search;
use mqnet_command::Failure;
use mqnet_daemon::{config, plan};

use crate::cli::Command;

/// Runs a command that sends requests; `None` if `command` is another one.
pub(crate) fn run(
    command: &Command,
    control: Option<&str>,
    verbose: bool,
) -> Result<Option<()>, Failure> {
    let search = Search::new(control).map_err(|e| Failure::BadInput(e.to_string()))?;
    match command {
        Command::Ethtool(args) => client::run_ethtool(args, &search)?,
        Command::Ynl(args) => client::run_ynl(args, &search)?,
        Command::Tc(args) => client::run_tc(args, &search)?,
        Command::Stats(args) => client::run_stats(args, &search)?,
        Command::Top(args) => client::run_top(args, &search)?,
        Command::Show(args) => client::run_show(args, verbose, &search)?,
        Command::Plan(args) => plan::run(args, &|| client::running(&search), &mut stdout())?,
        Command::Why(args) => client::run_why(args, &search)?,
        Command::Monitor(args) => client::run_monitor(args, &search)?,
        Command::Capture(args) => client::run_capture(args, &search)?,
        Command::Xdp(args) => client::run_xdp(args, &search)?,
        Command::Set(args) => client::set(args, &search)?,
        Command::Add(args) => {
            client::add(args, &search, &|spec| config::check(spec).map(drop))?;
        }
        Command::Del(args) => client::del(args, &search)?,
        Command::Reload => client::reload(&search)?,
        _ => return Ok(None),
    }
    Ok(Some(()))
}
