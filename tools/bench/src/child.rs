//! Child processes of a benchmark: start, communication over pipes, and guaranteed end.

use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Result;

/// Number of output lines of a child, counted from the end, that an error quotes.
const QUOTED: usize = 6;

#[derive(Debug, Default)]
struct Output {
    text: String,
    ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    output: Mutex<Output>,
    grew: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Output> {
        // The text is valid even after a panic of the reader thread, which only appends to it.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Running child process. The drop kills it, even if it is stopped.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    process: std::process::Child,
    shared: Arc<Shared>,
}

/// Command for `program` that ends with this thread, even if this thread is killed by SIGKILL. The
/// hidden subcommand `bench-exec` of this program prepares the process, because preparing a child
/// needs unsafe code otherwise.
pub(super) fn guarded(program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    let mut command = Command::new(own_path()?);
    command.arg("bench-exec").arg(program);
    Ok(command)
}

/// Path of this program.
pub(super) fn own_path() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| format!("cannot find this program: {error}").into())
}

/// Command for this program with other arguments. The process ends with this thread.
pub(crate) fn own(args: &[&str]) -> Result<Command> {
    let mut command = guarded(own_path()?)?;
    command.args(args);
    Ok(command)
}

impl Child {
    /// Starts a command and collects its standard output and standard error in one buffer.
    pub(crate) fn spawn(name: &str, mut command: Command, stdin: Stdio) -> Result<Self> {
        let failed = |error: std::io::Error| format!("cannot start {name}: {error}");
        let (mut reader, writer) = std::io::pipe().map_err(failed)?;
        let errors = writer.try_clone().map_err(failed)?;
        command.stdin(stdin).stdout(writer).stderr(errors);
        let process = command.spawn().map_err(failed)?;
        // `command` holds copies of the pipe's write end. Until they are closed, the reader gets no
        // end of file.
        drop(command);
        let shared = Arc::new(Shared::default());
        let sink = shared.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                sink.lock().text.push_str(&String::from_utf8_lossy(&bytes[..n]));
                sink.grew.notify_all();
            }
            sink.lock().ended = true;
            sink.grew.notify_all();
        });
        Ok(Self { name: name.to_owned(), process, shared })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Current length of the output. The replies to later requests follow this position.
    pub(crate) fn mark(&self) -> usize {
        self.shared.lock().text.len()
    }

    /// Writes one line to the child's standard input.
    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        let Some(stdin) = self.process.stdin.as_mut() else {
            return Err(format!("{} does not listen", self.name).into());
        };
        let sent = stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush());
        sent.map_err(|error| format!("{} ended early ({error}): {}", self.name, self.tail()).into())
    }

    /// Waits until `find` returns a match in the output after `mark`.
    pub(crate) fn wait_for<T>(
        &self,
        mark: usize,
        timeout: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        let mut output = self.shared.lock();
        loop {
            if let Some(found) = find(&output.text[mark..]) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let why = match (output.ended, left.is_zero()) {
                (true, _) => "ended early",
                (_, true) => "does not answer",
                _ => {
                    let waited = self.shared.grew.wait_timeout(output, left);
                    output = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            drop(output);
            return Err(format!("{} {why}: {}", self.name, self.tail()).into());
        }
    }

    /// Waits for the end of the child; returns the exit status and the whole output.
    pub(super) fn finish(&mut self, timeout: Duration) -> Result<(ExitStatus, String)> {
        let deadline = Instant::now() + timeout;
        let mut output = self.shared.lock();
        while !output.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(output);
                return Err(format!("{} does not end: {}", self.name, self.tail()).into());
            }
            let waited = self.shared.grew.wait_timeout(output, left);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let text = output.text.clone();
        drop(output);
        Ok((self.process.wait().map_err(|error| format!("{}: {error}", self.name))?, text))
    }

    /// Last lines of the output, for an error message.
    pub(crate) fn tail(&self) -> String {
        last_lines(&self.shared.lock().text)
    }
}

/// Joins the last [`QUOTED`] lines into one.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(QUOTED)..].join(" | ")
}

impl Drop for Child {
    fn drop(&mut self) {
        // `kill` and `wait` fail only after the child has been reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Cache folder of the current user for compiled peers and sockets.
pub(super) fn cache_folder() -> Result<PathBuf> {
    let own = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?.uid();
    let folder = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(cache) => Path::new(&cache).join("mqnet-bench"),
        None => std::env::temp_dir().join(format!("mqnet-bench-{own}")),
    };
    let shown = folder.display();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| format!("cannot create {shown}: {error} (set XDG_CACHE_HOME)"))?;
    // Files of this folder are executed: no other user may have write access.
    let is = fs::symlink_metadata(&folder).map_err(|error| format!("{shown}: {error}"))?;
    if !is.is_dir() || is.uid() != own || is.permissions().mode() & 0o022 != 0 {
        let why = "is not a folder that only this user can write";
        return Err(format!("{shown} {why} (remove it or set XDG_CACHE_HOME)").into());
    }
    Ok(folder)
}

/// Folder for the sockets and files of one run, removed when dropped.
#[derive(Debug)]
pub(super) struct RunFolder {
    pub(super) path: PathBuf,
}

impl RunFolder {
    pub(super) fn new() -> Result<Self> {
        let path = cache_folder()?.join(format!("run-{}", std::process::id()));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    // Goal: lines are sent and received, and a mark separates old output from new.
    #[test]
    fn lines_go_both_ways() {
        let mut cat = Child::spawn("cat", Command::new("cat"), Stdio::piped()).unwrap();
        for word in ["one", "two"] {
            let mark = cat.mark();
            cat.say(word).unwrap();
            let line = |text: &str| text.strip_suffix('\n').map(str::to_owned);
            assert_eq!(cat.wait_for(mark, SOON, line).unwrap(), word);
        }
    }

    // Goal: a child that exits instead of replying is reported immediately, with its last lines.
    #[test]
    fn an_early_end_is_reported_with_its_reason() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no memory >&2; exit 1"]);
        let child = Child::spawn("peer", command, Stdio::null()).unwrap();
        let never = child.wait_for(0, SOON, |_| None::<()>).unwrap_err().to_string();
        assert_eq!(never, "peer ended early: no memory");
    }

    // Goal: the drop of `Child` also kills a stopped process.
    #[test]
    fn drop_kills_a_frozen_child() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let child = Child::spawn("sleep", command, Stdio::null()).unwrap();
        let pid = child.pid();
        mqnet_sysio::process::freeze(pid).unwrap();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
