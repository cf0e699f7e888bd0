//! Tests with DPDK's vhost port as the device: testpmd returns each frame on its queue.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mqnet_netdev::{
    Burst, Caps, Channel, Function, LinkStatus, Offloads, Plan, PrivateFlags, Rx, Steering, Tx,
};
use mqnet_shmem::Span;
use mqnet_virtio_user::{VirtioUserConfig, VirtioUserFunction};
use mqnet_wire::{Layer, VnetHdr};

const PATIENCE: Duration = Duration::from_secs(60);

/// Largest number of frames in flight per channel; smaller than any ring.
const WINDOW: u64 = 100;

/// Lock that serialises the tests, each of which keeps two CPUs busy.
static ALONE: Mutex<()> = Mutex::new(());

struct Testpmd {
    child: Child,
    socket: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Testpmd {
    /// Starts testpmd; `None` if testpmd is not installed.
    fn start(name: &str, queues: u16) -> Option<Self> {
        let socket = std::env::temp_dir().join(format!("mqnet-vu-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let path = std::env::var_os("PATH")?;
        if !std::env::split_paths(&path).any(|p| p.join("dpdk-testpmd").is_file()) {
            assert!(std::env::var_os("MQNET_NO_SKIP").is_none(), "needs dpdk-testpmd");
            println!("SKIP: needs the program dpdk-testpmd");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let vdev = format!("--vdev=net_vhost0,iface={},queues={queues}", socket.display());
        let mut child = Command::new("dpdk-testpmd")
            .args(["--no-huge", "--no-pci", "--no-shconf", "-m", "512", "--log-level", "4"])
            .args(["-l", "0,1", &vdev, "--", "-i", "--total-num-mbufs=16384"])
            .args([format!("--rxq={queues}"), format!("--txq={queues}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "set fwd io\nstart").unwrap();
        let pmd = Self { child, socket, _alone: alone };
        let begin = Instant::now();
        while !pmd.socket.exists() {
            assert!(begin.elapsed() < PATIENCE, "testpmd makes no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pmd)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn partner() -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: 64,
        wanted: None,
        mtu: None,
        mtu_found: None,
        mtu_max: 65521,
        frame_max: 65554,
        rx_offloads: Offloads::NONE,
        rx_fixed: Offloads::NONE,
        tx_offloads: Offloads::NONE,
    }
}

fn plan(channels: u16, mtu: u32) -> Plan {
    let caps = Caps { wanted: Some(channels), mtu: Some(mtu), ..partner() };
    Plan::join(&caps, &partner()).unwrap()
}

fn connect(config: VirtioUserConfig) -> VirtioUserFunction {
    let mut function = VirtioUserFunction::new(config).unwrap();
    function.set_partner(&partner());
    let begin = Instant::now();
    loop {
        match function.poll_link(begin.elapsed()) {
            LinkStatus::Up { .. } => return function,
            LinkStatus::Down(why) => assert!(begin.elapsed() < PATIENCE, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Number of frames sent and returned on one channel.
#[derive(Default)]
struct Count {
    sent: u64,
    back: u64,
}

fn frame(channel: usize, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14] = channel as u8;
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(24) {
        *byte = (at as u64 * 7 + number) as u8;
    }
    bytes
}

/// Length of frame `number`, from 60 up to `most` bytes.
fn length(number: u64, most: usize) -> usize {
    60 + (number as usize * 131) % (most - 59)
}

fn send(channel: &mut Channel, at: usize, count: &mut Count, total: u64, most: usize) {
    let n = (total - count.sent).min(WINDOW - (count.sent - count.back)).min(32);
    let frames: Vec<Vec<u8>> = (count.sent..count.sent + n)
        .map(|number| frame(at, number, length(number, most)))
        .collect();
    let mut burst = Burst::new();
    for bytes in &frames {
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
    }
    count.sent += channel.tx.submit(&burst, 0).unwrap() as u64;
    channel.tx.flush().unwrap();
}

fn receive(channel: &mut Channel, at: usize, count: &mut Count, most: usize) {
    let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
    let frames = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).unwrap();
        for got in burst.frames() {
            let want = frame(at, count.back, length(count.back, most));
            let mut bytes = vec![0; got.len as usize];
            let mut to = 0;
            for piece in std::iter::once(&got.head).chain(burst.more(got)) {
                to += piece.read_header(&mut bytes[to..]);
            }
            assert_eq!(to, bytes.len());
            assert!(bytes == want, "channel {at}: frame {} is not as it was sent", count.back);
            count.back += 1;
        }
        burst.frames().len()
    };
    rx.release(frames).unwrap();
}

/// Sends `total` frames on each channel, and waits until all have returned, in order and
/// unchanged.
fn echo(channels: &mut [Channel], counts: &mut [Count], total: u64, most: usize) {
    let begin = Instant::now();
    while counts[..channels.len()].iter().any(|count| count.back < total) {
        for (at, (channel, count)) in channels.iter_mut().zip(&mut *counts).enumerate() {
            send(channel, at, count, total, most);
            receive(channel, at, count, most);
        }
        if begin.elapsed() > PATIENCE {
            let list: Vec<_> = counts.iter().map(|c| (c.sent, c.back)).collect();
            panic!("stuck: sent and back {list:?}, of {total}");
        }
    }
}

/// Waits until testpmd answers on every queue. testpmd starts its queues one by one, and drops
/// frames that it cannot send.
fn warm_up(channels: &mut [Channel]) {
    let begin = Instant::now();
    for (at, channel) in channels.iter_mut().enumerate() {
        loop {
            let bytes = frame(at, 0, 60);
            let mut burst = Burst::new();
            burst.push(VnetHdr::default(), 60, Span::of(&bytes));
            channel.tx.submit(&burst, 0).unwrap();
            channel.tx.flush().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
            let got = {
                let mut burst = Burst::new();
                rx.peek(&mut burst, 64).unwrap();
                burst.frames().len()
            };
            rx.release(got).unwrap();
            if got > 0 {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "channel {at} stays silent");
        }
    }
    // Receive the frames that are still in flight.
    std::thread::sleep(Duration::from_millis(300));
    for channel in channels {
        let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
        let got = {
            let mut burst = Burst::new();
            rx.peek(&mut burst, 64).unwrap();
            burst.frames().len()
        };
        rx.release(got).unwrap();
    }
}

fn world(name: &str, queues: u16, packed: bool, mergeable: bool) {
    let Some(pmd) = Testpmd::start(name, queues) else { return };
    let most = if mergeable { 5000 } else { 1514 };
    // DPDK reports 128 queues, regardless of its port, so the number is set here.
    let config = VirtioUserConfig {
        packed,
        mergeable,
        // One queue is tested without checksum offload, because the DPDK device then copies
        // bursts, not single frames.
        csum: queues > 1,
        queues: Some(queues),
        ..VirtioUserConfig::new(&pmd.socket)
    };
    let mut function = connect(config);
    assert_eq!(function.caps().channels, queues);
    let mtu = if mergeable { 9000 } else { 1500 };
    let mut channels = function.open(&plan(queues, mtu)).unwrap();
    warm_up(&mut channels);
    let mut counts: Vec<Count> = (0..queues).map(|_| Count::default()).collect();
    echo(&mut channels, &mut counts, 20_000 / u64::from(queues), most);
    for (at, channel) in channels.iter_mut().enumerate() {
        assert!(channel.tx.is_drained().unwrap());
        let stats = &function.stats()[at];
        assert_eq!(stats.rx.drops.total() + stats.tx.drops.total(), 0);
        assert_eq!(stats.tx.packets.get(), stats.tx.copies.get(), "one copy a frame");
        assert_eq!(function.rx_buffers()[at].counters.length_errors.get(), 0);
        assert_eq!(function.rx_buffers()[at].counters.alloc_fail.get(), 0);
    }
}

// Goal: with one queue every frame is returned unchanged and in order, for each layout of rings and
// buffers.
#[test]
fn one_queue() {
    for (name, packed, mergeable) in
        [("s1m", false, true), ("s1", false, false), ("p1m", true, true), ("p1", true, false)]
    {
        world(name, 1, packed, mergeable);
    }
}

// Goal: with two queues every frame is returned unchanged and in order.
#[test]
fn two_queues() {
    world("s2m", 2, false, true);
    world("p2", 2, true, false);
}

// Goal: with eight queues every frame is returned unchanged and in order.
#[test]
fn eight_queues() {
    world("s8", 8, false, false);
    world("p8m", 8, true, true);
}

fn hold(channels: &mut [Channel], on: bool) {
    channels.iter_mut().for_each(|channel| channel.tx.hold(on).unwrap());
}

/// Changes the number of channels with the steps of the engine.
fn resize(
    function: &mut VirtioUserFunction,
    old: Vec<Channel>,
    counts: &mut [Count],
    to: u16,
) -> Vec<Channel> {
    let mut old = old;
    let wanted = plan(to, 1500).with_fixed(function.caps().rx_fixed, Offloads::NONE);
    let mut next = function.prepare(&wanted).unwrap();
    hold(&mut next, true);
    assert_eq!(next[0].tx.submit(&one(&[0; 60]), 0).unwrap(), 0, "held");
    // Removed channels have no frames in flight; the remaining channels have some, in both
    // directions.
    let leave = usize::from(to).min(old.len());
    for at in leave..old.len() {
        while counts[at].back < counts[at].sent {
            receive(&mut old[at], at, &mut counts[at], 1514);
        }
    }
    for (at, channel) in old.iter_mut().enumerate().take(leave) {
        let more = counts[at].sent + 20;
        send(channel, at, &mut counts[at], more, 1514);
    }
    function.steer(to).unwrap();
    for channel in &mut old {
        channel.rx.queue().park();
        channel.tx.queue().park();
    }
    let begin = Instant::now();
    for channel in &mut old {
        while !channel.tx.is_drained().unwrap() {
            assert!(begin.elapsed() < PATIENCE, "the old rings are not drained");
        }
    }
    hold(&mut next, false);
    drop(old);
    function.commit().unwrap();
    next
}

fn one(bytes: &'static [u8]) -> Burst<'static> {
    let mut burst = Burst::new();
    burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
    burst
}

// Goal: 100 channel changes with frames in flight lose, duplicate or change no frame, for either
// layout of rings.
#[test]
fn a_hundred_resizes() {
    for packed in [false, true] {
        let name = if packed { "rp" } else { "rs" };
        let Some(pmd) = Testpmd::start(name, 8) else { return };
        let mut function =
            connect(VirtioUserConfig { packed, ..VirtioUserConfig::new(&pmd.socket) });
        let mut channels = function.open(&plan(8, 1500)).unwrap();
        warm_up(&mut channels);
        let mut counts: Vec<Count> = (0..8).map(|_| Count::default()).collect();
        let mut seed = 1u32;
        for _ in 0..100 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let to = (seed >> 16) as u16 % 8 + 1;
            channels = resize(&mut function, channels, &mut counts, to);
            assert_eq!(channels.len(), usize::from(to));
            for (at, channel) in channels.iter_mut().enumerate() {
                let total = counts[at].sent + 50;
                let begin = Instant::now();
                while counts[at].back < total {
                    send(channel, at, &mut counts[at], total, 1514);
                    receive(channel, at, &mut counts[at], 1514);
                    let c = &counts[at];
                    assert!(begin.elapsed() < PATIENCE, "channel {at}: {} {}", c.sent, c.back);
                }
            }
        }
    }
}

// Goal: buffers change between parts of pages and whole pages under traffic without the loss of a
// frame.
#[test]
fn full_pages_under_traffic() {
    let Some(pmd) = Testpmd::start("full", 1) else { return };
    let mut function = connect(VirtioUserConfig::new(&pmd.socket));
    let mut channels = function.open(&plan(1, 1500)).unwrap();
    warm_up(&mut channels);
    let mut counts = vec![Count::default()];
    for round in 0..50 {
        function.set_flag("full-page-rx", round % 2 == 0).unwrap();
        let total = counts[0].sent + 700;
        echo(&mut channels, &mut counts, total, 1000);
        let buffers = &function.rx_buffers()[0];
        let (per_page, reason) = (buffers.counters.per_page.get(), buffers.reason().unwrap());
        assert_eq!((per_page == 1, reason.full), (round % 2 == 0, round % 2 == 0));
        assert_eq!(reason.cause.to_string(), "requested");
    }
    assert_eq!(function.rx_buffers()[0].counters.length_errors.get(), 0);
}

// Goal: a killed device takes the link down with a reason, and the driver connects to the next one.
#[test]
fn devices_come_and_go() {
    let Some(pmd) = Testpmd::start("gone", 1) else { return };
    let mut function = connect(VirtioUserConfig::new(&pmd.socket));
    let mut channels = function.open(&plan(1, 1500)).unwrap();
    warm_up(&mut channels);
    drop(pmd);
    let begin = Instant::now();
    loop {
        let Tx::Owning(tx) = &mut channels[0].tx else { panic!("virtio owns its memory") };
        let _ = tx.submit(&one(&[0; 60]), 0);
        tx.flush().unwrap();
        match function.poll_link(begin.elapsed()) {
            LinkStatus::Down(why) => {
                assert!(why.contains("no device at") || why.contains("disconnected"), "{why}");
                break;
            }
            LinkStatus::Up { .. } => assert!(begin.elapsed() < PATIENCE),
        }
    }
    drop(channels);
    let lost = function.stats()[0].tx.lost.get();
    assert!(lost > 0, "what the device did not take is counted");
    let Some(_pmd) = Testpmd::start("gone", 1) else { return };
    loop {
        if let LinkStatus::Up { session } = function.poll_link(begin.elapsed()) {
            assert_eq!(session, 2);
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut channels = function.open(&plan(1, 1500)).unwrap();
    warm_up(&mut channels);
}
