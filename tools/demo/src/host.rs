//! One host of the demo: a process in a new user and network namespace. The process reads orders
//! from stdin and writes events to stdout.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mqnet_command::Failure;
use mqnet_sysio::{namespace, process};

use super::kernel;
use super::protocol::{CHANNELS, DEVICE, Event, INTERVAL_MS, Order, Side, now};
use super::tcp::Streams;
use super::udp::Flows;

/// Arguments of one host.
#[derive(clap::Args, Debug)]
pub struct HostArgs {
    /// Host
    #[arg(long)]
    side: Side,
    /// Socket at which the two links connect
    #[arg(long)]
    socket: PathBuf,
}

/// Time limit for the end of a link.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Runs a host until its stdin ends.
pub fn run(args: &HostArgs) -> Result<(), Failure> {
    // The namespaces are entered first: only a single-threaded process may enter a user namespace,
    // and entering one clears the parent-death signal.
    let entered = namespace::enter_new_user_and_net();
    if let Err(e) = entered {
        send_event(&Event::Broken { what: kernel::namespaces_hint(&e) });
        return Ok(());
    }
    process::die_with_parent()?;
    kernel::keep_neighbours();
    send_event(&Event::Ready);
    let mut host = Host::new(args)?;
    for line in io::stdin().lines() {
        let done = serde_json::from_str(&line?)
            .map_err(|e| format!("invalid command: {e}"))
            .and_then(|order| host.obey(order));
        if let Err(what) = done {
            send_event(&Event::Broken { what: format!("{} host: {what}", args.side.name()) });
        }
    }
    host.stop_link().map(drop).map_err(Failure::Broken)
}

/// Writes an event. Errors are ignored: after the reader has ended, stdin is closed too and ends
/// this process.
fn send_event(event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// A running `mqnet link`.
struct LinkProcess {
    child: Child,
    output: JoinHandle<()>,
}

struct Host {
    side: Side,
    socket: PathBuf,
    link: Option<LinkProcess>,
    lives: usize,
    streams: Arc<Streams>,
    flows: Flows,
}

impl Host {
    fn new(args: &HostArgs) -> Result<Self, Failure> {
        let streams = Arc::new(Streams::new(args.side));
        let flows = Flows::default();
        let (watched, total) = (streams.clone(), flows.total());
        thread::Builder::new().spawn(move || report_progress(&watched, &total))?;
        let (side, socket) = (args.side, args.socket.clone());
        Ok(Self { side, socket, link: None, lives: 0, streams, flows })
    }

    fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::LinkStart => self.start_link()?,
            Order::LinkKill => self.kill_link()?,
            Order::LinkStop => {
                let (life, status) = self.stop_link()?.ok_or("no link to stop")?;
                send_event(&Event::LinkEnded { life, status });
            }
            Order::Sockets { listen } => {
                self.flows.open(self.side)?;
                if listen {
                    self.streams.listen()?;
                }
                send_event(&Event::Sockets);
            }
            Order::Connect { streams } => {
                let streams = self.streams.connect(streams)?;
                send_event(&Event::Connected { streams });
            }
            Order::TcpRun { on } => self.streams.run(on),
            Order::TcpFinish => {
                // Streams end on another thread, so that the main thread can still watch the link.
                let streams = self.streams.clone();
                thread::spawn(move || send_event(&Event::TcpDone { streams: streams.finish() }));
            }
            Order::UdpStart { run, pace_us } => {
                self.flows.start(run, pace_us.map(Duration::from_micros));
            }
            Order::UdpStop => {
                let done = self.flows.stop()?;
                let (run, sent, nanos) = (done.run, done.sent, done.nanos);
                send_event(&Event::UdpSent { run, sent, refused: done.refused, nanos });
            }
            Order::UdpReport { run } => {
                let kernel = kernel::counters(DEVICE)?;
                send_event(&Event::UdpReport { run, flows: self.flows.report(run), kernel });
            }
        }
        Ok(())
    }

    /// Starts `mqnet link`. This thread must not end before the link, which ends with the thread
    /// that started it.
    fn start_link(&mut self) -> Result<(), String> {
        let fail = |e: io::Error| format!("starting mqnet link: {e}");
        let program = std::env::current_exe().map_err(fail)?;
        let tap = format!("tap:{DEVICE},address={}/24,persist", self.side.address());
        let mut child = Command::new(program)
            .arg("link")
            .arg(tap)
            .arg(format!("ntb:{}", self.socket.display()))
            .args(["--channels", &CHANNELS.to_string(), "-j"])
            .args(["--interval-ms", &INTERVAL_MS.to_string()])
            .args(["--with-parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        send_event(&Event::LinkStarted { at: now() });
        let life = self.lives;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let output = thread::spawn(move || {
            let words = thread::spawn(move || {
                let mut words = String::new();
                let _ = stderr.map(|mut e| e.read_to_string(&mut words));
                words.trim().to_owned()
            });
            for line in stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
                let Ok(line) = line else { break };
                if let Ok(line) = serde_json::from_str(&line) {
                    send_event(&Event::LinkLine { life, at: now(), line });
                }
            }
            send_event(&Event::LinkSilent { life, words: words.join().unwrap_or_default() });
        });
        self.link = Some(LinkProcess { child, output });
        self.lives += 1;
        Ok(())
    }

    fn kill_link(&mut self) -> Result<(), String> {
        let link = self.link.take().ok_or("no link to kill")?;
        let at = now();
        process::kill_hard(link.child.id()).map_err(|e| format!("killing the link: {e}"))?;
        send_event(&Event::LinkKilled { at });
        let status = end_of(link)?;
        send_event(&Event::LinkEnded { life: self.lives - 1, status });
        Ok(())
    }

    /// Ends the link normally; returns its number and exit status, if there is a link.
    fn stop_link(&mut self) -> Result<Option<(usize, String)>, String> {
        let Some(link) = self.link.take() else { return Ok(None) };
        // Errors are ignored: if the link has already ended, `end_of` returns its exit status.
        let _ = process::terminate(link.child.id());
        end_of(link).map(|status| Some((self.lives - 1, status)))
    }
}

/// Waits until a terminating link has ended and all its output is forwarded. A link that does not
/// end within [`END_LIMIT`] is killed, which is an error.
fn end_of(mut link: LinkProcess) -> Result<String, String> {
    let deadline = Instant::now() + END_LIMIT;
    let fail = |e: io::Error| format!("waiting for the link's end: {e}");
    let mut status = link.child.try_wait().map_err(fail)?;
    while status.is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
        status = link.child.try_wait().map_err(fail)?;
    }
    let Some(status) = status else {
        let _ = link.child.kill();
        let _ = link.child.wait();
        let limit = END_LIMIT.as_secs();
        return Err(format!("the link did not end within {limit} s, so it was killed"));
    };
    let _ = link.output.join();
    Ok(status.to_string())
}

/// Reports the amounts of received and verified data, at most ten times per second.
fn report_progress(streams: &Streams, datagrams: &AtomicU64) {
    let mut last = (Vec::new(), 0);
    loop {
        thread::sleep(Duration::from_millis(INTERVAL_MS));
        let current = (streams.progress(), datagrams.load(Ordering::Relaxed));
        if current != last {
            let (tcp, udp) = current.clone();
            send_event(&Event::Progress { at: now(), tcp, udp });
            last = current;
        }
    }
}
