//! `mqnet link A B`: one link, in the foreground or detached.

mod detach;

use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use mqnet_address::{CheckedLink, Endpoint};
use mqnet_command::Failure;
use mqnet_control::notify;
use mqnet_control::socket::{ControlSocket, Role};
use mqnet_control_api::LinkSpec;
use mqnet_engine::Notice;
use mqnet_host::{HostMode, HostedLink, LinkHost, Opening};
use mqnet_sysio::process;
use mqnet_sysio::signal::StopSignals;

use crate::args::LinkArgs;
use crate::config::check;
use crate::platform::Backends;
use crate::privileges;
use crate::run::{self, Frontend, Server};
use crate::status::{Status, StatusStyle};
use crate::vmm;

/// Runs the command.
pub fn run(args: &LinkArgs) -> Result<(), Failure> {
    let spec = args.spec();
    let checked = checked(&spec)?;
    if args.detach {
        return detach::run(args, &spec);
    }
    // Inherited descriptors are taken before any descriptor is opened here.
    let inherited = ControlSocket::inherited()?;
    let fds = [inherit(&checked.a)?, inherit(&checked.b)?];
    let signals = StopSignals::take()?;
    if args.detached {
        process::leave_session()?;
    }
    if let Some(parent) = args.with_parent {
        process::die_with_parent()?;
        // If the parent has ended before the signal was set up, the signal never arrives.
        if std::os::unix::process::parent_id() != parent {
            return Err(Failure::Broken(format!("the parent process {parent} has ended")));
        }
    }
    run::prepare(&args.sandbox)?;
    let mut host = LinkHost::new(HostMode::Link, Box::new(Backends));
    let told = [&checked.a, &checked.b].map(|end| match end {
        Endpoint::VhostUser(card) => vmm::flags(card, checked.channels),
        Endpoint::NtbVfioUser(end) => Some(vmm::ntb_commands(end)),
        _ => None,
    });
    host.add(None, spec, checked, Opening { fds, may_wait: false })?;
    if !args.json {
        told.into_iter().flatten().for_each(|flags| eprint!("{flags}"));
    }
    let style = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => StatusStyle::Json,
        (false, true) => StatusStyle::Line,
        (false, false) => StatusStyle::Quiet,
    };
    let mut front = Front { status: Status::new(style, Duration::from_millis(args.interval_ms)) };
    run::runtime()?.block_on(async {
        let control = match run::open_control(&args.control, inherited, Role::Link) {
            Ok(control) => control,
            // The control socket is optional unless the user named it.
            Err(e) if !args.control.is_explicit() => {
                tracing::warn!("no control socket: {e}");
                None
            }
            Err(e) => return Err(e.into()),
        };
        let mut server = Server::start(control.as_ref(), None)?;
        host.entries.iter().for_each(|entry| {
            privileges::keep_for_link([entry.endpoint(0), entry.endpoint(1)]);
        });
        notify::ready("running").await;
        let ended = run::turn(&mut host, &mut server, &signals, &mut front).await;
        notify::stopping().await;
        server.end();
        let Some(entry) = host.entries.first_mut() else { return ended };
        // Stop the lanes before the final table: the counters of both ends agree only after that.
        entry.end("the peer's user stopped the link", Duration::MAX)?;
        front.status.finish(&mut entry.link);
        ended
    })
}

/// Validates the link, as far as possible without opening its endpoints.
fn checked(spec: &LinkSpec) -> Result<CheckedLink, Failure> {
    // Inherited descriptors are allowed on the command line only, so `check` gets addresses without
    // them.
    let mut plain = spec.clone();
    let ends = [&mut plain.a, &mut plain.b].map(|address| -> Result<_, Failure> {
        if let Ok(Some(found)) = mqnet_address::find_group(address, Path::new("/")) {
            eprintln!("{address}: {}: {}", found.why, found.address);
        }
        let (end, egress) =
            mqnet_address::parse_both(address).map_err(|e| Failure::BadInput(e.to_string()))?;
        if !end.config().inherited().is_empty() {
            *address = format!("{}fds", end.kind().prefix);
        }
        Ok((end, egress))
    });
    let [a, b] = ends;
    let checked = check(&plain).map_err(|e| Failure::BadInput(e.to_string()))?;
    let ((a, from_a), (b, from_b)) = (a?, b?);
    Ok(CheckedLink { a, b, egress: [from_a, from_b], ..checked })
}

fn inherit(end: &Endpoint) -> Result<Vec<OwnedFd>, Failure> {
    let take = |&fd: &i32| {
        process::take_inherited(fd)
            .map_err(|e| Failure::BadInput(format!("{}: fd={fd}: {e}", end.config().netdev_name())))
    };
    end.config().inherited().iter().map(take).collect()
}

struct Front {
    status: Status,
}

impl Frontend for Front {
    fn notice(&mut self, entry: &mut HostedLink, notice: &Notice) {
        self.status.notice(&mut entry.link, notice);
    }

    fn tick(&mut self, host: &mut LinkHost) -> Duration {
        if let Some(entry) = host.entries.first_mut() {
            self.status.tick(&mut entry.link);
        }
        self.status.due_in()
    }

    fn hangup(&mut self, _host: &mut LinkHost) -> bool {
        false
    }
}
