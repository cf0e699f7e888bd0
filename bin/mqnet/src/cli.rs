//! The command line.

use clap::{Parser, Subcommand};
use mqnet_client::{
    AddArgs, CaptureArgs, DelArgs, EthtoolArgs, MonitorArgs, SetArgs, ShowArgs, StatsArgs, TcArgs,
    TopArgs, WhyArgs, XdpArgs, YnlArgs,
};
use mqnet_daemon::args::{LinkArgs, SandboxArgs};
use mqnet_daemon::config::ConfigCommand;
use mqnet_daemon::daemon::DaemonArgs;
use mqnet_daemon::doctor::DoctorArgs;
use mqnet_daemon::ivshmem_server::ServerArgs;
use mqnet_daemon::plan::PlanArgs;
use mqnet_daemon::vmm::BackendArgs;
use mqnet_demo::{DemoArgs, HostArgs};

use crate::generate::{CompleteAddressArgs, CompletionsArgs, ManArgs};

/// Joins any two packet endpoints and gives the link the features of a good NIC: many queues,
/// backpressure instead of drops, counters that account for every packet.
#[derive(Debug, Parser)]
#[command(name = "mqnet", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log more on stderr (twice: debug messages).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Use the process at this socket only [default: $MQNET_CONTROL, otherwise the process that has
    /// the device].
    #[arg(long, value_name = "SOCKET", global = true)]
    pub(crate) control: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Name under which VMMs start a backend program for network cards.
pub(crate) const VHOST_USER_NET: &str = "vhost-user-net";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join two endpoints and run the link until Ctrl-C.
    Link(LinkArgs),
    /// Run the backend of a guest's network card, with the options of QEMU's conventions for
    /// backend programs.
    #[command(name = VHOST_USER_NET)]
    VhostUserNet(BackendArgs),
    /// Provide a shared memory with doorbells (QEMU's ivshmem) for guests, until Ctrl-C.
    IvshmemServer(ServerArgs),
    /// Build two hosts, link them, run traffic, kill one side and watch the link heal (no root).
    Demo(DemoArgs),
    /// Run the links of the configuration and the links added by requests. A link of the
    /// configuration waits while its endpoints cannot be opened, and is retried.
    Daemon(DaemonArgs),
    /// Add a link to the daemon. The command fails if an endpoint cannot be opened; links of the
    /// configuration wait instead.
    Add(AddArgs),
    /// Delete a link of any process.
    Del(DelArgs),
    /// Change a running netdev: channels, MTU, rings.
    Set(SetArgs),
    /// Make the daemon read its configuration again. Unchanged links keep running; waiting links
    /// are retried immediately.
    Reload,
    /// Show links and netdevs.
    Show(ShowArgs),
    /// Show every counter and the conservation check.
    Stats(StatsArgs),
    /// Show all lanes live.
    Top(TopArgs),
    /// Print CPU, memory and interrupt of each channel for this machine or another one.
    Plan(PlanArgs),
    /// Show stopped queues with cause and time, and recent drops with remedies.
    Why(WhyArgs),
    /// Print events as they occur.
    Monitor(MonitorArgs),
    /// Write the frames of a netdev as pcapng.
    Capture(CaptureArgs),
    /// Check configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Run one host of the demo.
    #[command(hide = true)]
    DemoHost(HostArgs),
    /// Receive the descriptors of peers for another mqnet, connected to the standard input.
    #[command(hide = true)]
    ReceiveDescriptors(SandboxArgs),
    /// Show the features of this kernel, the privileges of this user, and the setting that changes
    /// each.
    Doctor(DoctorArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Print continuations of an endpoint address, for the completions of a shell.
    #[command(hide = true)]
    CompleteAddress(CompleteAddressArgs),
    /// Write the man pages.
    #[command(hide = true)]
    Man(ManArgs),
    /// Show and change a device with the syntax of ethtool.
    Ethtool(EthtoolArgs),
    /// Show and change queueing disciplines, classes and filters with the syntax of tc.
    Tc(TcArgs),
    /// Process received frames with an XDP program.
    Xdp(XdpArgs),
    /// Query the `netdev` family with the syntax of the kernel's ynl tool.
    Ynl(YnlArgs),
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

    // Goal: an impossible value is refused with the field and the allowed range.
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

    // Goal: clap passes every argument of `mqnet ethtool` unchanged.
    #[test]
    fn clap_takes_nothing_away() {
        for line in
            ["-l eth0", "--json -k eth0", "-K eth0 tso on", "-h", "-X eth0 equal -1", "--foo"]
        {
            let line = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let words = ["mqnet", "ethtool"].map(str::to_owned).into_iter().chain(line.clone());
            let cli = Cli::try_parse_from(words).unwrap();
            let Command::Ethtool(args) = cli.command else { panic!("another command") };
            assert_eq!(args.args, line);
        }
    }

    // Goal: the command line takes exactly one of --dump and --do.
    #[test]
    fn ynl_takes_do_or_dump() {
        let parses = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parses("mqnet ynl --family netdev --dump queue-get --output-json"));
        assert!(parses("mqnet ynl --do queue-get --json {}"));
        assert!(!parses("mqnet ynl"));
        assert!(!parses("mqnet ynl --do napi-get --dump napi-get"));
        assert!(!parses("mqnet ynl --family ethtool --dump napi-get"));
    }
}
