//! Processes of `mqnet` with a runtime directory of their own, and the commands sent to them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use mqnet_sysio::process;
use serde_json::Value;

use crate::host::Host;
use crate::link::program;
use crate::process::run_command;
use crate::wait::until;
use crate::world::Folder;

/// Output and exit code of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Text on stdout.
    pub out: String,
    /// Text on stderr.
    pub err: String,
}

/// Runtime directory of test processes: their control sockets are in this directory.
#[derive(Debug)]
pub struct Control {
    folder: Folder,
}

impl Default for Control {
    fn default() -> Self {
        Self::create()
    }
}

impl Control {
    /// Creates a runtime directory that every user may write.
    pub fn create() -> Self {
        let folder = Folder::create();
        let runtime = folder.file("run");
        std::fs::create_dir(&runtime).expect("a runtime directory");
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(runtime, mode).expect("the mode of a directory");
        Self { folder }
    }

    /// Path of a file in the folder that contains the runtime directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Path of a file in the runtime directory.
    pub fn runtime(&self, name: &str) -> PathBuf {
        self.file("run").join(name)
    }

    /// Names of the files in the runtime directory, sorted.
    pub fn runtime_files(&self) -> Vec<String> {
        let list = std::fs::read_dir(self.file("run")).expect("the runtime directory");
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = list.flatten().map(name).collect();
        names.sort_unstable();
        names
    }

    /// Writes a file and creates its folder.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("writing a file");
        path
    }

    fn belong(&self, mut command: Command) -> Command {
        command.env("MQNET_RUNTIME_DIR", self.file("run"));
        for name in ["MQNET_CONTROL", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        command
    }

    /// Command line of a verb.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words);
        self.belong(command)
    }

    /// Command line of a verb in the network namespace of a host.
    pub fn command_at(&self, host: &Host, words: &[&str]) -> Command {
        let mut all = vec![program().display().to_string()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.belong(host.command(&all))
    }

    /// Runs a verb to its end.
    #[track_caller]
    pub fn say(&self, words: &[&str]) -> Captured {
        captured(&mut self.command(words))
    }

    /// Runs a verb that must succeed; returns its stdout.
    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        let printed = self.say(words);
        assert_eq!(printed.code, Some(0), "{words:?}: {printed:?}");
        printed.out
    }

    /// Runs a verb that must succeed; parses its stdout as JSON.
    #[track_caller]
    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(words);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"))
    }

    /// Starts a verb that keeps running.
    #[track_caller]
    pub fn start(&self, words: &[&str]) -> Running {
        self.spawn(self.command(words))
    }

    /// Starts any command that keeps running.
    #[track_caller]
    pub fn spawn(&self, command: Command) -> Running {
        self.spawn_with(command, Stdio::null())
    }

    /// Starts a command with a pipe to its stdin, for [`Running::order`].
    #[track_caller]
    pub fn spawn_to_order(&self, command: Command) -> Running {
        self.spawn_with(command, Stdio::piped())
    }

    #[track_caller]
    fn spawn_with(&self, mut command: Command, input: Stdio) -> Running {
        let number = std::fs::read_dir(self.file("")).map_or(0, Iterator::count);
        let [out, err] = ["out", "err"].map(|kind| self.file(&format!("{number}.{kind}")));
        let open = |path: &Path| Stdio::from(File::create(path).expect("a file for output"));
        command.stdin(input).stdout(open(&out)).stderr(open(&err));
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Running { child, out, err }
    }

    /// Waits until a link is up; returns its entry in `show --json`.
    #[track_caller]
    pub fn wait_up(&self, link: &str) -> Value {
        until(&format!("link {link} to be up"), || {
            let printed = self.say(&["show", "--json", link]);
            let list: Value = serde_json::from_str(&printed.out).ok()?;
            list.get(0).filter(|link| link["state"] == "up").cloned()
        })
    }

    /// Names of the links of all processes in this runtime directory, sorted.
    pub fn links(&self) -> Vec<String> {
        let printed = self.say(&["show", "--json"]);
        let list: Value = serde_json::from_str(&printed.out).unwrap_or_default();
        let all = list.as_array().cloned().unwrap_or_default();
        let name = |link: &Value| link["name"].as_str().unwrap_or_default().to_owned();
        let mut names: Vec<String> = all.iter().map(name).collect();
        names.sort_unstable();
        names
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn captured(command: &mut Command) -> Captured {
    let output = run_command(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Captured { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Process that runs until it is stopped; killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit status of the process; `None` while it runs.
    #[track_caller]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Text on stdout so far.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Number of bytes on stdout so far.
    #[track_caller]
    pub fn out_len(&self) -> u64 {
        std::fs::metadata(&self.out).expect("a file for output").len()
    }

    /// Text on stdout after the first `from` bytes.
    #[track_caller]
    pub fn out_from(&self, from: u64) -> String {
        let mut file = File::open(&self.out).expect("a file for output");
        file.seek(SeekFrom::Start(from)).expect("a place in a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("what a process wrote");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes lines to the stdin of a process [started with a pipe](Control::spawn_to_order).
    #[track_caller]
    pub fn order(&self, lines: &str) {
        let mut pipe = self.child.stdin.as_ref().expect("a pipe to stdin");
        writeln!(pipe, "{lines}").unwrap_or_else(|e| panic!("{lines}: {e}: {}", self.err()));
    }

    /// Text on stderr so far.
    pub fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits until stdout contains `words`.
    #[track_caller]
    pub fn wait_out(&self, words: &str) {
        until(words, || self.out().contains(words).then_some(()));
    }

    /// Waits until stderr contains `words`.
    #[track_caller]
    pub fn wait_err(&self, words: &str) {
        until(words, || self.err().contains(words).then_some(()));
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process; returns its exit status.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the end of a process", || self.child.try_wait().expect("a child"))
    }

    /// Sends SIGTERM; the process must exit successfully.
    #[track_caller]
    pub fn stop(mut self) {
        process::terminate(self.pid()).expect("SIGTERM");
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.err());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("---- pid {}\n{}{}----", self.pid(), self.out(), self.err());
        }
    }
}
