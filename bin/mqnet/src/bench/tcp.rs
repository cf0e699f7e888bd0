//! TCP from TAP to NTB to TAP, against a minimal relay between two TAPs and against a veth pair.
//!
//! Each contender joins two network namespaces of its own, which live through the whole run. They
//! take turns, one iperf3 stream at a time, in an order that changes with every round; the others
//! sleep meanwhile. So each round gives one ratio against each rival.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mqnet_sysio::process;
use serde_json::Value;

use super::child::{self, Child, RunFolder};
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::{Result, Session, peers};

/// Rounds unless somebody asks for another number: they are long.
pub(super) const ROUNDS: u32 = 10;

/// Names of our namespaces: this, the process, the contender, the side.
const PREFIX: &str = "mqnet-bench-";
const CLIENT: &str = "10.91.0.1/24";
const SERVER: &str = "10.91.0.2/24";
/// For what takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(15);
/// How often a stop signal is looked for while a stream runs.
const LOOK: Duration = Duration::from_millis(100);

const RELAY: &str = include_str!("../../peers/relay.c");

/// Arguments of `mqnet bench tcp`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TcpArgs {
    /// Seconds of one stream
    #[arg(long, default_value_t = 2, value_name = "S",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// More arguments for both `mqnet link`, separated by spaces
    #[arg(long, default_value = "", value_name = "ARGS", hide = true, allow_hyphen_values = true)]
    link_args: String,
}

/// What joins the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Mqnet,
    Relay,
    Veth,
}

impl Wire {
    fn who(self) -> &'static str {
        match self {
            Self::Mqnet => "mqnet",
            Self::Relay => "relay",
            Self::Veth => "veth",
        }
    }
}

/// One who takes part, or why not.
struct Contender {
    wire: Wire,
    world: std::result::Result<World, String>,
    samples: Vec<Sample>,
}

pub(super) fn run(session: &Session, report: &mut Report, args: &TcpArgs) -> Result<()> {
    remove_orphans();
    report.slice_ms = args.seconds * 1000;
    let folder = RunFolder::new()?;
    let mut contenders = Vec::new();
    for wire in [Wire::Mqnet, Wire::Relay, Wire::Veth] {
        session.progress.show(&format!("tcp: starting {}", wire.who()));
        let world = World::start(wire, &folder, args).map_err(|error| error.to_string());
        // Ctrl-C ends our children as well: that is no reason to skip them.
        session.check()?;
        contenders.push(Contender { wire, world, samples: Vec::new() });
    }
    measure(session, &mut contenders, args.seconds)?;
    report.notes.push(format!(
        "one iperf3 stream of {} s a run, MTU 1500, GSO; only mqnet link may pin its workers",
        args.seconds
    ));
    let mut lines = Vec::new();
    for Contender { wire, world, samples } in contenders {
        lines.push(match world {
            // The first turn of each warms up and is not counted.
            Ok(_) => Line::of(wire.who(), samples.into_iter().skip(1).collect()),
            Err(ref reason) => Line::skipped(wire.who(), reason.as_str()),
        });
        if let (Wire::Mqnet, Ok(mut world)) = (wire, world) {
            report.notes.push(match world.kicks() {
                Ok([tx, rx]) => format!(
                    "mqnet: kicks per frame {tx:.4} at the client's end, {rx:.4} at the server's"
                ),
                Err(error) => format!("mqnet: kicks per frame unknown: {error}"),
            });
        }
    }
    report.cases.push(Case::new("tcp 1 stream", Unit::Bits, lines));
    Ok(())
}

/// All rounds. Who fails is out, with the reason: what it had reached says little.
fn measure(session: &Session, contenders: &mut [Contender], seconds: u64) -> Result<()> {
    for round in 0..=session.pairs {
        for at in 0..contenders.len() {
            session.check()?;
            let turn = (round + at) % contenders.len();
            let Contender { wire, world, samples } = &mut contenders[turn];
            let Ok(running) = world else { continue };
            let who = wire.who();
            session.progress.show(&format!("tcp: round {round} of {}: {who}", session.pairs));
            match running.stream(session, seconds)? {
                // Far too long for the two CPUs to keep their distance.
                Ok(value) => samples.push(Sample { value, class: Class::Mixed }),
                Err(error) => {
                    // Ctrl-C ends our children as well: that is no failure of theirs.
                    session.check()?;
                    *world = Err(format!("failed in round {round}: {error}"));
                }
            }
        }
    }
    Ok(())
}

/// A network namespace, removed when dropped.
#[derive(Debug)]
struct Host {
    name: String,
}

impl Host {
    fn create(name: String) -> Result<Self> {
        ip(&["netns", "add", &name])?;
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// An `ip` command about this host.
    fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], args].concat())
    }

    /// Gives a device its address.
    fn set_up(&self, device: &str, address: &str) -> Result<()> {
        self.ip(&["address", "add", address, "dev", device])?;
        self.ip(&["link", "set", "dev", device, "mtu", "1500", "up"])
    }

    /// A command that will run here and ends when this thread does.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = child::guarded("ip")?;
        command.args(["netns", "exec", &self.name]).args(words);
        Ok(command)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It lacks only what somebody else has removed.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of benchmarks that were killed.
fn remove_orphans() {
    let Ok(folder) = std::fs::read_dir("/run/netns") else { return };
    for entry in folder.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another benchmark may do the same at this moment.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// Runs a short command.
fn run_short(program: &str, args: &[&str]) -> Result<()> {
    let run = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = run.map_err(|error| format!("cannot run {program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let why = child::last_lines(&String::from_utf8_lossy(&done.stderr));
    Err(format!("{program} {} failed: {why}", args.join(" ")).into())
}

fn ip(args: &[&str]) -> Result<()> {
    run_short("ip", args)
}

/// Two hosts, what joins them, and an iperf3 that listens on the second.
struct World {
    server: Child,
    wire: Vec<Child>,
    // After the processes that live in them.
    hosts: [Host; 2],
}

impl World {
    fn start(wire: Wire, folder: &RunFolder, args: &TcpArgs) -> Result<Self> {
        if !process::is_root() {
            return Err("needs root (network namespaces)".into());
        }
        peers::needs("ip", "iproute2")?;
        peers::needs("iperf3", "iperf3")?;
        let relay = if wire == Wire::Relay { Some(compile(folder)?) } else { None };
        let base = format!("{PREFIX}{}-{}", std::process::id(), wire.who());
        let hosts = [Host::create(format!("{base}-a"))?, Host::create(format!("{base}-b"))?];
        let wire = match (wire, relay) {
            (Wire::Mqnet, _) => start_links(&hosts, folder, &args.link_args)?,
            (_, Some(program)) => vec![start_relay(&hosts, &program)?],
            _ => {
                join_by_veth(&hosts)?;
                Vec::new()
            }
        };
        let command = hosts[1].command(&["iperf3", "-s", "--forceflush"])?;
        let server = Child::spawn("the iperf3 server", command, Stdio::null())?;
        server.wait_for(0, SOON, listens)?;
        Ok(Self { server, wire, hosts })
    }

    /// One stream from the first host to the second: the bits per second that arrived, or why it
    /// failed. An error only when somebody asked us to stop.
    fn stream(
        &mut self,
        session: &Session,
        seconds: u64,
    ) -> Result<std::result::Result<f64, String>> {
        let mark = self.server.mark();
        let deadline = Instant::now() + Duration::from_secs(seconds) + SOON;
        let mut client = match self.client(seconds) {
            Ok(client) => client,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let ended = loop {
            match client.finish(LOOK) {
                Err(_) if Instant::now() < deadline => session.check()?,
                ended => break ended,
            }
        };
        let bits = ended.and_then(|(_, said)| received(&said)).and_then(|bits| {
            // It refuses the next client until it is done with this one.
            self.server.wait_for(mark, SOON, listens).map(|()| bits)
        });
        Ok(bits.map_err(|error| error.to_string()))
    }

    fn client(&self, seconds: u64) -> Result<Child> {
        let (to, length) = (without_prefix(SERVER), seconds.to_string());
        let words = ["iperf3", "-J", "-c", to, "-t", &length, "--connect-timeout", "5000"];
        Child::spawn("iperf3", self.hosts[0].command(&words)?, Stdio::null())
    }

    /// Ends both links; returns how many kicks each gave for a frame.
    fn kicks(&mut self) -> Result<[f64; 2]> {
        let mut kicks = [0.0; 2];
        for (link, kicks) in self.wire.iter_mut().zip(&mut kicks) {
            process::terminate(link.pid()).map_err(|error| format!("cannot stop it: {error}"))?;
            let (_, said) = link.finish(SOON)?;
            let per_frame = said.lines().rev().find_map(kicks_per_frame);
            *kicks = per_frame.ok_or_else(|| format!("no counters: {}", link.tail()))?;
        }
        Ok(kicks)
    }
}

/// Both ends of our link, up.
fn start_links(hosts: &[Host; 2], folder: &RunFolder, more: &str) -> Result<Vec<Child>> {
    let ntb = format!("ntb:{}", folder.path.join("tcp.sock").display());
    let mut links = Vec::new();
    for ((host, address), device) in hosts.iter().zip([CLIENT, SERVER]).zip(["a", "b"]) {
        let tap = format!("tap:{device},netns={},address={address}", host.name);
        let mut command = child::own(&["link", "--json", &tap, &ntb])?;
        command.args(more.split_whitespace());
        links.push(Child::spawn("mqnet link", command, Stdio::null())?);
    }
    for link in &links {
        link.wait_for(0, SOON, |said| said.lines().any(is_up).then_some(()))?;
    }
    Ok(links)
}

fn start_relay(hosts: &[Host; 2], program: &Path) -> Result<Child> {
    let mut command = child::guarded(program)?;
    command.args(hosts.iter().map(|host| &host.name));
    let relay = Child::spawn("the relay", command, Stdio::null())?;
    relay.wait_for(0, SOON, |said| said.lines().any(|line| line == "ready").then_some(()))?;
    hosts[0].set_up("a", CLIENT)?;
    hosts[1].set_up("b", SERVER)?;
    Ok(relay)
}

fn join_by_veth([a, b]: &[Host; 2]) -> Result<()> {
    a.ip(&["link", "add", "name", "a", "type", "veth", "peer", "name", "b", "netns", &b.name])?;
    a.set_up("a", CLIENT)?;
    b.set_up("b", SERVER)
}

/// Compiles the relay; it takes a moment and needs no library.
fn compile(folder: &RunFolder) -> Result<PathBuf> {
    peers::needs("gcc", "gcc libc6-dev")?;
    let (text, program) = (folder.path.join("relay.c"), folder.path.join("relay"));
    std::fs::write(&text, RELAY).map_err(|error| format!("{}: {error}", text.display()))?;
    let (input, output) = (text.to_string_lossy(), program.to_string_lossy());
    run_short("gcc", &["-O3", "-std=gnu11", "-Wall", "-pthread", "-o", &output, &input])?;
    Ok(program)
}

fn listens(said: &str) -> Option<()> {
    said.contains("Server listening").then_some(())
}

fn is_up(line: &str) -> bool {
    serde_json::from_str(line).is_ok_and(|value: Value| value["event"] == "up")
}

fn without_prefix(address: &str) -> &str {
    address.split('/').next().unwrap_or(address)
}

/// Bits per second at the receiver, of what `iperf3 -J` said.
fn received(said: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(said)
        .map_err(|_| format!("iperf3 gave no report: {}", child::last_lines(said)))?;
    if let Some(error) = report["error"].as_str() {
        return Err(format!("iperf3: {error}").into());
    }
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.filter(|&bits| bits > 0.0).ok_or_else(|| "iperf3: nothing was received".into())
}

/// Kicks for a frame in both directions, if this line is the last word of a link.
fn kicks_per_frame(line: &str) -> Option<f64> {
    let end: Value = serde_json::from_str(line).ok()?;
    let sum = |what: &str| -> Option<u64> {
        Some(end["a-to-b"][what].as_u64()? + end["b-to-a"][what].as_u64()?)
    };
    (end["event"] == "end").then_some(())?;
    Some(sum("kicks")? as f64 / sum("tx-packets")?.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what arrived counts, and an error of iperf3 is told in its own words.
    #[test]
    fn the_report_of_iperf3_is_read() {
        let good = r#"{"end": {"sum_sent": {"bits_per_second": 9e9},
                              "sum_received": {"bits_per_second": 8.5e9}}}"#;
        assert_eq!(received(good).unwrap(), 8.5e9);
        for (bad, words) in [
            (r#"{"end": {}, "error": "unable to connect"}"#, "iperf3: unable to connect"),
            (r#"{"end": {"sum_received": {"bits_per_second": 0.0}}}"#, "nothing was received"),
            ("Cannot open network namespace", "no report: Cannot open network namespace"),
        ] {
            let error = received(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    // Goal: kicks of both directions over frames of both, of the end object and no other line.
    #[test]
    fn kicks_come_from_the_end_object() {
        let lanes = r#""a-to-b": {"kicks": 3, "tx-packets": 90},
                       "b-to-a": {"kicks": 2, "tx-packets": 10}}"#;
        assert_eq!(kicks_per_frame(&format!(r#"{{"event": "end", {lanes}"#)), Some(0.05));
        assert_eq!(kicks_per_frame(&format!(r#"{{"link": "up", {lanes}"#)), None);
        assert_eq!(kicks_per_frame("not JSON"), None);
        assert!(is_up(r#"{"event": "up", "text": "a <-> b"}"#) && !is_up(r#"{"link": "up"}"#));
    }
}
