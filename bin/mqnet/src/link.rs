//! `mqnet link A B`: the main job, in the foreground.

use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mqnet_engine::{IdlePolicy, Link, LinkConfig, Notice};
use mqnet_sysio::signal::StopSignals;
use mqnet_sysio::{clock, poll, process};

use crate::cli::{Failure, LinkArgs};
use crate::endpoint::{Endpoint, Open};
use crate::status::{Status, StatusStyle};

/// Runs the command.
pub(crate) fn run(args: LinkArgs) -> Result<(), Failure> {
    // First of all: inherited descriptors, before we open any of our own.
    let a_fds = inherit(&args.a)?;
    let b_fds = inherit(&args.b)?;
    for end in [&args.a, &args.b] {
        end.check(args.channels.unwrap_or(1)).map_err(Failure::BadInput)?;
    }
    if let (Endpoint::Ntb { .. }, Endpoint::Ntb { .. }) = (&args.a, &args.b) {
        let why = "ntb: to ntb: is not possible yet: each bridge agrees with its own peer alone";
        return Err(Failure::BadInput(why.to_owned()));
    }
    let signals = StopSignals::take()?;
    if let Some(parent) = args.with_parent {
        process::die_with_parent()?;
        // It may have ended before we asked to be told.
        if std::os::unix::process::parent_id() != parent {
            return Err(Failure::Broken(format!("the parent process {parent} has ended")));
        }
    }
    let _ = process::raise_descriptor_limit();
    let open = |end: Endpoint, fds| end.open(fds).map_err(|e| Failure::Broken(e.to_string()));
    let a = open(args.a, a_fds)?;
    let b = open(args.b, b_fds)?;
    let style = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => StatusStyle::Json,
        (false, true) => StatusStyle::Line,
        (false, false) => StatusStyle::Quiet,
    };
    let config = LinkConfig {
        channels: args.channels,
        workers: args.workers.map(usize::from),
        cpus: args.cpus,
        idle: IdlePolicy {
            window: Duration::from_micros(u64::from(args.poll_window)),
            ..IdlePolicy::default()
        },
    };
    let mut link = Link::new(a, b, config)?;
    let mut status = Status::new(style, Duration::from_millis(args.interval_ms));
    serve(&mut link, &signals, &mut status)?;
    // At rest first: only then do the counters of both ends and their sums agree.
    link.shut_down("the peer's user stopped it")?;
    status.finish(&mut link);
    Ok(())
}

fn inherit(end: &Endpoint) -> Result<Vec<OwnedFd>, Failure> {
    let Endpoint::Tap(tap) = end else { return Ok(Vec::new()) };
    let take = |&fd: &i32| {
        process::take_inherited(fd)
            .map_err(|e| Failure::BadInput(format!("tap:{}: fd={fd}: {e}", tap.name)))
    };
    tap.fds.iter().map(take).collect()
}

/// Turns the link until a stop signal comes.
fn serve(link: &mut Link, signals: &StopSignals, status: &mut Status) -> Result<(), Failure> {
    loop {
        if let Some(notice) = link.turn(clock::monotonic())? {
            status.notice(link, &notice);
            if matches!(notice, Notice::Up(_)) {
                continue; // Another event may have come while the link was set up.
            }
        }
        status.tick(link);
        let timeout = link.patience();
        let mut fds = link.events();
        fds.push(signals.as_fd());
        poll::wait_readable(&fds, timeout.min(status.due_in()))?;
        if signals.pending() {
            return Ok(());
        }
    }
}
