//! Payload in the program's memory, received from a vhost-user device of mqnet.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mqnet::{PayloadDevice, ProvidedMemory};
use mqnet_netdev::limits::{FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Burst, Caps, Channel, DetachedFrame, Function, LinkStatus, Offloads, OwningRx, Plan,
    PrivateFlags, Rx, RxBuffers, RxMemory,
};
use mqnet_shmem::{Region, Span, copies};
use mqnet_sysio::memory::memory_file;
use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use mqnet_virtio_user::{VirtioUserConfig, VirtioUserFunction};
use mqnet_wire::{Layer, VnetHdr};

const PATIENCE: Duration = Duration::from_secs(20);
const PAGES: usize = 600;

fn caps() -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: 1,
        wanted: Some(1),
        mtu: None,
        mtu_found: None,
        mtu_max: MTU_MAX,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::NONE,
        tx_offloads: Offloads::NONE,
        rx_fixed: Offloads::NONE,
    }
}

fn send(channel: &mut Channel, bytes: &[u8]) {
    let mut burst = Burst::new();
    burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
    let begin = Instant::now();
    while channel.tx.submit(&burst, 0).unwrap() == 0 {
        assert!(begin.elapsed() < PATIENCE, "the driver gives no buffers");
        channel.tx.flush().unwrap();
        std::thread::yield_now();
    }
    channel.tx.flush().unwrap();
}

/// Starts a device on a thread. The device sends each frame that is passed to the returned channel,
/// and ends when the channel is dropped.
fn device(path: PathBuf) -> mpsc::SyncSender<Vec<u8>> {
    let mut function = VhostUserFunction::open(VhostUserConfig {
        name: "vhost-user:test".to_owned(),
        meet: Meet::Listen(path),
        mac: None,
        mtu: None,
        queues: 1,
        packed: true,
        ctrl: false,
    })
    .unwrap();
    let (tell, told) = mpsc::sync_channel::<Vec<u8>>(64);
    std::thread::spawn(move || {
        function.set_partner(&caps());
        let begin = Instant::now();
        while let LinkStatus::Down(why) = function.poll_link(begin.elapsed()) {
            assert!(begin.elapsed() < PATIENCE, "{why}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let plan = Plan::join(&function.caps(), &caps()).unwrap();
        let mut channel = function.open(&plan).unwrap().remove(0);
        while let Ok(bytes) = told.recv() {
            send(&mut channel, &bytes);
        }
    });
    tell
}

fn frame(number: usize) -> Vec<u8> {
    let len = 60 + number * 37 % 1454;
    (0..len).map(|at| (at * 7 + number) as u8).collect()
}

// Goal: received frames are in the program's mapping of its memory file, at the reported places,
// without a copy by the program. Memory returned by another thread is used again, and a header is
// prepended in place.
#[test]
fn payload_is_in_program_memory() {
    let path = std::env::temp_dir().join(format!("mqnet-payload-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let tell = device(path.clone());
    let len = PAGES * 4096;
    let file = memory_file("mqnet-test", len, false).unwrap();
    let memory = ProvidedMemory::new(file.try_clone().unwrap(), len as u64);
    // Mapping of the file by the program.
    let (mine, _) = Region::of_guest(file, 0, len as u64).unwrap();
    let (mut nic, mut receivers) = PayloadDevice::open(&path, memory, 1, PATIENCE).unwrap();
    let rx = &mut receivers[0];
    let returner = rx.returner();
    let (give, given) = mpsc::channel();
    let giver = std::thread::spawn(move || {
        let mut returner = returner;
        while let Ok(payload) = given.recv() {
            returner.free(payload);
        }
        returner.flush();
    });
    let before = copies::made();
    let begin = Instant::now();
    for number in 0..3000 {
        let bytes = frame(number);
        tell.send(bytes.clone()).unwrap();
        let mut payload = loop {
            if let Some(payload) = rx.try_recv().unwrap() {
                break payload;
            }
            assert!(begin.elapsed() < 3 * PATIENCE, "frame {number} does not come");
            std::thread::yield_now();
        };
        let &[(place, size)] = payload.places() else { panic!("{payload:?}") };
        assert_eq!((size as usize, payload.len() as usize), (bytes.len(), bytes.len()));
        let mut found = vec![0; bytes.len()];
        mine.span(place as usize, size as usize).read_header(&mut found);
        assert_eq!(found, bytes, "frame {number} at {place}");
        // The virtio header precedes the frame and leaves at least 12 bytes of headroom.
        assert!(payload.headroom() >= 12 && rx.returner().push_front(&mut payload, b"a tag"));
        let at = payload.places()[0].0 as usize;
        assert_eq!((at, &mine.span(at, 5).header::<5>().unwrap()), (place as usize - 5, b"a tag"));
        give.send(payload).unwrap();
    }
    assert_eq!(copies::made() - before, 0, "payload was copied");
    drop(give);
    giver.join().unwrap();
    let pool = nic.rx_memory().remove(0);
    assert!(pool.provided && pool.buffers.foreign > 2000, "{pool:?}");
    assert_eq!((pool.buffers.pages_most as usize, pool.buffers.alloc_fail), (PAGES, 0));
    nic.check().unwrap();
    drop(tell);
    let _ = std::fs::remove_file(&path);
}

// Goal: memory that is too small is refused, and the error states the necessary size.
#[test]
fn too_little_memory_is_refused() {
    let path = std::env::temp_dir().join(format!("mqnet-payload-few-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let _tell = device(path.clone());
    let file = memory_file("mqnet-test", 4096, false).unwrap();
    let memory = ProvidedMemory::new(file, 4096);
    let refused = PayloadDevice::open(&path, memory, 1, Duration::from_secs(2)).err().unwrap();
    assert!(refused.to_string().contains("at least 1048576 are needed"), "{refused}");
    let _ = std::fs::remove_file(&path);
}

/// Device, and a driver with `pages` pages of the program's memory.
struct World {
    tell: mpsc::SyncSender<Vec<u8>>,
    function: VirtioUserFunction,
    rx: Box<dyn OwningRx>,
    path: PathBuf,
    number: usize,
}

impl World {
    fn new(name: &str, pages: usize) -> Self {
        let path = std::env::temp_dir().join(format!("mqnet-pages-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let tell = device(path.clone());
        let file = memory_file("mqnet-test", pages * 4096, false).unwrap();
        let memory = ProvidedMemory::new(file, pages as u64 * 4096);
        let config = VirtioUserConfig {
            queues: Some(1),
            rx_memory: Some(memory),
            ..VirtioUserConfig::new(&path)
        };
        let mut function = VirtioUserFunction::new(config).unwrap();
        function.set_partner(&caps());
        let begin = Instant::now();
        while let LinkStatus::Down(why) = function.poll_link(begin.elapsed()) {
            assert!(begin.elapsed() < PATIENCE, "{why}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let plan = Plan::join(&function.caps(), &caps()).unwrap();
        let Rx::Owning(rx) = function.open(&plan).unwrap().remove(0).rx else { unreachable!() };
        Self { tell, function, rx, path, number: 0 }
    }

    /// Passes frames from the device to the driver, and checks their bytes. With `keep`, detaches
    /// and returns the frames; otherwise their memory is returned to the queue.
    fn carry(&mut self, frames: usize, keep: bool) -> Vec<DetachedFrame> {
        let mut all = Vec::new();
        for _ in 0..frames {
            self.number += 1;
            let bytes = frame(self.number);
            self.tell.send(bytes.clone()).unwrap();
            let begin = Instant::now();
            loop {
                assert!(begin.elapsed() < PATIENCE, "frame {} does not come", self.number);
                let mut burst = Burst::new();
                self.rx.peek(&mut burst, 64).unwrap();
                let Some(found) = burst.frames().first() else { continue };
                let mut head = vec![0; bytes.len()];
                found.head.read_header(&mut head);
                assert_eq!(head, bytes, "frame {}", self.number);
                break;
            }
            if keep {
                all.extend(self.rx.detach().unwrap());
            } else {
                self.rx.release(1).unwrap();
            }
        }
        all
    }

    fn flag(&self) -> bool {
        self.function.flags().iter().any(|(name, on)| *name == "full-page-rx" && *on)
    }

    fn reading(&self) -> RxMemory {
        self.function.rx_memory().remove(0)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

// Goal: full-page buffers are refused, with the numbers, if the memory cannot fill the ring.
// Nothing is changed, and traffic continues.
#[test]
fn impossible_pages_are_refused() {
    let mut world = World::new("refused", 300);
    world.carry(600, false);
    let refused = world.function.set_flag("full-page-rx", true).unwrap_err().to_string();
    assert!(refused.contains("has 300 pages for its ring of 512 buffers"), "{refused}");
    assert!(!world.flag());
    world.carry(600, false);
    let reading = world.reading();
    assert_eq!(
        (reading.layout(), reading.buffers.alloc_fail, &reading.reason[..]),
        ("frag", 0, "requested")
    );
}

// Goal: if full-page buffers run out because the program keeps frames, the queue returns to page
// fragments, and the flag reads as off with a reason. Every frame arrives. A later request succeeds
// if there is memory, and the flag can be changed under traffic.
#[test]
fn pages_that_run_out_are_rolled_back() {
    let mut world = World::new("rolled", 520);
    let kept = world.carry(300, true);
    world.function.set_flag("full-page-rx", true).unwrap();
    world.carry(100, false);
    assert!(world.flag() && world.reading().full);
    world.carry(1200, false);
    let reading = world.reading();
    assert!(!world.flag(), "{reading:?}");
    assert!(reading.reason.starts_with("rolled back: 520 pages are too few"), "{reading:?}");
    assert!(matches!(world.function.poll_link(Duration::ZERO), LinkStatus::Up { session: 1 }));
    let mut returner = world.rx.returner().unwrap();
    kept.into_iter().for_each(|frame| frame.free(&mut returner));
    returner.flush();
    world.carry(600, false);
    for round in 0..20 {
        world.function.set_flag("full-page-rx", round % 2 == 0).unwrap();
        world.carry(600, false);
        let reading = world.reading();
        assert_eq!((world.flag(), reading.full), (round % 2 == 0, round % 2 == 0), "{reading:?}");
    }
}
