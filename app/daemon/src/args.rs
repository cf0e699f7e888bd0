//! Arguments shared by the commands of this crate.

use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, value_parser};
use mqnet_address::config::DaemonConfig;
use mqnet_address::{BadAddress, CHANNELS, POLL_WINDOW, WORKERS, parse, parse_cpus};
use mqnet_command::Failure;
use mqnet_control::socket::{Owner, SocketAddress, SocketOptions, group_id, parse_mode, user_id};
use mqnet_control_api::{ApiError, LinkSpec};
use mqnet_sysio::listen::Access;

fn whole(range: &RangeInclusive<u32>) -> RangeInclusive<i64> {
    i64::from(*range.start())..=i64::from(*range.end())
}

pub(crate) fn channels() -> impl TypedValueParser<Value = u16> {
    value_parser!(u16).range(whole(&CHANNELS))
}

pub(crate) fn workers() -> impl TypedValueParser<Value = u16> {
    value_parser!(u16).range(whole(&WORKERS))
}

fn poll_window() -> impl TypedValueParser<Value = u32> {
    value_parser!(u32).range(whole(&POLL_WINDOW))
}

/// Text after the options of `mqnet link --help`.
fn link_help() -> String {
    mqnet_address::help() + LINK_HELP
}

const LINK_HELP: &str = "
Environment:
  MQNET_STORES=auto|cached|streamed  how frames are stored into memory that another CPU reads (ntb:,
                vhost-user:, virtio-user:): as measured, through the cache as it is, or past it

Example, two hosts (network namespaces of one machine; ip netns add b) that talk:
  mqnet link tap:a,address=10.0.0.1/24 ntb:/run/x.sock --channels 4
  mqnet link tap:b,netns=b,address=10.0.0.2/24 ntb:/run/x.sock,name=y --channels 4";

#[derive(Args, Debug)]
#[command(after_help = link_help())]
pub struct LinkArgs {
    /// First endpoint.
    #[arg(value_parser = address)]
    pub(crate) a: String,
    /// Second endpoint.
    #[arg(value_parser = address)]
    pub(crate) b: String,
    /// Requested number of channels [default: the number that an endpoint has (the queues of an
    /// interface or a guest, the channels of the other end of a bridge, one for each member of a
    /// group), otherwise 1]. If both endpoints have a number, the smaller one is used.
    #[arg(short, long, value_parser = channels())]
    pub(crate) channels: Option<u16>,
    /// Number of worker threads [default: one per channel, at most one per CPU].
    #[arg(short, long, value_parser = workers())]
    pub(crate) workers: Option<u16>,
    /// CPUs for the workers: auto (distinct cores), float (not pinned) or a list like 0-3,8.
    #[arg(long, default_value = "auto", value_parser = cpus)]
    pub(crate) cpus: String,
    /// Microseconds that a lane is polled after its last frame before it sleeps.
    #[arg(long, value_name = "US", default_value_t = 1000, value_parser = poll_window())]
    pub(crate) poll_window: u32,
    /// Leave the link running in the background: in the daemon if one runs, otherwise in a process
    /// for this link.
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Print one JSON object per second on stdout instead of the status line.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Milliseconds between two status lines or JSON objects.
    #[arg(long, value_name = "MS", default_value_t = 1000, hide = true,
          value_parser = value_parser!(u64).range(10..=60_000))]
    pub(crate) interval_ms: u64,
    /// End normally when the parent process with this PID ends.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) with_parent: Option<u32>,
    /// Run as the process that `--detach` has started.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

impl LinkArgs {
    /// Arguments for two endpoints, with defaults for all options.
    pub(crate) fn of(a: &str, b: &str) -> Result<Self, Failure> {
        #[derive(Parser)]
        struct Words {
            #[command(flatten)]
            link: LinkArgs,
        }
        let words = Words::try_parse_from(["link", a, b]);
        words.map(|words| words.link).map_err(|e| Failure::BadInput(e.to_string()))
    }

    /// Returns the link as a configuration file describes it.
    pub(crate) fn spec(&self) -> LinkSpec {
        LinkSpec {
            a: self.a.clone(),
            b: self.b.clone(),
            channels: self.channels,
            workers: self.workers,
            cpus: Some(self.cpus.clone()),
            poll_window: Some(self.poll_window),
        }
    }
}

/// Restrictions of the process.
#[derive(Args, Clone, Debug, Default)]
pub struct SandboxArgs {
    /// Run without the seccomp filter, to test whether the filter causes a failure.
    #[arg(long)]
    pub(crate) no_seccomp: bool,
}

/// Control socket of a process.
#[derive(Args, Clone, Debug, Default)]
pub struct ControlArgs {
    /// Control socket of this process: a path, @NAME or none [default: in the runtime folder,
    /// $MQNET_RUNTIME_DIR or /run/mqnet or $XDG_RUNTIME_DIR/mqnet].
    #[arg(long = "control-socket", value_name = "SOCKET")]
    pub(crate) control: Option<String>,
    /// Permissions of the control socket [default: 0660].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) control_mode: Option<u32>,
    /// Owner of the control socket.
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) control_owner: Option<String>,
}

impl ControlArgs {
    /// True if the user set any of these options.
    pub(crate) fn is_explicit(&self) -> bool {
        self.control.is_some() || self.control_mode.is_some() || self.control_owner.is_some()
    }

    /// Fills unset options from the configuration file.
    pub(crate) fn or(&self, file: &DaemonConfig) -> Self {
        Self {
            control: self.control.clone().or(file.control_socket.clone()),
            control_mode: self.control_mode.or(file.socket_mode),
            control_owner: self.control_owner.clone().or(file.socket_owner.clone()),
        }
    }

    /// Returns the options of the control socket.
    pub(crate) fn options(&self) -> Result<SocketOptions, ApiError> {
        let address = self.control.as_deref().map(SocketAddress::from_str).transpose()?;
        let owner = self.control_owner.as_deref().map(Owner::from_str).transpose()?;
        Ok(SocketOptions { address, mode: self.control_mode, owner })
    }
}

/// Permissions of a socket for other processes.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessArgs {
    /// Permissions of the socket [default: according to the umask].
    #[arg(long = "socket-mode", value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// Owner of the socket.
    #[arg(long = "socket-owner", value_name = "USER")]
    owner: Option<String>,
    /// Group of the socket.
    #[arg(long = "socket-group", value_name = "GROUP")]
    group: Option<String>,
}

impl AccessArgs {
    /// Returns the permissions, with user and group names resolved.
    pub(crate) fn get(&self) -> Result<Access, Failure> {
        let bad = |option: &str| {
            let option = option.to_owned();
            move |why| Failure::BadInput(format!("{option}: {why}"))
        };
        let uid = self.owner.as_deref().map(user_id).transpose().map_err(bad("--socket-owner"))?;
        let gid = self.group.as_deref().map(group_id).transpose().map_err(bad("--socket-group"))?;
        Ok(Access { mode: self.mode, uid, gid })
    }

    /// Returns the permissions as options of an endpoint address, each with a leading comma.
    pub(crate) fn options(&self) -> String {
        let mode = self.mode.map(|mode| format!(",mode={mode:04o}"));
        let owner = self.owner.as_ref().map(|owner| format!(",owner={owner}"));
        let group = self.group.as_ref().map(|group| format!(",group={group}"));
        [mode, owner, group].into_iter().flatten().collect()
    }
}

fn mode(text: &str) -> Result<u32, String> {
    parse_mode(text).map_err(|e| e.to_string())
}

fn address(text: &str) -> Result<String, BadAddress> {
    parse(text).map(|_| text.to_owned())
}

fn cpus(text: &str) -> Result<String, String> {
    parse_cpus(text).map(|_| text.to_owned())
}
