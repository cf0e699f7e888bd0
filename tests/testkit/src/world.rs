//! Two hosts, a folder, and a link between the hosts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;
use crate::link::{LinkProcess, program};
use crate::process::run_command;
use crate::table::{EndTable, assert_pair};

/// Prefix of the namespaces created by tests: prefix, test process, number, side.
const PREFIX: &str = "mqt-";

/// Environment variable with the folder of control sockets.
const RUNTIME: &str = "MQNET_RUNTIME_DIR";

/// Number that is unique within this process.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Temporary folder that every user may read and write; removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder.
    pub fn create() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("mqnet-test-{}-{}", std::process::id(), number());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary folder");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, open).expect("permissions of a temporary folder");
        Self(path)
    }

    /// Path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Command for the program with its control sockets in this folder, so that tests do not
    /// interfere with other mqnet processes.
    pub fn program(&self) -> Command {
        let mut command = Command::new(program());
        command.env(RUNTIME, &self.0);
        command
    }

    /// Sets the folder of control sockets for a command that runs the program indirectly.
    pub fn adopt(&self, command: &mut Command) {
        command.env(RUNTIME, &self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two hosts without a connection, and a folder.
#[derive(Debug)]
pub struct World {
    /// Host with 10.0.0.1 and fd00::1 (on its TAP `a`).
    pub a: Host,
    /// Host with 10.0.0.2 and fd00::2 (on its TAP `b`).
    pub b: Host,
    folder: Folder,
}

impl World {
    /// Creates both hosts and the folder.
    pub fn create() -> Self {
        remove_orphans();
        let base = format!("{PREFIX}{}-{}", std::process::id(), number());
        let [a, b] = ["a", "b"].map(|side| Host::create(&format!("{base}-{side}")));
        Self { a, b, folder: Folder::create() }
    }

    /// Socket path at which the two ends connect.
    pub fn socket(&self) -> PathBuf {
        self.file("x.sock")
    }

    /// Path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Folder with the control sockets and files of both ends.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Configuration of the end at host `a`.
    pub fn end_a(&self) -> EndSpec {
        EndSpec::new("a", self.a.name(), "10.0.0.1/24", "fd00::1/64", self)
    }

    /// Configuration of the end at host `b`.
    pub fn end_b(&self) -> EndSpec {
        EndSpec::new("b", self.b.name(), "10.0.0.2/24", "fd00::2/64", self)
    }

    /// Starts both ends with the configuration returned by `change`, and waits until the link is
    /// up. The TAPs have [long rings](Host::lengthen) until they are recreated.
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
            // Another test process may remove the same namespace.
            let _ = run_command(Command::new("ip").args(["netns", "del", &name]));
        }
    }
}

/// Configuration of one end of a link.
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

    /// Adds an option of the TAP.
    pub fn tap(mut self, option: &str) -> Self {
        self.tap = format!("{},{option}", self.tap);
        self
    }

    /// Adds an option of the bridge.
    pub fn ntb(mut self, option: &str) -> Self {
        self.ntb = format!("{},{option}", self.ntb);
        self
    }

    /// Replaces the bridge by another address.
    pub fn meeting_at(mut self, bridge: &str) -> Self {
        self.ntb = bridge.to_owned();
        self
    }

    /// Sets the number of channels.
    pub fn channels(self, channels: u16) -> Self {
        self.argument("--channels").argument(&channels.to_string())
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Command line of the end.
    pub fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.args(["link", "--json", &self.tap, &self.ntb]).args(&self.arguments);
        command.env(RUNTIME, &self.runtime);
        command
    }

    /// Starts the end.
    #[track_caller]
    pub fn spawn(&self) -> LinkProcess {
        LinkProcess::spawn(self.command())
    }
}

/// Both ends of a link.
pub struct Pair {
    /// End at host `a`.
    pub a: LinkProcess,
    /// End at host `b`.
    pub b: LinkProcess,
}

impl Pair {
    /// Stops end `a`, then end `b`, and returns their tables. Panics unless the conservation check
    /// holds.
    #[track_caller]
    pub fn stop(self) -> (EndTable, EndTable) {
        let a = self.a.stop();
        let b = self.b.stop();
        assert_pair(&a, &b);
        (a, b)
    }
}
