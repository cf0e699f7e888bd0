//! `mqnet daemon`: runs the links of the configuration and the links added by requests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use mqnet_address::config::{Config, diff};
use mqnet_command::Failure;
use mqnet_control::notify;
use mqnet_control::socket::{ControlSocket, Role};
use mqnet_control_api::{ApiError, Code, Outcome};
use mqnet_engine::Notice;
use mqnet_host::{HostMode, HostedLink, LINKS_DEFAULT, LinkHost, Opening};
use mqnet_sysio::clock;
use mqnet_sysio::signal::StopSignals;

use crate::args::{ControlArgs, SandboxArgs};
use crate::config::{DEFAULT_FILE, check, sources};
use crate::limits;
use crate::platform::Backends;
use crate::privileges;
use crate::run::{self, Frontend, Server};

/// Time limit at shutdown in which all links together deliver accepted frames; much shorter than
/// systemd's limit (`TimeoutStopSec=`).
const STOPPING: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub struct DaemonArgs {
    /// Configuration file; the files of conf.d/ in the same folder are read too. The default file
    /// may be missing.
    #[arg(short = 'f', long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// Runs the command.
pub fn run(args: &DaemonArgs) -> Result<(), Failure> {
    let inherited = ControlSocket::inherited()?;
    let signals = StopSignals::take()?;
    let file = args.config.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let config = match args.config.is_none() && !file.exists() {
        true => Config::default(),
        false => read(&file).map_err(Failure::BadInput)?,
    };
    run::prepare(&args.sandbox)?;
    privileges::keep_for_daemon();
    let control_args = args.control.or(&config.daemon);
    let mut front = Daemon { file, config: Config::default() };
    let mut host = LinkHost::new(HostMode::Daemon, Box::new(Backends));
    run::runtime()?.block_on(async {
        // Open the control socket before any link: a second daemon must not touch devices of the
        // first.
        let control = run::open_control(&control_args, inherited, Role::Daemon)?;
        for problem in front.apply(&mut host, config.clone()) {
            tracing::error!("{problem}");
        }
        let mut server = Server::start(control.as_ref(), config.daemon.metrics)?;
        notify::ready(&format!("{} links", host.entries.len())).await;
        let ended = run::turn(&mut host, &mut server, &signals, &mut front).await;
        notify::stopping().await;
        server.end();
        // Shutdown deadline shared by all links: the delays of slow peers do not add up.
        let (begin, mut first) = (clock::monotonic(), Ok(()));
        for entry in &mut host.entries {
            let left = STOPPING.saturating_sub(clock::monotonic().saturating_sub(begin));
            first = first.and(entry.end("the daemon was stopped", left));
        }
        first?;
        ended
    })
}

/// Reads the configuration; the error lists all problems.
fn read(file: &std::path::Path) -> Result<Config, String> {
    Config::parse(&sources(file)?, check).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })
}

struct Daemon {
    file: PathBuf,
    /// Configuration in force.
    config: Config,
}

impl Daemon {
    /// Changes the links from the configuration in force to `config`, and returns the changes that
    /// failed. A later reload retries these changes. Unchanged links keep running.
    fn apply(&mut self, host: &mut LinkHost, mut config: Config) -> Vec<String> {
        limits::apply(&config.limits);
        host.links_max = config.limits.links.unwrap_or(LINKS_DEFAULT);
        host.policy = config.policy.clone();
        // A link that a request has deleted is first removed from the old configuration. The
        // difference to the new configuration then adds the link again.
        self.config.links.retain(|name, _| host.entries.iter().any(|entry| entry.name == *name));
        let plan = diff(&self.config, &config);
        let mut problems = Vec::new();
        let mut note = |name: &str, result: Result<(), ApiError>| {
            problems.extend(result.as_ref().err().map(|e| format!("link {name}: {e}")));
            result.is_ok()
        };
        for name in &plan.remove {
            note(name, host.remove(name));
        }
        for name in &plan.add {
            let link = &config.links[name];
            let opening = Opening::plain(true);
            let add = host.add(Some(name), link.spec.clone(), link.checked.clone(), opening);
            if !note(name, add) {
                config.links.remove(name);
            }
        }
        for name in &plan.change {
            let link = &config.links[name];
            let change = host.retune(name, link.spec.clone(), link.checked.clone());
            if !note(name, change)
                && let Some(before) = self.config.links.remove(name)
            {
                config.links.insert(name.clone(), before);
            }
        }
        self.config = config;
        problems
    }

    /// Reloads the configuration and retries waiting links. Returns a message if links still wait;
    /// failed changes are an error.
    fn reload(&mut self, host: &mut LinkHost) -> Result<Option<String>, ApiError> {
        let config = read(&self.file).map_err(|why| ApiError::new(Code::Invalid, why))?;
        let problems = self.apply(host, config).join("; ");
        host.retry_now();
        if !problems.is_empty() {
            return Err(ApiError::new(Code::Failed, problems));
        }
        let line = |(name, why): (&str, &str)| format!("link {name} waits: {why}");
        let waiting: Vec<String> = host.waiting().map(line).collect();
        Ok((!waiting.is_empty()).then(|| waiting.join("; ")))
    }
}

impl Frontend for Daemon {
    fn notice(&mut self, entry: &mut HostedLink, notice: &Notice) {
        let name = &entry.name;
        match notice {
            Notice::Up(plan) => {
                let plural = if plan.channels == 1 { "" } else { "s" };
                tracing::info!("{name}: up, {} channel{plural}", plan.channels);
            }
            Notice::Down(why) => tracing::warn!("{name}: down: {why}"),
            Notice::Changed { plan, .. } => tracing::info!("{name}: {} channels", plan.channels),
            Notice::ChangeFailed(why) => tracing::warn!("{name}: not changed: {why}"),
        }
    }

    fn tick(&mut self, host: &mut LinkHost) -> Duration {
        if let Some(ticket) = host.reload_wanted.take() {
            let since = Instant::now();
            let done = self.reload(host);
            let took_us = since.elapsed().as_micros() as u64;
            ticket.settle(done.map(|note| Outcome { changed: true, note, took_us }));
        }
        Duration::from_secs(1)
    }

    fn hangup(&mut self, host: &mut LinkHost) -> bool {
        tokio::spawn(notify::reloading());
        if let Err(e) = self.reload(host) {
            tracing::error!("reload: {e}");
        }
        let status = format!("{} links", host.entries.len());
        tokio::spawn(async move { notify::ready(&status).await });
        true
    }
}
