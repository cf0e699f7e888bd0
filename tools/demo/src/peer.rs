//! Resources of the demo: a host process, the private folder, the progress display.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::protocol::{Event, Order, Side};

/// Time limit for the normal end of a host and its link.
const END_LIMIT: Duration = Duration::from_secs(7);

/// Running host. The drop ends the host normally, or kills it after a time limit.
pub(super) struct Host {
    side: Side,
    process: Child,
}

impl Host {
    /// Starts a host. Its events are sent to `events`; `None` marks the end of its output.
    pub(super) fn start(
        side: Side,
        socket: &Path,
        events: Sender<(Side, Option<Event>)>,
    ) -> Result<Self, String> {
        let fail = |e: io::Error| format!("starting the {} host: {e}", side.name());
        let program = std::env::current_exe().map_err(fail)?;
        let mut process = Command::new(program)
            .args(["demo-host", "--side", side.name(), "--socket"])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Only the demo receives Ctrl-C; it then ends the hosts normally.
            .process_group(0)
            .spawn()
            .map_err(fail)?;
        let stdout = process.stdout.take();
        thread::spawn(move || {
            for line in stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
                let Ok(line) = line else { break };
                let event = serde_json::from_str(&line).unwrap_or_else(|e| Event::Broken {
                    what: format!("invalid message of the {} host: {e}: {line}", side.name()),
                });
                if events.send((side, Some(event))).is_err() {
                    return;
                }
            }
            let _ = events.send((side, None));
        });
        Ok(Self { side, process })
    }

    /// Sends an order to the host.
    pub(super) fn send(&mut self, order: &Order) -> Result<(), String> {
        let fail = |e: io::Error| format!("sending to the {} host: {e}", self.side.name());
        let mut line = serde_json::to_string(order).map_err(|e| fail(e.into()))?;
        line.push('\n');
        let stdin = self.process.stdin.as_mut().ok_or_else(|| fail(io::Error::other("closed")))?;
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).map_err(fail)
    }

    /// Closes the host's stdin, which ends the host.
    pub(super) fn dismiss(&mut self) {
        drop(self.process.stdin.take());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.dismiss();
        let deadline = Instant::now() + END_LIMIT;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // The link of the host ends together with the host.
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Folder with access for this user only, removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, String> {
        let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("mqnet-demo-{chance:016x}"));
        let fail = |e: &dyn std::fmt::Display| {
            format!("the folder {}: {e}: set TMPDIR to another folder", path.display())
        };
        let name = path.to_str().ok_or_else(|| fail(&"is not UTF-8"))?;
        if name.len() > 90 || name.contains(',') {
            return Err(fail(&"is too long, or has a comma, for the name of a socket"));
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| fail(&e))?;
        Ok(Self(path))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("ntb.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Number of phases.
const PHASES: usize = 5;

/// Progress on stderr: on a terminal one line that is overwritten, otherwise one line per phase.
/// Lines have at most 80 columns, because a longer line could not be overwritten.
pub(super) struct Progress {
    /// Number of the phase, from 1.
    number: usize,
    terminal: bool,
    phase: String,
    shown: Instant,
    open: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self { number: 0, terminal, phase: String::new(), shown: Instant::now(), open: false }
    }

    /// Starts a phase.
    pub(super) fn phase(&mut self, name: &str) {
        self.number += 1;
        self.phase = format!("{}/{PHASES} {name}", self.number);
        if self.terminal {
            self.write("");
        }
    }

    /// Updates the status of the phase on a terminal, at most ten times per second.
    pub(super) fn live(&mut self, text: impl FnOnce() -> String) {
        if self.terminal && self.shown.elapsed() >= Duration::from_millis(100) {
            self.write(&text());
        }
    }

    fn write(&mut self, text: &str) {
        self.shown = Instant::now();
        self.open = true;
        // Erase the line after the new text, not before it, to avoid flicker.
        eprint!("\r  {:<26} {text}\x1b[K", self.phase);
    }

    /// Ends the phase.
    pub(super) fn done(&mut self, text: &str) {
        if self.terminal {
            self.write(text);
            eprintln!();
        } else {
            eprintln!("  {:<26} {text}", self.phase);
        }
        self.open = false;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Line end after an interrupted phase, so that later output starts on a new line.
        if self.open {
            eprintln!();
        }
    }
}
