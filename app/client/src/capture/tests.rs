use std::sync::Arc;

use clap::Parser;
use mqnet_control_api::Code;
use proptest::prelude::*;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: CaptureArgs,
}

fn args(words: &[&str]) -> CaptureArgs {
    Line::try_parse_from([&["x"], words].concat()).unwrap_or_else(|e| panic!("{e}")).args
}

/// Stream that writes its bytes in chunks of `piece` bytes, then ends or fails.
struct Script {
    bytes: Vec<u8>,
    piece: usize,
    end: Result<(), ApiError>,
    asked: Mutex<String>,
}

impl Script {
    fn new(bytes: Vec<u8>, piece: usize) -> Self {
        Self { bytes, piece, end: Ok(()), asked: Mutex::default() }
    }
}

impl Stream for Script {
    fn stream(&self, path: &str, out: &mut dyn Write) -> Result<(), ApiError> {
        *self.asked.lock().unwrap() = path.to_owned();
        for piece in self.bytes.chunks(self.piece.max(1)) {
            out.write_all(piece).map_err(|e| ApiError::new(Code::Failed, e.to_string()))?;
        }
        self.end.clone()
    }
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
    let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let len = word(12 + body.len() as u32);
    [&word(kind)[..], &len, body, &len].concat()
}

/// Blocks of a file: a section, an interface and `frames` frames of growing size.
fn file(frames: usize, big: bool) -> Vec<Vec<u8>> {
    let magic = if big { 0x1a2b_3c4du32.to_be_bytes() } else { 0x1a2b_3c4du32.to_le_bytes() };
    let mut blocks = vec![block(0x0a0d_0d0a, &[&magic[..], &[0; 12]].concat(), big)];
    blocks.push(block(1, &[0; 8], big));
    blocks.extend((0..frames).map(|i| block(6, &vec![i as u8; 4 * i], big)));
    blocks
}

fn received(args: &CaptureArgs, script: &Script) -> (Result<(), Failure>, Vec<u8>, u64) {
    let memory = Memory::default();
    let sink = Mutex::new(Sink::new(Target::Open(Box::new(memory.clone())), args.count));
    let done = receive(args, script, shared(&sink));
    let frames = lock(&sink).frames;
    let bytes = memory.0.lock().unwrap().clone();
    (done, bytes, frames)
}

// Goal: the path contains the snapshot length and, only if requested, the channel and the drops;
// the netdev's name is escaped.
#[test]
fn paths() {
    assert_eq!(path(&args(&["vm0"])), "/v1/netdevs/vm0/capture?snaplen=65558");
    let all = args(&["a/b?c", "--channel", "3", "--drops", "--snaplen", "96"]);
    assert_eq!(path(&all), "/v1/netdevs/a%2Fb%3Fc/capture?snaplen=96&channel=3&drops=true");
}

// Goal: values outside an option's range are rejected, and the error states the range.
#[test]
fn bad_values() {
    for (option, value, words) in [
        ("--channel", "64", "0..=63"),
        ("--channel", "-1", "0..=63"),
        ("--snaplen", "0", "1..=65558"),
        ("--snaplen", "65559", "1..=65558"),
        ("--count", "0", "1.."),
    ] {
        let option = format!("{option}={value}");
        let Err(e) = Line::try_parse_from(["x", "vm0", &option]) else { panic!("{option}") };
        assert!(e.to_string().contains(words), "{option}: {e}");
    }
}

// Goal: an existing file survives a refused capture; a capture that starts replaces it.
#[test]
fn a_refused_capture_leaves_the_file() {
    let path = std::env::temp_dir().join(format!("mqnet-capture-{}", std::process::id()));
    std::fs::write(&path, "precious").unwrap();
    let mut args = args(&["vm0"]);
    args.write = path.clone();
    let sink = || Mutex::new(Sink::new(Target::later(&args), None));
    let mut refused = Script::new(Vec::new(), 1);
    refused.end = Err(ApiError::new(Code::NoDevice, "vm0: no such netdev"));
    let Err(Failure::Broken(what)) = receive(&args, &refused, shared(&sink())) else { panic!() };
    assert_eq!(what, "vm0: no such netdev");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let bytes = file(3, false).concat();
    receive(&args, &Script::new(bytes.clone(), 7), shared(&sink())).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    std::fs::remove_file(path).unwrap();
    args.write = "/nonexistent/x".into();
    let sink = Mutex::new(Sink::new(Target::later(&args), None));
    let Err(Failure::Broken(what)) = receive(&args, &Script::new(bytes, 7), shared(&sink)) else {
        panic!()
    };
    assert!(what.starts_with("/nonexistent/x: "), "{what}");
}

fn shared(sink: &Mutex<Sink>) -> Shared<'_> {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    Shared { sink, ending: &GOES_ON }
}

proptest! {
    // Goal: for every split and every end of the stream, only whole blocks are written, and no
    // block after --count frames.
    #[test]
    fn whole_blocks_only(
        frames in 0usize..20,
        piece in 1usize..200,
        cut in 0usize..40,
        count in proptest::option::of(1u64..25),
        big in any::<bool>(),
    ) {
        let blocks = file(frames, big);
        let mut bytes = blocks.concat();
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let mut args = args(&["vm0"]);
        args.count = count;
        let (done, out, got) = received(&args, &Script::new(bytes.clone(), piece));
        prop_assert!(done.is_ok());
        let mut whole = Vec::new();
        let mut left = count.unwrap_or(u64::MAX);
        for (i, block) in blocks.iter().enumerate() {
            if left == 0 || whole.len() + block.len() > bytes.len() {
                break;
            }
            whole.extend_from_slice(block);
            left -= u64::from(i >= 2);
        }
        prop_assert_eq!(out, whole);
        prop_assert_eq!(got, count.unwrap_or(u64::MAX) - left);
    }

    // Goal: bytes that are not pcapng, and blocks with wrong lengths, cause no panic.
    #[test]
    fn garbage_is_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        at in 0usize..60,
    ) {
        let args = args(&["vm0"]);
        let _ = received(&args, &Script::new(bytes.clone(), 9));
        let mut broken = file(2, false).concat();
        for (to, from) in broken.iter_mut().skip(at).zip(bytes) {
            *to = from;
        }
        let _ = received(&args, &Script::new(broken, 9));
    }
}

// Goal: a capture with a wrong block type or length is rejected; the error names the failed check,
// and no byte is written.
#[test]
fn malformed_captures_are_rejected() {
    for (at, words) in [(0, "start with a section header"), (4, "a block of"), (24, "two lengths")]
    {
        let mut bytes = file(1, false).concat();
        bytes[at] ^= 1;
        let (done, out, _) = received(&args(&["vm0"]), &Script::new(bytes, 500));
        let Err(Failure::Broken(what)) = done else { panic!("{at}") };
        assert!(what.contains("not a pcapng file") && what.contains(words), "{what}");
        assert!(out.is_empty());
    }
}

/// Stream that sends three frames and half a fourth, then never ends.
struct Endless;

impl Stream for Endless {
    fn stream(&self, _path: &str, out: &mut dyn Write) -> Result<(), ApiError> {
        let mut bytes = file(4, false).concat();
        bytes.truncate(bytes.len() - 10);
        out.write_all(&bytes).unwrap();
        loop {
            std::thread::park();
        }
    }
}

const FILE: &str = "MQNET_CAPTURE_TEST";

// Goal: capture without end, in the child process that `an_interrupt_ends_it_cleanly` interrupts.
#[test]
#[ignore = "an_interrupt_ends_it_cleanly runs it as a process"]
fn interrupted() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let mut args = args(&["vm0"]);
    args.write = path.into();
    run(&args, &Endless).unwrap();
}

// Goal: Ctrl-C ends an idle capture immediately, with success, a summary, and a file of whole
// blocks.
#[test]
fn an_interrupt_ends_it_cleanly() {
    use std::process::{Command, Stdio};
    let path = std::env::temp_dir().join(format!("mqnet-interrupt-{}", std::process::id()));
    let whole = file(3, false).concat();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "capture::tests::interrupted", "--ignored", "--nocapture"])
        .env(FILE, &path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read(&path).unwrap_or_default() != whole {
        assert!(std::time::Instant::now() < deadline, "nothing is captured");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    mqnet_sysio::process::terminate(child.id()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let output = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(output.contains("mqnet: 3 frames captured"), "{output}");
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    std::fs::remove_file(path).unwrap();
}

// Goal: the summary reports the number of captured and of missed frames, in either byte order;
// truncated statistics do not change the number of missed frames.
#[test]
fn summary_counts_missed_frames() {
    for big in [false, true] {
        let half = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let missed = if big { 42u64.to_be_bytes() } else { 42u64.to_le_bytes() };
        let statistics = |missed: &[u8]| {
            let head = [&[0; 12][..], &half(2), &half(8), &[0; 8]].concat();
            let len = missed.len() as u16;
            block(5, &[&head[..], &half(5), &half(len), missed, &[0; 4]].concat(), big)
        };
        let mut blocks = file(2, big);
        let mut sink = Sink::new(Target::Open(Box::new(Memory::default())), None);
        sink.take(&blocks.concat()).unwrap();
        assert_eq!(sink.in_words(), "2 frames captured, none missed");
        blocks = vec![statistics(&missed), statistics(&[0; 4]), block(5, &[0; 4], big)];
        sink.take(&blocks.concat()).unwrap();
        let words = "2 frames captured, 42 missed: they arrived faster than they were written";
        assert_eq!(sink.in_words(), words);
    }
}
