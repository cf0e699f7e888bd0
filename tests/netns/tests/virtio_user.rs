//! `vhost-user:` with a foreign driver: DPDK's virtio-user. One testpmd process has the drivers at
//! both ends of a link, with each ring layout.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mqnet_testkit::{DEADLINE, Folder, LinkProcess, Need, has, until};

/// Configuration of testpmd's two ports.
#[derive(Clone, Copy, Debug)]
struct Ports {
    packed: bool,
    queues: u16,
    mergeable: bool,
}

/// Frame counters of testpmd: `[received, sent]` of each port.
type Counted = [[u64; 2]; 2];

fn testpmd(folder: &Folder, ports: Ports) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", "dpdk-testpmd", "--no-huge", "--no-pci", "--no-shconf", "-m", "512"]);
    command.args(["--lcores", "0@0,1@1"]);
    let Ports { packed, queues, mergeable } = ports;
    for (n, socket) in ["a", "b"].into_iter().enumerate() {
        let path = folder.file(socket);
        command.arg(format!(
            "--vdev=net_virtio_user{n},path={},queues={queues},packed_vq={},mrg_rxbuf={},\
             queue_size=256",
            path.display(),
            u8::from(packed),
            u8::from(mergeable)
        ));
    }
    command.args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384", "--forward-mode=io"]);
    command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
    command
}

/// Last counters of both ports in the output of testpmd; `None` if they are missing or incomplete.
fn counted(printed: &str) -> Option<Counted> {
    let port = |n: u8| {
        let (_, after) = printed.rsplit_once(&format!("NIC statistics for port {n}"))?;
        let number = |key: &str| after.split_once(key)?.1.split_whitespace().next()?.parse().ok();
        Some([number("RX-packets:")?, number("TX-packets:")?])
    };
    Some([port(0)?, port(1)?])
}

/// Number of frames per port after which the rings have wrapped hundreds of times.
const ENOUGH: u64 = 200_000;

/// Circulates frames through the link until each port has received `ENOUGH`; returns the final
/// counters.
///
/// The counters are polled, because the start of testpmd and its frame rate depend on the load of
/// the machine.
fn go_round(folder: &Folder, ports: Ports) -> Counted {
    let file = folder.file("testpmd");
    let out = std::fs::File::create(&file).expect("a file");
    let errors = out.try_clone().expect("a file");
    let mut child = testpmd(folder, ports)
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(errors)
        .spawn()
        .expect("testpmd");
    let mut orders = child.stdin.take().expect("a pipe");
    let printed = || String::from_utf8_lossy(&std::fs::read(&file).expect("a file")).into_owned();
    let mut order = |words: &str| {
        writeln!(orders, "{words}").unwrap_or_else(|e| panic!("{ports:?}: {e}: {}", printed()));
    };
    order("start tx_first");
    let started = Instant::now();
    loop {
        order("show port stats all");
        std::thread::sleep(Duration::from_millis(500));
        if counted(&printed()).is_some_and(|[[_, a], [_, b]]| a > ENOUGH && b > ENOUGH) {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "{ports:?}: too little moved: {}", printed());
    }
    order("stop");
    std::thread::sleep(Duration::from_secs(1));
    order("show port stats all\nquit");
    child.wait().expect("testpmd");
    counted(&printed()).unwrap_or_else(|| panic!("{ports:?}: no counters in: {}", printed()))
}

fn link(folder: &Folder) -> LinkProcess {
    let mut command = folder.program();
    command.args(["link", "--json"]);
    for socket in ["a", "b"] {
        command.arg(format!("vhost-user:{}", folder.file(socket).display()));
    }
    let link = LinkProcess::spawn(command);
    until("the sockets", || folder.file("b").exists().then_some(()));
    link
}

fn all_cross(ports: Ports) {
    if !has(&[Need::Root, Need::Program("dpdk-testpmd")]) {
        return;
    }
    let folder = Folder::create();
    let link = link(&folder);
    let [[rx0, tx0], [rx1, tx1]] = go_round(&folder, ports);
    println!("{ports:?}: {tx0} and {tx1} sent, {rx1} and {rx0} received");
    let table = link.stop();
    for (sent, received, lane) in [(tx0, rx1, table.out()), (tx1, rx0, table.back())] {
        assert_eq!((lane.rx_packets, lane.drops), (sent, 0), "{ports:?}");
        // Frames that testpmd had not received when it stopped are still in its rings.
        let on_its_way = u64::from(ports.queues) * 256;
        assert!(received + on_its_way >= lane.tx_packets, "{ports:?}: {received} of {lane:?}");
        assert!(received <= lane.tx_packets, "{ports:?}: {received} of {lane:?}");
    }
}

// Goal: on split rings, every frame of a driver arrives at the driver of the other port or is
// accounted for. The runs have 1, 2 and 8 queues, with and without mergeable buffers.
#[test]
fn frames_of_a_foreign_driver_cross_split() {
    for (queues, mergeable) in [(1, true), (1, false), (2, true), (8, true)] {
        all_cross(Ports { packed: false, queues, mergeable });
    }
}

// Goal: on packed rings, every frame of a driver arrives at the driver of the other port or is
// accounted for.
#[test]
fn frames_of_a_foreign_driver_cross_packed() {
    for (queues, mergeable) in [(1, true), (1, false), (2, true), (8, true)] {
        all_cross(Ports { packed: true, queues, mergeable });
    }
}

// Goal: if testpmd has printed several tables, the counters are those of the last one.
#[test]
fn counters_are_read_from_the_last_table() {
    let table = |rx: u32, tx: u32| {
        format!(
            "NIC statistics for port 0 ###\n  RX-packets: {rx} RX-missed: 0\n  TX-packets: {tx}\n\
             NIC statistics for port 1 ###\n  RX-packets: {tx} RX-missed: 0\n  TX-packets: {rx}\n"
        )
    };
    let printed = table(1, 2) + &table(30, 40);
    assert_eq!(counted(&printed), Some([[30, 40], [40, 30]]));
    assert_eq!(counted("testpmd> "), None);
}
