//! Requests and responses of one byte over TCP, with and without a parallel bulk flow.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqnet_sysio::clock;

use super::super::child::{Child, own_path};
use super::super::histogram::Histogram;
use super::super::waiting::SOON;
use super::super::wires::{SERVER, World, without_prefix};
use super::super::{Result, pingpong};
use super::ping::ask;

/// Port of the pinned pair of processes; the other pair in the same two hosts uses the next port.
const PORT: u16 = 7788;
/// First byte of a connection that carries requests.
const QUESTIONS: u8 = b'q';
const BULK: u8 = b'b';
/// Bytes of a part of the bulk flow. The number of parts in flight is limited, so that the flow
/// ends soon after a stop request.
const PART: usize = 64 << 10;
const AWAY: usize = 16;
/// Time in which the bulk flow runs alone.
const WARM_UP: Duration = Duration::from_millis(20);

/// Arguments of the hidden subcommand `bench-rr`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RrArgs {
    /// CPU of all threads of the process [default: chosen by the scheduler]
    #[arg(long)]
    cpu: Option<usize>,
    /// Destination address of requests; without an address the process responds.
    address: Option<String>,
}

pub(crate) fn rr(args: &RrArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        // Threads that are started later inherit the affinity.
        pingpong::pin(cpu)?;
    }
    let port = PORT + u16::from(args.cpu.is_none());
    match &args.address {
        Some(address) => asks(address, port),
        None => answers(port),
    }
}

fn answers(port: u16) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    println!("ready");
    for stream in listener.incoming() {
        let stream = stream?;
        // Errors of a connection are ignored: the client reports them.
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut what = [0];
    stream.read_exact(&mut what)?;
    let mut part = vec![0; if what[0] == BULK { PART } else { 1 }];
    loop {
        stream.read_exact(&mut part)?;
        stream.write_all(&what)?;
    }
}

fn connect(address: &str, port: u16, what: u8) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((address, port))?;
    stream.set_nodelay(true)?;
    stream.write_all(&[what])?;
    Ok(stream)
}

fn asks(address: &str, port: u16) -> Result<()> {
    let mut questions = connect(address, port, QUESTIONS)?;
    let mut bulk = connect(address, port, BULK)?;
    println!("ready");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(ms)), Some(Ok(loaded))) = (words.next(), words.next()) {
            let bulk = (loaded > 0).then_some(&mut bulk);
            let seen = turn(&mut questions, bulk, Duration::from_millis(ms))?;
            println!("done {}", seen.tell());
        }
        line.clear();
    }
    Ok(())
}

fn turn(
    questions: &mut TcpStream,
    bulk: Option<&mut TcpStream>,
    length: Duration,
) -> Result<Histogram> {
    let stop = AtomicBool::new(false);
    let ask = |questions| {
        let seen = ask_on(questions, length);
        stop.store(true, Ordering::Relaxed);
        seen
    };
    let Some(bulk) = bulk else { return Ok(ask(questions)?) };
    std::thread::scope(|scope| {
        let flow = scope.spawn(|| flow(bulk, &stop));
        std::thread::sleep(WARM_UP);
        let seen = ask(questions);
        flow.join().map_err(|_| "the bulk flow failed")??;
        Ok(seen?)
    })
}

fn ask_on(stream: &mut TcpStream, length: Duration) -> io::Result<Histogram> {
    let mut seen = Histogram::default();
    let mut byte = [0];
    let end = clock::monotonic() + length;
    loop {
        let asked = clock::monotonic();
        if asked >= end {
            return Ok(seen);
        }
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        seen.add((clock::monotonic() - asked).as_nanos() as u64);
    }
}

fn flow(stream: &mut TcpStream, stop: &AtomicBool) -> io::Result<()> {
    let (part, mut byte, mut away) = (vec![0; PART], [0], 0);
    loop {
        let ends = stop.load(Ordering::Relaxed);
        if ends && away == 0 {
            return Ok(());
        }
        if ends || away == AWAY {
            stream.read_exact(&mut byte)?;
            away -= 1;
        } else {
            stream.write_all(&part)?;
            away += 1;
        }
    }
}

/// Parameters of a round of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// True with a parallel bulk flow.
    pub(super) loaded: bool,
    /// True if client and server are pinned.
    pub(super) pinned: bool,
}

/// Client process and server process of the requests.
struct Pair {
    asks: Child,
    _answers: Child,
}

impl Pair {
    fn start(world: &World, cpus: Option<[usize; 2]>) -> Result<Self> {
        let own = own_path()?;
        let own = own.to_str().ok_or("this program has a strange name")?;
        let ready = |output: &str| output.contains("ready\n").then_some(());
        let start = |host: usize, words: &[&str]| -> Result<Child> {
            let cpu = cpus.map(|cpus| format!("--cpu={}", cpus[host]));
            let words = [&[own, "bench-rr"], words, cpu.as_deref().as_slice()].concat();
            let command = world.hosts[host].command(&words)?;
            let child = Child::spawn("mqnet bench-rr", command, Stdio::piped())?;
            child.wait_for(0, SOON, ready)?;
            Ok(child)
        };
        let answers = start(1, &[])?;
        let asks = start(0, &[without_prefix(SERVER)])?;
        Ok(Self { asks, _answers: answers })
    }
}

/// Two hosts with two pairs of processes: `pinned` is pinned to two CPUs; the scheduler places the
/// second pair.
pub(super) struct Hosts {
    pinned: Pair,
    placed: Pair,
    pub(super) world: World,
}

impl Hosts {
    /// Starts both pairs; `control` is the congestion control of the bulk flow.
    pub(super) fn start(world: World, cpus: [usize; 2], control: &str) -> Result<Self> {
        world.hosts.iter().try_for_each(|host| host.control(control))?;
        let pinned = Pair::start(&world, Some(cpus))?;
        let placed = Pair::start(&world, None)?;
        Ok(Self { pinned, placed, world })
    }

    pub(super) fn turn(&mut self, length: Duration, round: Round) -> Result<Histogram> {
        let line = format!("{} {}", length.as_millis(), u8::from(round.loaded));
        let pair = if round.pinned { &mut self.pinned } else { &mut self.placed };
        ask(&mut pair.asks, length, &line)
    }
}
