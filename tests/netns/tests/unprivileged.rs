//! Operation without root: inside a user namespace, and on inherited queues that another process
//! opened.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mqnet_sysio::{process, tap};
use mqnet_testkit::{
    Folder, Host, LinkProcess, Need, Stream, World, assert_pair, has, iperf3, program, until,
};

/// Prefix of a command that sets uid and gid 65534 and drops the supplementary groups.
const AS_NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// Copy of the program that every user can run.
pub(crate) fn public_program(folder: &Folder) -> PathBuf {
    let copy = folder.file("mqnet");
    std::fs::copy(program(), &copy).expect("copying the program");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&copy, open).expect("permissions of the program");
    copy
}

/// Starts one end without privileges, in its own user and network namespace.
pub(crate) fn end_in_user_namespace(program: &Path, folder: &Folder, tap: &str) -> LinkProcess {
    let bridge = format!("ntb:{}", folder.file("x.sock").display());
    let mut words: Vec<&str> = Vec::new();
    if process::is_root() {
        words.extend(AS_NOBODY);
    }
    words.extend(["unshare", "-Urn", "--"]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program);
    command.args(["link", "--json", tap, &bridge, "--channels", "2"]);
    folder.adopt(&mut command);
    LinkProcess::spawn(command)
}

// Goal: two user namespaces are linked without any privilege.
#[test]
fn user_namespaces_are_enough() {
    if !has(&[Need::OpenTun, Need::Program("unshare"), Need::Program("iperf3")]) {
        return;
    }
    let folder = Folder::create();
    let program = public_program(&folder);
    let start = |tap: &str| end_in_user_namespace(&program, &folder, tap);
    let a = start("tap:a,address=10.0.0.1/24,address=fd00::1/64");
    let b = start("tap:b,address=10.0.0.2/24,address=fd00::2/64");
    a.wait_up(1);
    b.wait_up(1);
    let [host_a, host_b] = [&a, &b].map(|end| Host::of_process(end.pid()));
    for address in ["10.0.0.2", "fd00::2"] {
        let report = iperf3(&host_b, &host_a, address, &["-t", "1", "-P", "2"]);
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
        assert!(bytes > 0, "nothing came: {report}");
    }
    let uid = std::fs::read_to_string(format!("/proc/{}/status", a.pid())).expect("a status");
    assert!(!uid.contains("Uid:\t0"), "it ran as root");
    a.wait_quiet();
    assert_pair(&a.stop(), &b.stop());
}

const TAP_FLAGS: u32 = tap::flag::TAP | tap::flag::NO_PI | tap::flag::VNET_HDR;

/// Opens two queues of a TAP at host `a` and sets the TAP up.
fn two_queues(host: &Host) -> [OwnedFd; 2] {
    let queue = || {
        let fd = tap::open_clone_device().expect("opening /dev/net/tun");
        tap::attach(fd.as_fd(), "a", TAP_FLAGS | tap::flag::MULTI_QUEUE).expect("a TAP queue");
        fd
    };
    let queues = host.within(|| [queue(), queue()]);
    host.run(&["ip", "addr", "add", "10.0.0.1/24", "dev", "a"]);
    host.run(&["ip", "link", "set", "dev", "a", "up"]);
    queues
}

/// Starts the end at host `a` on inherited queues, which become descriptors 5 and 6.
pub(crate) fn end_on_queues(world: &World, program: &Path, as_nobody: bool) -> LinkProcess {
    let [first, second] = two_queues(&world.a);
    let mut words: Vec<&str> = Vec::new();
    if as_nobody {
        words.extend(AS_NOBODY);
    }
    let script = "exec 5<&0 6<&2 2>&1 </dev/null; exec \"$0\" \"$@\"";
    words.extend(["sh", "-c", script]);
    let mut command = world.a.command(&words);
    let bridge = format!("ntb:{}", world.socket().display());
    command.arg(program).args(["link", "--json", "tap:a,fd=5:6", &bridge, "--channels", "2"]);
    world.folder().adopt(&mut command);
    LinkProcess::spawn_with(command, first.into(), second.into())
}

fn serve_inherited_queues(as_nobody: bool) {
    let world = World::create();
    let folder = Folder::create();
    let program = public_program(&folder);
    let b = world.end_b().channels(2).spawn();
    until("it listens", || world.socket().exists().then_some(()));
    let anybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(world.socket(), anybody).expect("permissions of the socket");
    let a = end_on_queues(&world, &program, as_nobody);
    let text = a.wait_up(1);
    assert!(text.contains("tap:a") && text.contains("2 channels"), "{text}");
    b.wait_up(1);
    let there = Stream::start(&world.a, &world.b, "10.0.0.2");
    let back = Stream::start(&world.b, &world.a, "10.0.0.1");
    there.wait_more(16 << 20);
    back.wait_more(16 << 20);
    there.finish();
    back.finish();
    a.wait_quiet();
    let (a, b) = (a.stop(), b.stop());
    assert_pair(&a, &b);
    assert_eq!(a.channels().len(), 2);
}

// Goal: mqnet serves queues that its parent process opened.
#[test]
fn inherited_queues_are_served() {
    if has(&[Need::Root]) {
        serve_inherited_queues(false);
    }
}

// Goal: an unprivileged process serves queues that it inherits from a privileged process.
#[test]
fn inherited_queues_need_no_privilege() {
    if has(&[Need::Root, Need::Program("setpriv")]) {
        serve_inherited_queues(true);
    }
}

// Goal: an inherited descriptor that is no TAP queue is refused; the error names its number.
#[test]
fn inherited_descriptor_without_tap_is_refused() {
    let script = "exec 5</dev/null; exec \"$0\" link tap:a,fd=5 null:";
    let mut command = Command::new("sh");
    let output = mqnet_testkit::run_command(command.args(["-c", script]).arg(program()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it went on: {text}");
    assert!(text.contains("descriptor 5: is not an attached queue of a TUN or TAP"), "{text}");
}
