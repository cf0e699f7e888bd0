//! `mqnet` as a user has it: a runtime directory of its own, processes that run, verbs that ask.

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

/// What a command said, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

/// A runtime directory with the processes that have their control sockets there.
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
    /// Makes it.
    pub fn create() -> Self {
        let folder = Folder::create();
        let runtime = folder.file("run");
        std::fs::create_dir(&runtime).expect("a runtime directory");
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(runtime, mode).expect("the mode of a directory");
        Self { folder }
    }

    /// A file beside the runtime directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// A file in the runtime directory.
    pub fn runtime(&self, name: &str) -> PathBuf {
        self.file("run").join(name)
    }

    /// The names in the runtime directory, sorted.
    pub fn runtime_files(&self) -> Vec<String> {
        let list = std::fs::read_dir(self.file("run")).expect("the runtime directory");
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = list.flatten().map(name).collect();
        names.sort_unstable();
        names
    }

    /// Writes a file, and the folder that it lies in.
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

    /// The command line of a verb.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words);
        self.belong(command)
    }

    /// The same, run in the network namespace of a host.
    pub fn command_at(&self, host: &Host, words: &[&str]) -> Command {
        let mut all = vec![program().display().to_string()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.belong(host.command(&all))
    }

    /// Runs a verb to its end.
    #[track_caller]
    pub fn say(&self, words: &[&str]) -> Said {
        said(&mut self.command(words))
    }

    /// Runs a verb that must succeed; returns what it wrote to stdout.
    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        let said = self.say(words);
        assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
        said.out
    }

    /// Runs a verb that must succeed and write JSON.
    #[track_caller]
    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(words);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"))
    }

    /// Starts something that runs on.
    #[track_caller]
    pub fn start(&self, words: &[&str]) -> Running {
        self.spawn(self.command(words))
    }

    /// Starts a command of the caller's making that runs on.
    #[track_caller]
    pub fn spawn(&self, command: Command) -> Running {
        self.spawn_with(command, Stdio::null())
    }

    /// The same with a pipe, for [`Running::order`].
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

    /// Waits until a link is up; returns what `show` says of it.
    #[track_caller]
    pub fn wait_up(&self, link: &str) -> Value {
        until(&format!("link {link} to be up"), || {
            let said = self.say(&["show", "--json", link]);
            let list: Value = serde_json::from_str(&said.out).ok()?;
            list.get(0).filter(|link| link["state"] == "up").cloned()
        })
    }

    /// Names of the links that all processes here have, sorted.
    pub fn links(&self) -> Vec<String> {
        let said = self.say(&["show", "--json"]);
        let list: Value = serde_json::from_str(&said.out).unwrap_or_default();
        let all = list.as_array().cloned().unwrap_or_default();
        let name = |link: &Value| link["name"].as_str().unwrap_or_default().to_owned();
        let mut names: Vec<String> = all.iter().map(name).collect();
        names.sort_unstable();
        names
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn said(command: &mut Command) -> Said {
    let output = run_command(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A process that runs until it is stopped; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    #[track_caller]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// What it wrote to stdout so far.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// How many bytes it wrote to stdout so far.
    #[track_caller]
    pub fn out_len(&self) -> u64 {
        std::fs::metadata(&self.out).expect("a file for output").len()
    }

    /// What it wrote to stdout after so many bytes.
    #[track_caller]
    pub fn out_from(&self, from: u64) -> String {
        let mut file = File::open(&self.out).expect("a file for output");
        file.seek(SeekFrom::Start(from)).expect("a place in a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("what a process wrote");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes lines to its stdin, if it was [started with a pipe](Control::spawn_to_order).
    #[track_caller]
    pub fn order(&self, lines: &str) {
        let mut pipe = self.child.stdin.as_ref().expect("a pipe to stdin");
        writeln!(pipe, "{lines}").unwrap_or_else(|e| panic!("{lines}: {e}: {}", self.err()));
    }

    /// What it wrote to stderr so far.
    pub fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits until its stdout has `words`.
    #[track_caller]
    pub fn wait_out(&self, words: &str) {
        until(words, || self.out().contains(words).then_some(()));
    }

    /// Waits until its stderr has `words`.
    #[track_caller]
    pub fn wait_err(&self, words: &str) {
        until(words, || self.err().contains(words).then_some(()));
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // It fails for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the end of a process", || self.child.try_wait().expect("a child"))
    }

    /// SIGTERM; it must end well.
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
