//! Response time of the control socket of a link with 64 channels, idle and saturated by TCP. Also
//! measured: the cost of a response for the lanes and the control thread.

mod data_path;

use std::process::Stdio;
use std::time::Duration;

use mqnet_control::client::{Client, segment};
use mqnet_sysio::clock;
use serde_json::Value;

use super::child::{Child, RunFolder};
use super::histogram::{self, Histogram};
use super::hosts::remove_orphans;
use super::iperf::Iperf;
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::waiting::SOON;
use super::wires::{SERVER, Wire, World, without_prefix};
use super::{Result, Session, cpu, slices};

const CHANNELS: usize = 64;
/// TCP streams that saturate both CPUs.
const STREAMS: &str = "4";
/// Pause between two requests.
const EVERY: Duration = Duration::from_millis(10);
/// Slices in which one request is repeated. Three rounds of the default slice then give the 200
/// responses that an interval of the 99th percentile needs.
const SLICES: u32 = 5;
/// Time until the streams reach their rate.
const WARM_UP: Duration = Duration::from_millis(300);
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Requests, each with the name of its cases in the report.
const QUESTIONS: [(&str, &str); 2] =
    [("channels", "one question: the channels"), ("stats", "all statistics of 64 channels")];

/// Response times of one request under one load.
#[derive(Default)]
struct Seen {
    rounds: Vec<(Histogram, Class)>,
    most: Vec<Sample>,
    cpu: Vec<Sample>,
}

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    data_path::run(session, report)?;
    remove_orphans();
    let folder = RunFolder::new()?;
    session.progress.show("control: starting the link");
    let (world, server, asked) = match start(&folder) {
        Ok(started) => started,
        Err(reason) => {
            // Ctrl-C also ends the child processes. The run then ends here, instead of reporting
            // the case as skipped.
            session.check()?;
            let lines = vec![Line::skipped("mqnet", reason.to_string())];
            report.cases.push(Case::new("questions to a link", Unit::Latency, lines));
            return Ok(());
        }
    };
    let mut seen: [[Seen; 2]; 2] = Default::default();
    for round in 0..=session.pairs {
        session.progress.show(&format!("control: round {round} of {}", session.pairs));
        for loaded in slices::order(2, round) {
            let mark = server.mark();
            let streams = if loaded == 1 { Some(saturate(session, &world)?) } else { None };
            for (question, (path, _)) in QUESTIONS.iter().enumerate() {
                session.check()?;
                let turn = asked.turn(session, path)?;
                // The first round warms up and is not counted.
                if round > 0 {
                    seen[question][loaded].take(turn);
                }
            }
            if let Some(streams) = streams {
                drop(streams);
                server.wait_until_free(mark)?;
            }
        }
    }
    drop(server);
    let [here, there] = session.cpus;
    report.notes.push(format!(
        "a question every {} ms, over the Unix socket, each on a connection of its own; load: \
         {STREAMS} streams of iperf3 over the same link, its ends on CPU {here} and {there}",
        EVERY.as_millis()
    ));
    for ((_, name), seen) in QUESTIONS.iter().zip(&seen) {
        report.cases.extend(cases(name, seen));
    }
    Ok(())
}

/// Starts a link, the receiver of the load, and a connection to the process that responds.
fn start(folder: &RunFolder) -> Result<(World, Iperf, Asked)> {
    let world = World::start(Wire::Mqnet, folder, &format!("--channels {CHANNELS}"))?;
    let server = Iperf::listen(&world.hosts[1])?;
    let asked = Asked::new(&world, folder)?;
    Ok((world, server, asked))
}

const WHO: [&str; 2] = ["idle", "4 TCP streams"];

fn cases(name: &str, seen: &[Seen; 2]) -> Vec<Case> {
    // Lines are in the order loaded, idle.
    let order = [1, 0];
    let percentile = |&(percentile, share): &(&str, f64)| {
        let lines = order.map(|load| histogram::line(WHO[load], &seen[load].rounds, share));
        Case::new(format!("{name}, {percentile}"), Unit::Latency, lines.into())
    };
    let mut cases: Vec<Case> = PERCENTILES.iter().map(percentile).collect();
    let most = order.map(|load| Line::of(WHO[load], seen[load].most.clone()));
    cases.push(Case::new(format!("{name}, longest of a round"), Unit::Latency, most.into()));
    let cpu = order.map(|load| Line::of(WHO[load], seen[load].cpu.clone()));
    let name = format!("{name}, CPU of the control thread for each");
    cases.push(Case::new(name, Unit::Latency, cpu.into()));
    cases
}

impl Seen {
    fn take(&mut self, turn: Turn) {
        let sample = |value| Sample { value, class: Class::Mixed };
        self.rounds.push((turn.times, Class::Mixed));
        self.most.push(sample(turn.most as f64));
        self.cpu.extend(turn.cpu_ns.map(sample));
    }
}

/// Response times of one request in one round.
struct Turn {
    times: Histogram,
    most: u64,
    /// CPU time of the control thread per response.
    cpu_ns: Option<f64>,
}

/// Connection to the process that responds.
struct Asked {
    client: Client,
    pid: u32,
    link: String,
}

impl Asked {
    /// Connects to the process of the first host and checks that it responds.
    fn new(world: &World, folder: &RunFolder) -> Result<Self> {
        let pid = world.wire.first().ok_or("a link without a process")?.pid();
        let socket = folder.path.join(format!("link-{pid}.sock"));
        let socket = socket.to_str().ok_or("the folder for sockets has a strange name")?;
        let client = Client::connect(socket)?;
        let links = client.get("/v1/links")?;
        let link = links[0]["name"].as_str().ok_or("the link has no name")?.to_owned();
        Ok(Self { client, pid, link })
    }

    fn turn(&self, session: &Session, path: &str) -> Result<Turn> {
        let path = match path {
            "stats" => format!("/v1/links/{}/stats", segment(&self.link)),
            // Channels of the TAP `a`, which is in the first host.
            _ => "/v1/netdevs/a/channels".to_owned(),
        };
        let (mut times, mut most, mut asked) = (Histogram::default(), 0, 0);
        let thread = self.pid.to_string();
        let before = cpu::thread(self.pid, &thread);
        let end = clock::monotonic() + session.slice * SLICES;
        while clock::monotonic() < end {
            let begin = clock::monotonic();
            let answer = self.client.get(&path)?;
            let took = clock::monotonic() - begin;
            if answer == Value::Null {
                return Err(format!("an empty answer to {path}").into());
            }
            times.add(took.as_nanos() as u64);
            most = most.max(took.as_nanos() as u64);
            asked += 1;
            std::thread::sleep(EVERY.saturating_sub(took));
        }
        let after = cpu::thread(self.pid, &thread);
        let cpu_ns = before.zip(after).map(|(a, b)| (b - a) * 1e9 / f64::from(asked));
        Ok(Turn { times, most, cpu_ns })
    }
}

/// Starts TCP streams that saturate the link; returns their process, which ends when dropped.
fn saturate(session: &Session, world: &World) -> Result<Child> {
    let to = without_prefix(SERVER);
    // The streams run for 600 s, longer than any measurement.
    let pins = session.cpus.map(|cpu| cpu.to_string()).join(",");
    let words = ["iperf3", "--forceflush", "-i", "0.1", "-c", to, "-P", STREAMS, "-t", "600"];
    let words = [&words[..], &["-A", &pins]].concat();
    let streams = Child::spawn("iperf3", world.hosts[0].command(&words)?, Stdio::null())?;
    streams.wait_for(0, SOON, |output| output.contains("[SUM]").then_some(()))?;
    session.check()?;
    std::thread::sleep(WARM_UP);
    Ok(streams)
}
