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

/// Plugs any two packet endpoints together and gives the link what a good NIC has: many queues,
/// backpressure instead of drops, counters that account for every packet.
#[derive(Debug, Parser)]
#[command(name = "mqnet", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more on stderr (twice: still more).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Ask the process at this socket only [default: $MQNET_CONTROL, else whoever has the device].
    #[arg(long, value_name = "SOCKET", global = true)]
    pub(crate) control: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The name by which VMMs call a backend program for network cards.
pub(crate) const VHOST_USER_NET: &str = "vhost-user-net";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join two endpoints and run the link until Ctrl-C.
    Link(LinkArgs),
    /// The network card of a guest, as QEMU's conventions for backend programs have it.
    #[command(name = VHOST_USER_NET)]
    VhostUserNet(BackendArgs),
    /// Lend guests a shared memory with doorbells (QEMU's ivshmem), until Ctrl-C.
    IvshmemServer(ServerArgs),
    /// Build two hosts, link them, run traffic, kill one side and watch the link heal (no root).
    Demo(DemoArgs),
    /// Run the links of the configuration, and those that are asked for. A link of the
    /// configuration whose ends cannot be opened yet waits, and is tried again.
    Daemon(DaemonArgs),
    /// Add a link to the daemon. Fails when an end cannot be opened; links of the configuration
    /// wait instead.
    Add(AddArgs),
    /// End a link, in whatever process it is.
    Del(DelArgs),
    /// Change a running netdev: channels, MTU, rings.
    Set(SetArgs),
    /// Let the daemon read its configuration again; links that did not change go on, those that
    /// wait are tried at once.
    Reload,
    /// Show links and netdevs.
    Show(ShowArgs),
    /// Show every counter, and that none is missing.
    Stats(StatsArgs),
    /// Watch channels live.
    Top(TopArgs),
    /// Print which CPU, memory and interrupt each channel gets on this machine, or another.
    Plan(PlanArgs),
    /// Say why a queue is stopped, since when and by whom.
    Why(WhyArgs),
    /// Tell what happens, as it happens.
    Monitor(MonitorArgs),
    /// Write the frames of a netdev as pcapng.
    Capture(CaptureArgs),
    /// Look at configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// One host of the demo.
    #[command(hide = true)]
    DemoHost(HostArgs),
    /// Receive the descriptors of peers for another mqnet, which is the standard input.
    #[command(hide = true)]
    ReceiveDescriptors(SandboxArgs),
    /// Say what this kernel and this user can do, and which knob changes that.
    Doctor(DoctorArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Print continuations of an endpoint address, for the completions of a shell.
    #[command(hide = true)]
    CompleteAddress(CompleteAddressArgs),
    /// Write the man pages.
    #[command(hide = true)]
    Man(ManArgs),
    /// Show and change a device in the manner of ethtool.
    Ethtool(EthtoolArgs),
    /// Show and change queueing disciplines, classes and filters in the manner of tc.
    Tc(TcArgs),
    /// Let an eBPF program decide about each frame that arrives.
    Xdp(XdpArgs),
    /// Query the `netdev` family in the manner of the kernel's ynl tool.
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

    // Goal: clap hands every command line on as it is.
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
