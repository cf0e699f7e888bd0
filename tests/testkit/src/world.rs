//! Two hosts, a folder, and a link between them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;
use crate::link::{LinkProcess, program};
use crate::process::run_command;
use crate::table::{EndTable, assert_pair};

/// Names of our namespaces: this, the test process, a number, the side.
const PREFIX: &str = "mqt-";

/// Where control sockets are.
const RUNTIME: &str = "MQNET_RUNTIME_DIR";

/// A number that nothing else in this process has.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A folder of its own that anybody may enter and write; removed in the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it.
    pub fn create() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("mqnet-test-{}-{}", std::process::id(), number());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary folder");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, open).expect("permissions of a temporary folder");
        Self(path)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The program with its control sockets in this folder, so that tests and whatever else runs
    /// on the machine never meet.
    pub fn program(&self) -> Command {
        let mut command = Command::new(program());
        command.env(RUNTIME, &self.0);
        command
    }

    /// Tells a command where control sockets are; for one that runs the program in a roundabout
    /// way.
    pub fn adopt(&self, command: &mut Command) {
        command.env(RUNTIME, &self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two hosts without anything between them.
#[derive(Debug)]
pub struct World {
    /// The host with 10.0.0.1 and fd00::1 (on its TAP `a`).
    pub a: Host,
    /// The host with 10.0.0.2 and fd00::2 (on its TAP `b`).
    pub b: Host,
    folder: Folder,
}

impl World {
    /// Makes it.
    pub fn create() -> Self {
        remove_orphans();
        let base = format!("{PREFIX}{}-{}", std::process::id(), number());
        let [a, b] = ["a", "b"].map(|side| Host::create(&format!("{base}-{side}")));
        Self { a, b, folder: Folder::create() }
    }

    /// Where the two ends meet.
    pub fn socket(&self) -> PathBuf {
        self.file("x.sock")
    }

    /// A file in this world's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// The folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// How to start the end at host `a`.
    pub fn end_a(&self) -> EndSpec {
        EndSpec::new("a", self.a.name(), "10.0.0.1/24", "fd00::1/64", self)
    }

    /// How to start the end at host `b`.
    pub fn end_b(&self) -> EndSpec {
        EndSpec::new("b", self.b.name(), "10.0.0.2/24", "fd00::2/64", self)
    }

    /// Starts both ends, with the same change to both, and waits until the link is up. Their TAPs
    /// have [long rings](Host::lengthen) until they are made anew.
    #[track_caller]
    pub fn pair(&self, change: impl Fn(EndSpec) -> EndSpec) -> Pair {
        let a = change(self.end_a()).spawn();
        let b = change(self.end_b()).spawn();
        a.wait_up(1);
        b.wait_up(1);
        self.a.lengthen("a");
        self.b.lengthen("b");
        Pair { a, b }
    }
}

/// Removes the namespaces of test processes that were killed.
fn remove_orphans() {
    let Ok(folder) = std::fs::read_dir("/run/netns") else { return };
    for entry in folder.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another test process may do the same at this moment.
            let _ = run_command(Command::new("ip").args(["netns", "del", &name]));
        }
    }
}

/// How to start one end of a link.
#[derive(Clone, Debug)]
pub struct EndSpec {
    tap: String,
    ntb: String,
    arguments: Vec<String>,
    runtime: PathBuf,
}

impl EndSpec {
    fn new(device: &str, netns: &str, v4: &str, v6: &str, world: &World) -> Self {
        Self {
            tap: format!("tap:{device},netns={netns},address={v4},address={v6}"),
            ntb: format!("ntb:{}", world.socket().display()),
            arguments: Vec::new(),
            runtime: world.folder.0.clone(),
        }
    }

    /// One more option of the TAP.
    pub fn tap(mut self, option: &str) -> Self {
        self.tap = format!("{},{option}", self.tap);
        self
    }

    /// One more option of the bridge.
    pub fn ntb(mut self, option: &str) -> Self {
        self.ntb = format!("{},{option}", self.ntb);
        self
    }

    /// Another bridge, by its address.
    pub fn meeting_at(mut self, bridge: &str) -> Self {
        self.ntb = bridge.to_owned();
        self
    }

    /// The number of channels wanted.
    pub fn channels(self, channels: u16) -> Self {
        self.argument("--channels").argument(&channels.to_string())
    }

    /// One more argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The command line.
    pub fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.args(["link", "--json", &self.tap, &self.ntb]).args(&self.arguments);
        command.env(RUNTIME, &self.runtime);
        command
    }

    /// Starts it.
    #[track_caller]
    pub fn spawn(&self) -> LinkProcess {
        LinkProcess::spawn(self.command())
    }
}

/// Both ends of a link.
pub struct Pair {
    /// The end at host `a`.
    pub a: LinkProcess,
    /// The end at host `b`.
    pub b: LinkProcess,
}

impl Pair {
    /// Ends the link in good order (end `a` first) and returns the tables of both ends, of which
    /// the conservation check holds.
    #[track_caller]
    pub fn stop(self) -> (EndTable, EndTable) {
        let a = self.a.stop();
        let b = self.b.stop();
        assert_pair(&a, &b);
        (a, b)
    }
}
