//! Steering program of a TAP in the kernel: queue selection for frames of a real network stack.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use mqnet_sysio::tap;
use mqnet_tap::steering::{BUCKETS, BucketTable, Steering, bucket, detach, rebalance, spread};
use mqnet_testkit::{Host, Need, World, has, run_command, until};
use mqnet_wire::Layer;

const QUEUES: u16 = 4;
const FLAGS: u32 = tap::flag::TAP | tap::flag::NO_PI | tap::flag::MULTI_QUEUE;
/// Addresses of neighbours that do not exist. Static entries let the stack send frames to them.
const PEERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
];

/// TAP `t` with four queues at host `a`.
struct Device {
    world: World,
    queues: Vec<File>,
}

impl Device {
    fn create() -> Self {
        let world = World::create();
        let queue = |_| {
            let fd = tap::open_clone_device().expect("opening /dev/net/tun");
            tap::attach(fd.as_fd(), "t", FLAGS).expect("a TAP queue");
            File::from(fd)
        };
        let queues = world.a.within(|| (0..QUEUES).map(queue).collect());
        let device = Self { world, queues };
        device.ip("addr add 10.0.0.1/24 dev t");
        device.ip("addr add fd00::1/64 dev t nodad");
        device.ip("link set dev t up");
        for peer in PEERS {
            let lladdr = "lladdr 02:00:00:00:00:02 nud permanent";
            device.ip(&format!("neigh add {peer} {lladdr} dev t"));
        }
        device
    }

    fn host(&self) -> &Host {
        &self.world.a
    }

    fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.host().run(&words);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queues[0].as_fd()
    }

    /// Reads all waiting frames; returns each with its queue.
    fn frames(&self) -> Vec<(u16, Vec<u8>)> {
        let mut frames = Vec::new();
        for (queue, file) in (0..).zip(&self.queues) {
            let mut bytes = [0; 2048];
            while let Ok(n) = (&*file).read(&mut bytes) {
                frames.push((queue, bytes[..n].to_vec()));
            }
        }
        frames
    }

    /// Sends datagrams to each port and returns their frames. With a table, fails unless each frame
    /// is in the queue that the table gives. (Other frames of the stack may have been sent before
    /// the table was set.)
    #[track_caller]
    fn send(&self, table: Option<&BucketTable>, to: Flows) -> Vec<(u16, Vec<u8>)> {
        let Flows { peer, ports, size, each } = to;
        let mark = 0xa5;
        self.host().within(|| {
            let any: IpAddr = if peer.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 40_000)).expect("a socket");
            for port in ports.clone() {
                socket.send_to(&vec![mark; size], (peer, port)).expect("sending");
            }
        });
        let mut ours = Vec::new();
        until("all frames came", || {
            ours.extend(
                self.frames().into_iter().filter(|(_, frame)| frame.ends_with(&[mark; 16])),
            );
            (ours.len() >= ports.len() * each).then_some(())
        });
        assert_eq!(ours.len(), ports.len() * each);
        if let Some(table) = table {
            assert_places(table, &ours);
        }
        ours
    }
}

struct Flows {
    peer: IpAddr,
    ports: std::ops::Range<u16>,
    size: usize,
    each: usize,
}

fn flows(peer: IpAddr) -> Flows {
    Flows { peer, ports: 5000..5128, size: 100, each: 1 }
}

/// Asserts that each frame is in the queue given by the table.
#[track_caller]
fn assert_places(table: &BucketTable, frames: &[(u16, Vec<u8>)]) {
    for (queue, frame) in frames {
        let expected = bucket(frame, Layer::Ethernet).map_or(0, |bucket| table[bucket]);
        assert_eq!(*queue, expected, "{frame:x?}");
    }
}

fn queues_of(frames: &[(u16, Vec<u8>)]) -> Vec<u16> {
    let mut queues: Vec<u16> = frames.iter().map(|(queue, _)| *queue).collect();
    queues.sort_unstable();
    queues.dedup();
    queues
}

// Goal: every frame of the stack (IPv4, IPv6, TCP, and its own control traffic) arrives in the
// queue given by the table, and all queues are used.
#[test]
fn frames_arrive_in_the_queue_of_the_table() {
    if !has(&[Need::Root]) {
        return;
    }
    let device = Device::create();
    let steering = Steering::load(&spread(QUEUES), Layer::Ethernet).expect("loading");
    steering.attach(device.fd()).expect("attaching");
    // Discard frames that the stack sent before the attach, because the program did not select
    // their queue.
    let _ = mqnet_sysio::affinity::visit_every_cpu();
    device.frames();
    // Joining a multicast group makes the stack send frames.
    device.ip("addr add fd00::77/64 dev t nodad");
    let mut chatter = Vec::new();
    until("the stack sent a frame", || {
        chatter.extend(device.frames());
        (!chatter.is_empty()).then_some(())
    });
    assert_places(steering.table(), &chatter);
    for peer in PEERS {
        let frames = device.send(Some(steering.table()), flows(peer));
        assert_eq!(queues_of(&frames), [0, 1, 2, 3], "to {peer}");
    }
    for port in 6000..6020 {
        let to = SocketAddr::from((PEERS[0], port));
        device.host().within(|| TcpStream::connect_timeout(&to, Duration::from_millis(1)).is_ok());
    }
    let frames = device.frames();
    let tcp = frames.iter().filter(|(_, frame)| frame.len() > 34 && frame[23] == 6).count();
    assert!(tcp >= 20, "{tcp} frames of TCP");
    assert_places(steering.table(), &frames);
}

// Goal: all fragments of a datagram arrive in one queue.
#[test]
fn fragments_stay_together() {
    if !has(&[Need::Root]) {
        return;
    }
    let device = Device::create();
    let steering = Steering::load(&spread(QUEUES), Layer::Ethernet).expect("loading");
    steering.attach(device.fd()).expect("attaching");
    for peer in PEERS {
        let large = Flows { peer, ports: 5000..5016, size: 4000, each: 3 };
        let frames = device.send(Some(steering.table()), large);
        assert_eq!(queues_of(&frames).len(), 1, "to {peer}");
    }
}

// Goal: moving a bucket moves the flows of that bucket and no others. No flow uses a queue that is
// no longer in the table.
#[test]
fn a_moved_bucket_moves_its_flows() {
    if !has(&[Need::Root]) {
        return;
    }
    let device = Device::create();
    let mut steering = Steering::load(&spread(QUEUES), Layer::Ethernet).expect("loading");
    steering.attach(device.fd()).expect("attaching");
    let mut table = *steering.table();
    let before = device.send(Some(&table), flows(PEERS[0]));
    let moved = bucket(&before[0].1, Layer::Ethernet).expect("a bucket");
    table[moved] = (table[moved] + 1) % QUEUES;
    steering.set(&table).expect("setting");
    let after = device.send(Some(&table), flows(PEERS[0]));
    for (queue, frame) in &after {
        let bucket = bucket(frame, Layer::Ethernet).expect("a bucket");
        let old = spread(QUEUES)[bucket];
        assert_eq!(*queue, if bucket == moved { (old + 1) % QUEUES } else { old });
    }
    let table = rebalance(steering.table(), QUEUES, 2);
    steering.set(&table).expect("setting");
    assert_eq!(queues_of(&device.send(Some(&table), flows(PEERS[1]))), [0, 1]);
    // All four queues stay attached; only the program stops using two of them.
    let table = rebalance(steering.table(), 2, QUEUES);
    steering.set(&table).expect("setting");
    assert_eq!(queues_of(&device.send(Some(&table), flows(PEERS[1]))), [0, 1, 2, 3]);
}

// Goal: the program stays attached until it is detached, also after its loader has closed the
// program's descriptor.
#[test]
fn steering_stays_until_detached() {
    if !has(&[Need::Root]) {
        return;
    }
    let device = Device::create();
    let all_to_three: BucketTable = [3; BUCKETS];
    let steering = Steering::load(&all_to_three, Layer::Ethernet).expect("loading");
    steering.attach(device.fd()).expect("attaching");
    assert_eq!(queues_of(&device.send(Some(&all_to_three), flows(PEERS[0]))), [3]);
    drop(steering);
    assert_eq!(queues_of(&device.send(Some(&all_to_three), flows(PEERS[0]))), [3]);
    detach(device.fd()).expect("detaching");
    let queues = queues_of(&device.send(None, flows(PEERS[0])));
    assert!(queues.len() > 1, "the kernel did not choose again: {queues:?}");
}

// Goal: while the drop filter is attached, no frame enters any queue.
#[test]
fn a_filter_drops_everything() {
    if !has(&[Need::Root]) {
        return;
    }
    let device = Device::create();
    device.send(None, flows(PEERS[0]));
    tap::set_filter(device.fd(), true).expect("filtering");
    device.frames();
    let sent = device.host().within(|| {
        let socket = UdpSocket::bind("0.0.0.0:40000").expect("a socket");
        (0..50).filter(|port| socket.send_to(&[1; 100], (PEERS[0], 5000 + port)).is_ok()).count()
    });
    assert_eq!(sent, 50);
    until("they were dropped", || (device.host().counters("t").tx_dropped >= 50).then_some(()));
    assert_eq!(device.frames().len(), 0);
    tap::set_filter(device.fd(), false).expect("no longer filtering");
    device.send(None, flows(PEERS[0]));
}

/// Environment variable that marks the child process, which has no permission to load programs.
const CHILD: &str = "MQNET_TEST_STEERING_CHILD";

// Goal: loading without permission fails with `PermissionDenied` and names the missing capability.
#[test]
fn loading_needs_permission() {
    if std::env::var_os(CHILD).is_some() {
        let error =
            Steering::load(&spread(2), Layer::Ethernet).expect_err("loading without the right to");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        println!("refused: {error}");
        return;
    }
    if !has(&[Need::Root]) {
        return;
    }
    let name = "steering::loading_needs_permission";
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").uid(65534).gid(65534);
    let output = run_command(&mut command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("refused: ") && text.contains("CAP_BPF"), "{text}");
}
