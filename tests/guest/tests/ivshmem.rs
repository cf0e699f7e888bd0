//! Guest and host joined by `ntb:ivshmem=`. The guest's end uses the PCI device; the host's end is
//! a peer of mqnet's ivshmem server.

mod pair;

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use mqnet_guest::{Guest, Kernel, Outcome, Running};
use mqnet_testkit::{LinkProcess, World, until};

use crate::virtio::peer::{Numbers, file, give_file, iperf_server, sum, take_file};
use crate::virtio::possible;

/// Interrupt vectors of each peer: one for the link and four for queue pairs.
const VECTORS: u16 = 5;
/// Bytes of the transferred file.
const FILE: usize = 4 << 20;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(world: &World) -> Server {
    serve(world, VECTORS)
}

fn serve(world: &World, vectors: u16) -> Server {
    let mut command = world.folder().program();
    command.arg("ivshmem-server").arg(world.socket()).stdout(Stdio::null());
    command.args(["--size", "16M", "--vectors", &vectors.to_string()]);
    let server = Server(command.spawn().expect("mqnet ivshmem-server"));
    until("the server", || world.socket().exists().then_some(()));
    server
}

/// Starts the host's end.
fn link(world: &World) -> LinkProcess {
    let mut command = world.folder().program();
    let tap = format!("tap:t0,netns={},address=10.9.0.1/24", world.a.name());
    command.args(["link", "--json", &tap]);
    command.arg(format!("ntb:ivshmem={}", world.socket().display()));
    LinkProcess::spawn(command)
}

/// Builds the programs of guests once per process.
fn build() {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| mqnet_guest::build().map_err(|e| e.to_string()));
    assert_eq!(built, &Ok(()));
}

/// Guest with the ivshmem device.
fn guest(kernel: Kernel, name: &str, socket: &Path, settings: &str) -> Guest {
    build();
    let chardev = format!("socket,id=iv,path={}", socket.display());
    let device = format!("ivshmem-doorbell,chardev=iv,vectors={VECTORS}");
    let script = format!("{settings}\n{}", include_str!("../scripts/ivshmem.sh"));
    Guest::new(kernel, &format!("test-ivshmem-{name}"))
        .memory(512)
        .limit(Duration::from_secs(400))
        .qemu(&["-chardev", &chardev, "-device", &device])
        .script("ivshmem", &script)
}

/// Changes the number of channels at the host's end.
fn resize(world: &World, link: &LinkProcess, numbers: &Numbers) {
    for (n, channels) in [(1, 4), (2, 2), (3, 4)] {
        let printed = world.tell(&format!("ethtool -L t0 combined {channels}"));
        assert_eq!(printed, "", "resize to {channels}");
        until("the change", || (link.events("changed").len() >= n).then_some(()));
        numbers.more(50);
    }
}

/// Checks the results of every guest.
fn check(outcome: &Outcome, expected: &str, sent: &str) -> String {
    let printed = outcome.passed("ivshmem").unwrap().output.clone();
    println!("{} in {:?}: {printed}", outcome.release, outcome.wall);
    assert!(printed.contains(&format!("in {expected}\n")), "a file did not come whole: {printed}");
    assert!(
        printed.contains(&format!("out {sent}\n")),
        "a file did not go whole: {sent} {printed}"
    );
    assert!(printed.contains("10 packets transmitted, 10 received"), "{printed}");
    assert!(printed.contains("3 packets transmitted, 3 received"), "{printed}");
    assert!(printed.contains("receiver") && printed.contains(", twice 0\n"), "{printed}");
    assert!(printed.contains("link 0\n") && printed.ends_with("== done\n"), "{printed}");
    printed
}

fn killed(mut guest: Running, link: &LinkProcess) {
    guest.kill();
    link.wait_down("has left the device");
}

// Goal: a guest without interrupts uses the device's BAR through its sysfs file. Files arrive
// unchanged in both directions, and no datagram is duplicated, while channels change from 1 to 4.
// After a kill the next guest gets a new link. The idle link is polled.
#[test]
fn guest_without_interrupts_polls() {
    if !possible(Kernel::V6_1) {
        return;
    }
    let world = World::create();
    let _server = server(&world);
    let link = link(&world);
    let whole = file(FILE);
    let expected = sum(&whole);
    give_file(&world.a, whole, Duration::from_millis(5));
    let _iperf = iperf_server(&world.a);
    {
        let numbers = Numbers::start(&world.a, Duration::from_millis(3));
        let start = || guest(Kernel::V6_1, "killed", &world.socket(), "PLACE=pci").start().unwrap();
        let running = start();
        link.wait_up(1);
        numbers.more(200);
        resize(&world, &link, &numbers);
        killed(running, &link);
    }
    let taken = take_file(&world.a);
    let running = guest(Kernel::V6_1, "looks", &world.socket(), "").start().unwrap();
    link.wait_up(2);
    let printed = check(&running.wait().unwrap(), &expected, &taken.join().unwrap());
    assert!(printed.contains("doorbells 1\n") && printed.contains("interrupts 0\n"), "{printed}");
    link.wait_down("the peer closed the link");
    link.stop();
}

// Goal: the test passes with the device bound to vfio-pci. Interrupts of the device wake the
// workers and the control thread, and no thread polls.
#[test]
fn a_guest_with_interrupts() {
    if !possible(Kernel::V7_3) {
        return;
    }
    let world = World::create();
    let _server = server(&world);
    let link = link(&world);
    let whole = file(FILE);
    let expected = sum(&whole);
    give_file(&world.a, whole, Duration::from_millis(5));
    let _iperf = iperf_server(&world.a);
    let numbers = Numbers::start(&world.a, Duration::from_millis(3));
    let taken = take_file(&world.a);
    let guest = guest(Kernel::V7_3, "vfio", &world.socket(), "VFIO=1")
        .boot_words("intel_iommu=on")
        .qemu(&["-device", "intel-iommu,intremap=on"]);
    let running = guest.start().unwrap();
    link.wait_up(1);
    numbers.more(50);
    resize(&world, &link, &numbers);
    let printed = check(&running.wait().unwrap(), &expected, &taken.join().unwrap());
    assert!(
        printed.contains("driver vfio-pci\n") && printed.contains("doorbells 0\n"),
        "{printed}"
    );
    let rung = printed.lines().find_map(|line| line.strip_prefix("interrupts ")).expect("a number");
    assert!(rung.parse::<u32>().expect("a number") >= 2, "{printed}");
    link.stop();
}

// Goal: two guests that share only a file, without a server, peer ids or doorbells, agree on their
// sides and exchange frames. A new guest replaces a killed one.
#[test]
fn two_guests_without_doorbells() {
    if !possible(Kernel::V6_1) {
        return;
    }
    build();
    let world = World::create();
    let file = world.file("memory");
    let start = |name: &str, me: u8, peer: u8| {
        let memory =
            format!("memory-backend-file,id=iv,share=on,mem-path={},size=4M", file.display());
        let script = format!("ME={me} PEER={peer}\n{}", include_str!("../scripts/plain.sh"));
        let guest = Guest::new(Kernel::V6_1, &format!("test-ivshmem-plain-{name}"));
        let guest = guest.cpus(1).memory(384).script("plain", &script);
        guest.qemu(&["-object", &memory, "-device", "ivshmem-plain,memdev=iv"]).start().unwrap()
    };
    let (mut a, mut b) = (start("a", 1, 2), start("b", 2, 1));
    a.says("guest: five of five").unwrap();
    b.says("guest: five of five").unwrap();
    b.kill();
    let mut next = start("c", 3, 1);
    next.says("guest: five of five").unwrap();
    a.kill();
    next.kill();
}
