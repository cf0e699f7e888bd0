//! `mqnet capture`: writes the frames of a netdev as a pcapng file, readable by tshark and tcpdump.

mod blocks;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, value_parser};
use mqnet_command::Failure;
use mqnet_control::client::segment;
use mqnet_control_api::ApiError;
use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use blocks::Blocks;

/// Connection that streams a response body.
pub(crate) trait Stream {
    /// `GET path`; writes the body to `out` as it arrives, until the body ends or `out` fails.
    fn stream(&self, path: &str, out: &mut dyn Write) -> Result<(), ApiError>;
}

#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// A netdev.
    #[arg(value_name = "DEV")]
    pub(crate) dev: String,
    /// Capture this channel only.
    #[arg(long, value_name = "N",
          value_parser = value_parser!(u16).range(0..=i64::from(CHANNELS_MAX) - 1))]
    pub(crate) channel: Option<u16>,
    /// Capture dropped frames only, each with its drop reason as a comment.
    #[arg(long)]
    pub(crate) drops: bool,
    /// Maximum number of bytes kept of each frame.
    #[arg(short, long, value_name = "N", default_value_t = FRAME_MAX,
          value_parser = value_parser!(u32).range(1..=i64::from(FRAME_MAX)))]
    pub(crate) snaplen: u32,
    /// Output file, or - for standard output, which must not be a terminal.
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub(crate) write: PathBuf,
    /// End after N frames [default: Ctrl-C].
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(args: &CaptureArgs, stream: &dyn Stream) -> Result<(), Failure> {
    let to_stdout = args.write.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        let why = "a capture cannot be written to a terminal: use -w FILE, or a pipe, as in mqnet \
                   capture DEV | tshark -r -";
        return Err(Failure::BadInput(why.to_owned()));
    }
    let target = if to_stdout { Target::Open(Box::new(io::stdout())) } else { Target::later(args) };
    let (sink, ending) = (Mutex::new(Sink::new(target, args.count)), AtomicBool::new(false));
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let wait = signals.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if signals.forever().next().is_some() {
                // The flag stops the writer. Without the flag, the writer could reacquire the
                // sink's lock repeatedly before this thread gets the lock.
                ending.store(true, Ordering::Relaxed);
                end_between_blocks(&sink);
            }
        });
        let done = receive(args, stream, Shared { sink: &sink, ending: &ending });
        wait.close();
        done.inspect(|()| lock(&sink).summary())
    })
}

/// Ends the process under the sink's lock, which excludes the writer: the file ends with a whole
/// block. The exit code is 0, or 1 if the writer holds the lock for a second (the reader of its
/// output is blocked).
fn end_between_blocks(sink: &Mutex<Sink>) -> ! {
    for _ in 0..20 {
        if let Ok(sink) = sink.try_lock() {
            sink.summary();
            // Exit under the lock, so that the writer cannot begin a block.
            std::process::exit(0);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::process::exit(1)
}

fn path(args: &CaptureArgs) -> String {
    let mut path = format!("/v1/netdevs/{}/capture?snaplen={}", segment(&args.dev), args.snaplen);
    if let Some(channel) = args.channel {
        path += &format!("&channel={channel}");
    }
    if args.drops {
        path += "&drops=true";
    }
    path
}

fn receive(args: &CaptureArgs, stream: &dyn Stream, mut shared: Shared<'_>) -> Result<(), Failure> {
    let ended = stream.stream(&path(args), &mut shared);
    let mut sink = lock(shared.sink);
    match (sink.failed.take(), ended) {
        (Some(e), _) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        (Some(e), _) => Err(Failure::Broken(format!("{}: {e}", args.write.display()))),
        (None, Err(_)) if sink.enough() => Ok(()),
        (None, ended) => Ok(ended?),
    }
}

fn lock<'a>(sink: &'a Mutex<Sink>) -> MutexGuard<'a, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Target {
    /// Path of a file that the first block creates or replaces: a refused capture keeps an existing
    /// file.
    Later(PathBuf),
    Open(Box<dyn Write + Send>),
}

impl Target {
    fn later(args: &CaptureArgs) -> Self {
        Self::Later(args.write.clone())
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        if let Self::Later(path) = self {
            *self = Self::Open(Box::new(File::create(path)?));
        }
        match self {
            Self::Open(out) => out.write_all(block).and_then(|()| out.flush()),
            Self::Later(_) => Ok(()),
        }
    }
}

/// Destination of the blocks.
struct Sink {
    target: Target,
    blocks: Blocks,
    frames: u64,
    /// Number of frames that mqnet did not capture because the reader was too slow (`isb_ifdrop`).
    missed: u64,
    count: Option<u64>,
    failed: Option<io::Error>,
}

impl Sink {
    fn new(target: Target, count: Option<u64>) -> Self {
        Self { target, blocks: Blocks::default(), frames: 0, missed: 0, count, failed: None }
    }

    fn enough(&self) -> bool {
        self.count.is_some_and(|count| self.frames >= count)
    }

    fn summary(&self) {
        let _ = writeln!(io::stderr(), "mqnet: {}", self.in_words());
    }

    fn in_words(&self) -> String {
        let plural = if self.frames == 1 { "" } else { "s" };
        let captured = format!("{} frame{plural} captured", self.frames);
        match self.missed {
            0 => format!("{captured}, none missed"),
            n => format!("{captured}, {n} missed: they arrived faster than they were written"),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.blocks.push(bytes);
        while !self.enough() {
            let Some(block) = self.blocks.next()? else { return Ok(()) };
            self.target.write(&block.bytes)?;
            self.frames += u64::from(block.is_frame);
            self.missed = block.missed.unwrap_or(self.missed);
        }
        Ok(())
    }
}

/// Writer of the streamed bytes. The thread that ends the process shares the sink and the flag.
struct Shared<'a> {
    sink: &'a Mutex<Sink>,
    /// True if the process is about to end; the writer then writes nothing more.
    ending: &'a AtomicBool,
}

impl Write for Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.ending.load(Ordering::Relaxed) {
            std::thread::park();
        }
        let mut sink = lock(self.sink);
        if let Err(e) = sink.take(bytes) {
            sink.failed = Some(e);
            return Err(io::Error::other("the capture cannot be written"));
        }
        // After `count` frames, return an error: only a failed write ends the stream.
        if sink.enough() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
