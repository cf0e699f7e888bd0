//! Tests of the server in a separate process: notifications to systemd, and files left after a
//! kill.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mqnet_control::client::Client;
use mqnet_sysio::process::{kill_hard, terminate};
use mqnet_testkit::{Need, has};

/// Temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("mqnet-processes-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Process that is killed at the end of its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of the example program, which cargo builds in a folder next to the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/test_server")
}

fn start(command: &mut Command) -> Running {
    Running(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

fn pid_at(socket: &Path) -> Option<u64> {
    Client::new(socket.to_str()?).get("/v1/instance").ok()?["pid"].as_u64()
}

fn wait_for_pid(socket: &Path) -> u64 {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match pid_at(socket) {
            Some(pid) => return pid,
            None => assert!(Instant::now() < end, "no answer at {}", socket.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// Goal: the server notifies systemd that it is ready, alive and stopping. A terminated server
// leaves no file.
#[test]
fn systemd_is_notified() {
    let folder = Folder::new("notify");
    let manager = UnixDatagram::bind(folder.0.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let hear = || {
        let mut bytes = [0; 1000];
        let length = manager.recv(&mut bytes).expect("the manager receives a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let socket = folder.0.join("ctl.sock");
    let mut command = Command::new(program());
    command.arg(&socket).env("NOTIFY_SOCKET", folder.0.join("notify"));
    let mut server = start(command.env("WATCHDOG_USEC", "200000"));
    let ready = format!("READY=1\nSTATUS=listening at {}\n", socket.display());
    let first = [hear(), hear(), hear()];
    assert!(first.contains(&ready), "{first:?}");
    assert_eq!(first.iter().filter(|output| *output == "WATCHDOG=1\n").count(), 2, "{first:?}");
    wait_for_pid(&socket);
    terminate(server.0.id()).unwrap();
    while hear() != "STOPPING=1\n" {}
    assert!(server.0.wait().unwrap().success());
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

// Goal: a second process on the same socket fails, and its error names the first process. After the
// first process was killed, the next process replaces its files.
#[test]
fn a_killed_server_makes_room() {
    let folder = Folder::new("killed");
    let socket = folder.0.join("ctl.sock");
    let mut first = start(Command::new(program()).arg(&socket));
    assert_eq!(wait_for_pid(&socket), u64::from(first.0.id()));
    let mut second = start(Command::new(program()).arg(&socket));
    assert!(!second.0.wait().unwrap().success());
    let mut output = String::new();
    second.0.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.contains(&format!("mqnet process {}", first.0.id())), "{output}");
    kill_hard(first.0.id()).unwrap();
    first.0.wait().unwrap();
    assert!(socket.exists());
    let third = start(Command::new(program()).arg(&socket));
    assert_eq!(wait_for_pid(&socket), u64::from(third.0.id()));
}

// Goal: a socket passed by systemd is served, and remains after the end of the server.
#[test]
fn an_inherited_socket_is_served() {
    if !has(&[Need::Program("systemd-socket-activate")]) {
        return;
    }
    let folder = Folder::new("inherited");
    let socket = folder.0.join("given.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("-l").arg(&socket).arg(program()).arg(folder.0.join("own.sock"));
    let mut server = start(&mut command);
    assert_eq!(wait_for_pid(&socket), u64::from(server.0.id()));
    assert!(!folder.0.join("own.sock").exists());
    terminate(server.0.id()).unwrap();
    assert!(server.0.wait().unwrap().success());
    assert!(socket.exists());
}
