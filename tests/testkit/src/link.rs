//! One `mqnet link` process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqnet_sysio::process;
use serde_json::Value;

use crate::table::{EndTable, Lane};
use crate::wait::{DEADLINE, until};

/// Time without frames after which a link may be stopped. A kernel may send its last
/// acknowledgement 200 ms after the end of a flow; an earlier stop of the link would lose this
/// frame.
const QUIET: Duration = Duration::from_millis(400);

/// Path of the program under test: `$MQNET_BIN` if set, otherwise `mqnet` in the build folder of
/// the running test, otherwise the newest one below `target/`.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("MQNET_BIN") {
        return path.into();
    }
    let beside = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?.parent()?;
        Some(folder.join("mqnet")).filter(|path| path.is_file())
    });
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["release", "debug", "x86_64-unknown-linux-gnu/tested"]
        .map(|profile| target.join(profile).join("mqnet"));
    let newest =
        built.into_iter().max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
    let found = beside.or(newest.filter(|path| path.is_file()));
    found.expect("no mqnet: run `cargo build --release -p mqnet`, or set MQNET_BIN")
}

/// Output of the process so far.
#[derive(Debug, Default)]
struct Shown {
    /// JSON objects on stdout.
    lines: Vec<Value>,
    /// All other lines of stdout, and stderr.
    text: String,
}

/// A running link.
pub struct LinkProcess {
    child: Child,
    command: Command,
    shown: Arc<Mutex<Shown>>,
    readers: Vec<JoinHandle<()>>,
}

impl LinkProcess {
    /// Starts a link. The command must print JSON (`--json`).
    #[track_caller]
    pub fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        let (child, shown, readers) = start(&mut command, Stdio::null(), Stdio::piped());
        Self { child, command, shown, readers }
    }

    /// Starts a link with two given descriptors as its stdin and stderr. Only standard descriptors
    /// can be inherited without unsafe code.
    #[track_caller]
    pub fn spawn_with(mut command: Command, stdin: Stdio, stderr: Stdio) -> Self {
        command.stdout(Stdio::piped());
        let (child, shown, readers) = start(&mut command, stdin, stderr);
        Self { child, command, shown, readers }
    }

    /// Kills the process and starts a new one; earlier output is discarded.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let (child, shown, readers) = start(&mut self.command, Stdio::null(), Stdio::piped());
        (self.child, self.shown, self.readers) = (child, shown, readers);
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Output that is not JSON.
    pub fn text(&self) -> String {
        self.shown().text.clone()
    }

    /// JSON output so far.
    pub fn lines(&self) -> Vec<Value> {
        self.shown().lines.clone()
    }

    /// Texts of all events of one kind, such as `changed`.
    pub fn events(&self, event: &str) -> Vec<String> {
        let shown = self.shown();
        let found = shown.lines.iter().filter(|line| line["event"] == event);
        found.map(|line| line["text"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Number of times that the link came up.
    pub fn ups(&self) -> usize {
        self.events("up").len()
    }

    /// Reason of each reported link-down event.
    pub fn downs(&self) -> Vec<String> {
        self.events("down")
    }

    /// Waits until `attempt` returns a value for the JSON output; returns this value. Panics if the
    /// process ends first or the deadline expires.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut attempt: impl FnMut(&[Value]) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            // Read `ended` before the output, so that lines written just before the end are
            // examined.
            let ended = self.readers.iter().all(JoinHandle::is_finished);
            if let Some(found) = attempt(&self.shown().lines) {
                return found;
            }
            assert!(!ended, "the process ended; waited for: {what}");
            assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits until the link has come up `n` times; returns the text of the `n`th event.
    #[track_caller]
    pub fn wait_up(&self, n: usize) -> String {
        self.wait_for(&format!("link up, number {n}"), |lines| {
            let mut ups = lines.iter().filter(|line| line["event"] == "up");
            ups.nth(n - 1).map(|line| line["text"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Waits for a link-down event with `words` in its reason; returns the reason.
    #[track_caller]
    pub fn wait_down(&self, words: &str) -> String {
        self.wait_for(&format!("link down: {words}"), |lines| {
            let mut down = lines.iter().filter(|line| line["event"] == "down");
            down.find_map(|l| l["text"].as_str().filter(|t| t.contains(words)).map(str::to_owned))
        })
    }

    /// Waits until a link that was up goes down for the `n`th time; returns the reason.
    #[track_caller]
    pub fn wait_lost(&self, n: usize) -> String {
        self.wait_for(&format!("link lost, number {n}"), |lines| {
            let mut events = lines.iter().filter(|line| line.get("event").is_some());
            let (mut was_up, mut lost) = (false, 0);
            let found = events.find(|line| {
                lost += usize::from(was_up && line["event"] == "down");
                // Other events, such as "changed", do not affect the state.
                was_up = line["event"] == "up" || (was_up && line["event"] != "down");
                lost == n
            });
            found.map(|line| line["text"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Waits for the next status line. Returns the counters from the TAP to the bridge, and those
    /// of the opposite direction.
    #[track_caller]
    pub fn next_status(&self) -> (Lane, Lane) {
        let is_status = |line: &&Value| line.get("uptime-s").is_some();
        let before = self.shown().lines.iter().filter(is_status).count();
        self.wait_for("a status line", |lines| {
            let line = lines.iter().filter(is_status).nth(before)?;
            Some((Lane::read(line, "a-to-b"), Lane::read(line, "b-to-a")))
        })
    }

    /// Waits until no counter has changed for [`QUIET`] and between two status lines.
    #[track_caller]
    pub fn wait_quiet(&self) {
        let mut last = (self.next_status(), Instant::now());
        until("a quiet link", || {
            let now = self.next_status();
            if now == last.0 {
                return (last.1.elapsed() >= QUIET).then_some(());
            }
            last = (now, Instant::now());
            None
        });
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGSTOP.
    #[track_caller]
    pub fn freeze(&self) {
        process::freeze(self.pid()).expect("SIGSTOP");
    }

    /// Sends SIGCONT.
    #[track_caller]
    pub fn thaw(&self) {
        process::thaw(self.pid()).expect("SIGCONT");
    }

    /// Sends SIGTERM, waits for the end and returns the final table. Panics unless the process
    /// exits successfully.
    #[track_caller]
    pub fn stop(mut self) -> EndTable {
        process::terminate(self.pid()).expect("SIGTERM");
        let status = self.wait_end();
        assert!(status.success(), "{status}: {}", self.text());
        let shown = self.shown();
        let end = shown.lines.last().filter(|line| line["event"] == "end");
        EndTable(end.expect("a table at the end").clone())
    }

    /// Waits for the end of the process.
    #[track_caller]
    fn wait_end(&mut self) -> ExitStatus {
        let status = until("the end of mqnet", || self.child.try_wait().expect("a child"));
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader of a pipe");
        }
        status
    }
}

impl Drop for LinkProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
            let shown = self.shown();
            println!("---- {:?}", self.command);
            // Print all events, but of the other lines only the last four.
            let skip = shown.lines.len().saturating_sub(4);
            for (at, line) in shown.lines.iter().enumerate() {
                if at >= skip || line.get("event").is_some() {
                    println!("{line}");
                }
            }
            println!("{}----", shown.text);
        }
    }
}

type Started = (Child, Arc<Mutex<Shown>>, Vec<JoinHandle<()>>);

#[track_caller]
fn start(command: &mut Command, stdin: Stdio, stderr: Stdio) -> Started {
    command.stdin(stdin).stderr(stderr);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    // Replace the inherited descriptors, because the command is kept for a restart and would keep
    // them open.
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let shown = Arc::new(Mutex::new(Shown::default()));
    let mut readers = Vec::new();
    if let Some(out) = child.stdout.take() {
        readers.push(follow(out, shown.clone()));
    }
    if let Some(err) = child.stderr.take() {
        readers.push(follow(err, shown.clone()));
    }
    (child, shown, readers)
}

/// Reads lines until the process closes the pipe.
fn follow(pipe: impl Read + Send + 'static, shown: Arc<Mutex<Shown>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            match serde_json::from_str(&line) {
                Ok(value) => shown.lines.push(value),
                Err(_) => {
                    shown.text.push_str(&line);
                    shown.text.push('\n');
                }
            }
        }
    })
}
