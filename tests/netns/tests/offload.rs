//! Offload emulation: the engine segments frames and completes checksums for an end without these
//! offloads, and a real kernel accepts the result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mqnet_ebpf::{ExecutionMode, Program, Selector};
use mqnet_engine::{Link, LinkConfig, LinkSettings, Notice};
use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::stats::equation;
use mqnet_netdev::{
    Caps, Channel, Function, LaneSums, LinkStatus, Offloads, OpenChannelsError, Plan,
    QueuePairStats,
};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::clock;
use mqnet_tap::{TapConfig, TapFunction};
use mqnet_testkit::{Host, Need, Stream, World, has};

const NEEDS: [Need; 2] = [Need::Root, Need::Program("python3")];

/// TAP that announces given offloads: fewer than it supports on TX, or more than agreed on RX.
struct WithOffloads {
    inner: TapFunction,
    rx: Offloads,
    tx: Offloads,
    fixed: Offloads,
}

impl Function for WithOffloads {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        let (rx_offloads, tx_offloads) = (self.rx, self.tx);
        Caps { rx_offloads, tx_offloads, rx_fixed: self.fixed, ..self.inner.caps() }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        // The limit of this TAP is that of the frames which its kernel may send: before emulation
        // they may exceed `frame_max`.
        self.inner.open(&Plan { frame_max: plan.rx_frame_max(), ..plan.clone() })
    }

    fn close(&mut self, why: &str) {
        self.inner.close(why);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.inner.prepare(&Plan { frame_max: plan.rx_frame_max(), ..plan.clone() })
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        self.inner.commit()
    }

    fn abort(&mut self) {
        self.inner.abort();
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        self.inner.stats()
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        self.inner.poll_link(now)
    }

    mqnet_netdev::forward_facets!(inner);
}

/// TAP of host `number`, which accepts only the offloads `tx`. With `stubborn`, the TAP sends
/// frames with offloads regardless of the agreement.
fn tap(host: &Host, device: &str, number: u8, stubborn: bool, tx: Offloads) -> WithOffloads {
    let address = |text: String| text.parse().expect("an address");
    let config = TapConfig {
        name: device.to_owned(),
        netns: Some(format!("/run/netns/{}", host.name()).into()),
        addresses: vec![
            address(format!("10.0.0.{number}/24")),
            address(format!("fd00::{number}/64")),
        ],
        ..TapConfig::default()
    };
    let inner = TapFunction::open(config).expect("a TAP");
    let fixed = if stubborn { inner.caps().rx_offloads } else { Offloads::NONE };
    let rx = if stubborn { fixed } else { Offloads::NONE };
    WithOffloads { inner, rx, tx, fixed }
}

/// Link, and the thread that runs it.
struct Driven {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    asks: mpsc::Sender<LinkSettings>,
    answers: mpsc::Receiver<Result<Option<String>, String>>,
    stats: [Vec<Arc<QueuePairStats>>; 2],
}

impl Driven {
    /// Starts a link; the receiver yields the plan when the link is up.
    fn start(a: Box<dyn Function>, b: Box<dyn Function>) -> (Self, mpsc::Receiver<Plan>) {
        Self::start_with(a, b, |_| ())
    }

    /// Starts a link after a call of `before`. The receiver yields the plan when the link is up.
    fn start_with(
        a: Box<dyn Function>,
        b: Box<dyn Function>,
        before: impl FnOnce(&mut Link),
    ) -> (Self, mpsc::Receiver<Plan>) {
        let mut link = Link::new(a, b, LinkConfig::default()).expect("a link");
        before(&mut link);
        let stats = link.functions().map(|end| end.stats().to_vec());
        let stop = Arc::new(AtomicBool::new(false));
        let (up, ups) = mpsc::channel();
        let (asks, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let halt = stop.clone();
        let thread = std::thread::spawn(move || {
            while !halt.load(Ordering::Relaxed) {
                match link.turn(clock::monotonic()).expect("a turn") {
                    Some(Notice::Up(plan)) => {
                        let _ = up.send(plan);
                    }
                    Some(Notice::Down(why)) => println!("down: {why}"),
                    _ => {}
                }
                if let Ok(settings) = asked.try_recv() {
                    link.request(settings, clock::monotonic()).expect("a request");
                }
                if let Some(done) = link.answer() {
                    let _ = answer.send(done.map_err(|e| e.to_string()));
                }
                std::thread::sleep(link.patience().min(Duration::from_millis(2)));
            }
            link.shut_down("the test ends", Duration::ZERO).expect("the end");
        });
        (Self { stop, thread: Some(thread), asks, answers, stats }, ups)
    }

    /// Requests a change and waits for its success.
    fn change(&self, settings: LinkSettings) {
        self.asks.send(settings).expect("a running link");
        let answer = self.answers.recv_timeout(Duration::from_secs(60)).expect("an answer");
        answer.expect("the change is made");
    }

    /// Sums of the counters of all lanes from the first function to the second.
    fn forth(&self) -> LaneSums {
        let mut sums = LaneSums::default();
        let [from, to] = &self.stats;
        from.iter().zip(to).for_each(|(from, to)| sums.add(from, to));
        sums
    }

    /// Ends the link; the conservation check must hold.
    fn end(mut self) {
        self.halt();
        let sums = self.forth();
        let in_flight = sums.in_flight();
        assert_eq!(in_flight, 0, "{}", equation(&sums, sums.drops(), in_flight));
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Number of checksum and header errors that a host has detected.
pub(crate) fn corrupt(host: &Host) -> u64 {
    let names = ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors", "IpInHdrErrors"];
    names.iter().map(|name| host.protocol(name)).sum()
}

/// Script that sends 50 datagrams of 1200 bytes per call (UDP_SEGMENT), which the kernel or its
/// device segments.
const SEND: &str = "import socket,sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 1200)
s.connect((sys.argv[1], 7001))
for call in range(20):
    s.send(b''.join(bytes([call, part]) + bytes(1198) for part in range(50)))
";
const RECEIVE: &str = "import socket,sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
s.settimeout(20)
s.bind((sys.argv[1], 7001))
print('bound', flush=True)
for number in range(1000):
    data = s.recv(4000)
    assert len(data) == 1200, len(data)
    assert (data[0], data[1]) == (number // 50, number % 50), (data[:2], number)
print('all', flush=True)
";

/// Runs the sender at host `a`. Fails unless host `b` receives each datagram once and in order.
pub(crate) fn datagrams(world: &World, address: &str) {
    use std::io::{BufRead, BufReader};
    let mut receiver = world.b.command(&["python3", "-c", RECEIVE, address]);
    let mut receiver = receiver.stdout(std::process::Stdio::piped()).spawn().expect("the receiver");
    let mut lines = BufReader::new(receiver.stdout.take().expect("its output")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "bound");
    world.a.run(&["python3", "-c", SEND, address]);
    let last = lines.next().map(|line| line.expect("text"));
    assert!(receiver.wait().expect("its end").success());
    assert_eq!(last.as_deref(), Some("all"));
}

/// Sends streams and datagrams from `a` to `b`; the kernel of `b` verifies all checksums.
fn traffic(world: &World) {
    for address in ["10.0.0.2", "fd00::2"] {
        let stream = Stream::start(&world.a, &world.b, address);
        stream.wait_more(24 << 20);
        stream.finish();
        datagrams(world, address);
    }
    assert_eq!((corrupt(&world.a), corrupt(&world.b)), (0, 0), "wrong checksums");
}

fn assert_segmented(forth: LaneSums) {
    println!("{forth:?}");
    assert_eq!(forth.dropped(), 0);
    assert!(forth.segments > 3 * forth.rx_packets, "most of what came was large");
}

// Goal: large frames of one kernel reach a kernel that accepts no offloads, or only checksum
// offload. Every stream and datagram arrives complete, and every checksum is correct.
#[test]
fn kernel_accepts_segmented_frames() {
    if !has(&NEEDS) {
        return;
    }
    for takes in [Offloads::NONE, Offloads::CSUM] {
        let world = World::create();
        let a = tap(&world.a, "a", 1, true, Offloads::ALL);
        let b = tap(&world.b, "b", 2, false, takes);
        let (link, up) = Driven::start(Box::new(a), Box::new(b));
        let plan = up.recv_timeout(Duration::from_secs(60)).expect("the link is up");
        assert!(plan.rx_offloads.any_large() && plan.rx_emulation.cuts, "{plan:?}");
        assert_eq!(plan.mirrored().tx_offloads, takes);
        traffic(&world);
        assert_segmented(link.forth());
        let sums: u64 = link.stats[1].iter().map(|stats| stats.tx.checksums.get()).sum();
        assert_eq!(sums > 0, takes == Offloads::NONE, "{sums} checksums");
        link.end();
    }
}

// Goal: an XDP program with fragment support at the sending end sees large frames before
// segmentation, and passes them.
#[test]
fn program_sees_unsegmented_frames() {
    if !has(&crate::xdp::NEEDS) {
        return;
    }
    let world = World::create();
    let object = std::fs::read(crate::xdp::object(&world, "large")).expect("an object");
    let program =
        Program::load(&object, Selector::default(), ExecutionMode::Interpret, CHANNELS_MAX)
            .expect("a program");
    let a = tap(&world.a, "a", 1, true, Offloads::ALL);
    let b = tap(&world.b, "b", 2, false, Offloads::NONE);
    let (link, up) = Driven::start_with(Box::new(a), Box::new(b), |link| {
        link.attach_xdp(0, program, [1, 2]).expect("it is attached");
    });
    let plan = up.recv_timeout(Duration::from_secs(60)).expect("the link is up");
    assert!(plan.rx_emulation.cuts && plan.frame_max < 2000, "{plan:?}");
    traffic(&world);
    assert_segmented(link.forth());
    assert!(link.stats[0].iter().any(|stats| stats.rx.xdp.packets.get() > 0), "no program ran");
    link.end();
}

// Goal: an XDP program without fragment support gets no frame longer than the MTU, although both
// ends support large frames. Every checksum is correct at an end that verifies checksums.
#[test]
fn programs_without_frags_get_frames_of_the_mtu() {
    if !has(&crate::xdp::NEEDS) {
        return;
    }
    let world = World::create();
    let object = std::fs::read(crate::xdp::object(&world, "small")).expect("an object");
    for takes in [Offloads::ALL, Offloads::NONE] {
        let program =
            Program::load(&object, Selector::default(), ExecutionMode::BEST, CHANNELS_MAX)
                .expect("a program");
        let a = tap(&world.a, "a", 1, true, Offloads::ALL);
        let b = tap(&world.b, "b", 2, false, takes);
        let attached = program.clone();
        let (link, up) = Driven::start_with(Box::new(a), Box::new(b), |link| {
            link.attach_xdp(0, attached, [1, 2]).expect("it is attached");
        });
        up.recv_timeout(Duration::from_secs(60)).expect("the link is up");
        traffic(&world);
        assert_segmented(link.forth());
        let [longest, failed] = [0u32, 1].map(|key| {
            let value = program.maps()[0].get(&key.to_le_bytes()).expect("an entry").concat();
            u64::from_le_bytes(value.try_into().expect("8 bytes"))
        });
        assert!((60..=1514).contains(&longest), "{longest}");
        assert_eq!(failed, 0);
        link.end();
    }
}

// Goal: while frames are segmented, channels are added and removed. The lanes of all channels
// segment, and no byte of a stream is lost or wrong. Offloads disabled by the user are emulated,
// too.
#[test]
fn channels_change_while_frames_are_segmented() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let a = tap(&world.a, "a", 1, true, Offloads::ALL);
    let b = tap(&world.b, "b", 2, false, Offloads::CSUM);
    let (link, up) = Driven::start(Box::new(a), Box::new(b));
    up.recv_timeout(Duration::from_secs(60)).expect("the link is up");
    let streams = ["10.0.0.2", "fd00::2"].map(|ip| Stream::start(&world.a, &world.b, ip));
    for turn in 0..12 {
        let channels = Some([4, 1, 3, 2][turn % 4]);
        let without_forth = if turn % 3 == 0 { Offloads::CSUM } else { Offloads::NONE };
        link.change(LinkSettings { channels, without_forth, ..LinkSettings::default() });
        streams.iter().for_each(|stream| stream.wait_more(2 << 20));
    }
    let bytes: u64 = streams.into_iter().map(Stream::finish).sum();
    assert!(bytes > 48 << 20, "{bytes}");
    assert_eq!((corrupt(&world.a), corrupt(&world.b)), (0, 0), "wrong checksums");
    let forth = link.forth();
    println!("{forth:?}");
    assert!(forth.segments > 3 * forth.rx_packets);
    link.end();
}

// Goal: large frames cross a bridge to a far end that accepts none. The near end segments them
// before they enter the bridge's ring.
#[test]
fn bridge_carries_segmented_frames() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let bridge = |seed| {
        let config = NtbConfig { path: world.socket(), window: 1 << 20, mtu: None };
        Box::new(NtbFunction::memfd(&config, seed))
    };
    let a = tap(&world.a, "a", 1, true, Offloads::ALL);
    let b = tap(&world.b, "b", 2, false, Offloads::NONE);
    let (near, near_up) = Driven::start(Box::new(a), bridge(1));
    let (far, far_up) = Driven::start(bridge(2), Box::new(b));
    let plan = near_up.recv_timeout(Duration::from_secs(60)).expect("the near end is up");
    assert!(plan.rx_emulation.cuts && plan.frame_max < 2000, "{plan:?}");
    let plan = far_up.recv_timeout(Duration::from_secs(60)).expect("the far end is up");
    assert!(plan.rx_emulation.is_none() && plan.rx_offloads == Offloads::NONE, "{plan:?}");
    traffic(&world);
    assert_segmented(near.forth());
    assert_eq!(far.forth().segments, 0);
    near.end();
    far.end();
}
