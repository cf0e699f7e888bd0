//! Tests of mqnet's virtio driver with mqnet's device, over the control queue.

use std::path::PathBuf;

use mqnet_netdev::{Burst, Caps, Channel, Function, LinkStatus, Offloads, Plan, Rx, Steering};
use mqnet_shmem::Span;
use mqnet_testkit::until;
use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use mqnet_virtio_user::{VirtioUserConfig, VirtioUserFunction};
use mqnet_wire::{Layer, VnetHdr};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];
const QUEUES: u16 = 4;

struct World {
    device: VhostUserFunction,
    driver: VirtioUserFunction,
    path: PathBuf,
    mac: Option<[u8; 6]>,
    packed: bool,
}

/// Capabilities of the driver's partner function.
fn partner(tx_offloads: Offloads) -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: 64,
        wanted: None,
        mtu: None,
        mtu_found: None,
        mtu_max: 9000,
        frame_max: 65_554,
        rx_offloads: Offloads::NONE,
        tx_offloads,
        rx_fixed: Offloads::NONE,
    }
}

fn up(function: &mut dyn Function) -> bool {
    let status = function.poll_link(mqnet_sysio::clock::monotonic());
    matches!(status, LinkStatus::Up { .. })
}

impl World {
    fn new(name: &str, packed: bool, mac: Option<[u8; 6]>) -> Self {
        let path = std::env::temp_dir().join(format!("mqnet-{name}-{}", std::process::id()));
        let device = VhostUserFunction::open(VhostUserConfig {
            name: "vhost-user:test".to_owned(),
            meet: Meet::Listen(path.clone()),
            mac: None,
            mtu: None,
            queues: QUEUES,
            packed: true,
            ctrl: true,
        });
        let driver = Self::driver(&path, packed, mac);
        let mut world = Self { device: device.unwrap(), driver, path, mac, packed };
        world.connect();
        world
    }

    fn driver(path: &PathBuf, packed: bool, mac: Option<[u8; 6]>) -> VirtioUserFunction {
        let config = VirtioUserConfig { packed, mac, ..VirtioUserConfig::new(path) };
        VirtioUserFunction::new(config).unwrap()
    }

    fn connect(&mut self) {
        self.driver.set_partner(&partner(Offloads::NONE));
        until("the driver is connected", || up(&mut self.driver).then_some(()));
    }

    /// Connects another driver to the same device.
    fn reconnect(&mut self) {
        self.driver = Self::driver(&self.path, self.packed, self.mac);
        self.connect();
    }

    /// Plan of the driver and its partner.
    fn plan(&self, channels: u16, tx_offloads: Offloads) -> Plan {
        let there = Caps { wanted: Some(channels), ..partner(tx_offloads) };
        Plan::join(&self.driver.caps(), &there).unwrap()
    }

    /// Waits until the device requests this number of channels; returns its capabilities.
    fn device_wants(&mut self, channels: u16) -> Caps {
        let device = &mut self.device;
        until("the device wants channels", || {
            let is_up = up(device);
            let caps = device.caps();
            (is_up && caps.wanted == Some(channels)).then_some(caps)
        })
    }

    fn open(&mut self, channels: u16) -> [Vec<Channel>; 2] {
        let driver = self.driver.open(&self.plan(channels, Offloads::NONE)).unwrap();
        let caps = self.device_wants(channels);
        let plan = Plan::join(&caps, &partner(Offloads::NONE)).unwrap();
        [driver, self.device.open(&plan).unwrap()]
    }

    /// Changes the driver's link like the engine, after the channels were dropped.
    fn change(&mut self, channels: u16, taken: Offloads) {
        let plan = self.plan(channels, taken);
        drop(self.driver.prepare(&plan).unwrap());
        self.driver.steer(channels).unwrap();
        self.driver.commit().unwrap();
    }
}

fn frame(to: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = [to, [2, 0, 0, 0, 0, 9]].concat();
    frame.extend([8, 6]);
    frame.extend([number; 50]);
    frame
}

/// Sends a frame from one end; returns the frame that arrives at the other end, if there is one.
fn cross(from: &mut Channel, to: &mut Channel, bytes: &[u8]) -> Option<Vec<u8>> {
    until("room", || {
        let mut burst = Burst::new();
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
        let sent = from.tx.submit(&burst, 0).unwrap() == 1;
        from.tx.flush().unwrap();
        sent.then_some(())
    });
    let Rx::Owning(rx) = &mut to.rx else { panic!("it owns its memory") };
    let mut seen = vec![0; 2000];
    let len = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).unwrap();
        assert!(burst.frames().len() <= 1);
        burst.frames().first().map(|frame| frame.head.read_header(&mut seen))
    };
    rx.release(usize::from(len.is_some())).unwrap();
    seen.truncate(len?);
    Some(seen)
}

// Goal: the device has the number of channels that the driver commands, after opening, committed
// changes and aborted changes. Frames pass on each channel in both directions, with split and
// packed rings.
#[test]
fn channels_are_commanded() {
    for packed in [false, true] {
        let mut world = World::new("pairs", packed, None);
        assert_eq!(world.driver.caps().channels, QUEUES, "the config space reports it");
        let [mut driver, mut device] = world.open(3);
        assert_eq!(device.len(), 3);
        for (here, there) in driver.iter_mut().zip(&mut device) {
            for number in 0..100 {
                let bytes = frame(MAC, number);
                assert_eq!(cross(here, there, &bytes), Some(bytes.clone()));
                assert_eq!(cross(there, here, &bytes), Some(bytes));
            }
        }
        drop((driver, device));
        for channels in [1, 4, 2] {
            world.change(channels, Offloads::NONE);
            world.device_wants(channels);
        }
        let plan = world.plan(4, Offloads::NONE);
        drop(world.driver.prepare(&plan).unwrap());
        world.driver.steer(4).unwrap();
        world.device_wants(4);
        world.driver.abort();
        world.device_wants(2);
        world.driver.close("the test is over");
        let device = &mut world.device;
        until("the device is down", || (!up(device)).then_some(()));
    }
}

// Goal: a driver with an address receives only frames to this address, to groups and to
// broadcast. A driver without an address receives all frames.
#[test]
fn frames_for_other_addresses_are_filtered() {
    for mac in [Some(MAC), None] {
        let mut world = World::new("mac", false, mac);
        let [mut driver, mut device] = world.open(1);
        let mut comes = |to| cross(&mut device[0], &mut driver[0], &frame(to, 1)).is_some();
        assert!(comes(MAC) && comes([0xff; 6]) && comes([1, 0, 0x5e, 0, 0, 1]));
        assert_eq!(comes([2, 0, 0, 0, 0, 6]), mac.is_none());
        let drops = world.device.stats()[0].tx.drops.total();
        assert_eq!(drops, u64::from(mac.is_some()));
    }
}

// Goal: the device receives the offloads of the driver's partner, and their changes, within one
// session.
#[test]
fn offloads_change_live() {
    let mut world = World::new("offloads", true, None);
    let channels = world.open(2);
    assert_eq!(world.device_wants(2).tx_offloads, Offloads::NONE);
    drop(channels);
    let before = world.driver.poll_link(mqnet_sysio::clock::monotonic());
    let large = Offloads::CSUM.or(Offloads::TSO4).or(Offloads::TSO6);
    for taken in [large, Offloads::CSUM, Offloads::ALL, Offloads::NONE] {
        world.change(2, taken);
        assert_eq!(world.device_wants(2).tx_offloads, taken);
    }
    assert_eq!(world.driver.poll_link(mqnet_sysio::clock::monotonic()), before);
}

// Goal: the MTU that the driver requires becomes the MTU of the device's link. A device that
// requires another MTU refuses the message, and the reason names the MTU.
#[test]
fn required_mtu_reaches_device() {
    for (theirs, agree) in [(None, true), (Some(9000), true), (Some(4000), false)] {
        let path = std::env::temp_dir().join(format!("mqnet-mtu-{}", std::process::id()));
        let mut device = VhostUserFunction::open(VhostUserConfig {
            name: "vhost-user:test".to_owned(),
            meet: Meet::Listen(path.clone()),
            mac: None,
            mtu: theirs,
            queues: QUEUES,
            packed: true,
            ctrl: false,
        })
        .unwrap();
        let config = VirtioUserConfig { mtu: Some(9000), ..VirtioUserConfig::new(&path) };
        let mut driver = VirtioUserFunction::new(config).unwrap();
        driver.set_partner(&partner(Offloads::NONE));
        let why = until("an end", || match driver.poll_link(mqnet_sysio::clock::monotonic()) {
            LinkStatus::Down(why) if why.contains("refuses") => Some(why),
            LinkStatus::Up { .. } => Some(String::new()),
            LinkStatus::Down(_) => None,
        });
        assert_eq!(why.is_empty(), agree, "{why}");
        assert!(agree || why.contains("NET_SET_MTU 9000"), "{why}");
        up(&mut device);
        assert_eq!(device.caps().mtu, if agree { Some(9000) } else { theirs });
    }
}

// Goal: each of several drivers in turn can command the device. Later drivers also acknowledge the
// device's request to announce themselves.
#[test]
fn drivers_come_and_go() {
    let mut world = World::new("again", true, Some(MAC));
    for channels in [2, 4, 1] {
        drop(world.open(channels));
        world.reconnect();
    }
    drop(world.open(3));
}

// Goal: a device without a control queue is refused with a reason if the configuration needs
// commands. Otherwise the driver enables its pairs ring by ring.
#[test]
fn missing_control_queue_is_refused_if_needed() {
    let path = std::env::temp_dir().join(format!("mqnet-plain-{}", std::process::id()));
    let mut device = VhostUserFunction::open(VhostUserConfig {
        name: "vhost-user:test".to_owned(),
        meet: Meet::Listen(path.clone()),
        mac: Some(MAC),
        mtu: None,
        queues: QUEUES,
        packed: true,
        ctrl: false,
    })
    .unwrap();
    let mut driver = World::driver(&path, false, Some(MAC));
    let why = until("a reason", || match driver.poll_link(mqnet_sysio::clock::monotonic()) {
        LinkStatus::Down(why) if why.contains("mac=") => Some(why),
        _ => None,
    });
    assert!(why.contains("omit mac="), "{why}");
    let mut driver = World::driver(&path, false, None);
    until("the driver is connected", || up(&mut driver).then_some(()));
    let there = Caps { wanted: Some(2), ..partner(Offloads::NONE) };
    let plan = Plan::join(&driver.caps(), &there).unwrap();
    let _channels = driver.open(&plan).unwrap();
    until("the device wants two", || {
        up(&mut device);
        (device.caps().wanted == Some(2)).then_some(())
    });
}
