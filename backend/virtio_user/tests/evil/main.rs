//! Tests of the driver with a scripted device that violates the protocol.

mod device;
mod kept;
mod oracle;
mod vouched;

use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use mqnet_netdev::{Armed, Burst, Caps, Channel, Fault, Function, LinkStatus, Offloads, Plan, Rx};
use mqnet_shmem::Span;
use mqnet_virtio_user::{VirtioUserConfig, VirtioUserFunction};
use mqnet_wire::{Layer, VnetHdr};

use device::{Behaviour, CORRECT, Device, FEATURES, IN_ORDER, TIMEOUT, Vring, serve};

fn partner() -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: 64,
        wanted: None,
        mtu: None,
        mtu_found: None,
        mtu_max: 65521,
        frame_max: 65554,
        rx_offloads: Offloads::CSUM,
        rx_fixed: Offloads::NONE,
        tx_offloads: Offloads::CSUM,
    }
}

fn connect(device: &Device) -> VirtioUserFunction {
    let mut function = VirtioUserFunction::new(VirtioUserConfig::new(&device.path)).unwrap();
    function.set_partner(&partner());
    let begin = Instant::now();
    while let LinkStatus::Down(why) = function.poll_link(begin.elapsed()) {
        assert!(begin.elapsed() < TIMEOUT, "{why}");
        std::thread::sleep(Duration::from_millis(10));
    }
    function
}

/// Waits for a failed handshake; returns the reason.
fn refused(function: &mut VirtioUserFunction) -> String {
    let begin = Instant::now();
    loop {
        match function.poll_link(Duration::ZERO) {
            LinkStatus::Down(why) if why.starts_with("handshake with the device") => {}
            LinkStatus::Down(why) => return why,
            LinkStatus::Up { .. } => panic!("up"),
        }
        assert!(begin.elapsed() < TIMEOUT, "no result");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn plan(channels: u16) -> Plan {
    Plan::join(&Caps { wanted: Some(channels), ..partner() }, &partner()).unwrap()
}

/// Device, its driver, and the first channel.
type World = (Device, VirtioUserFunction, Channel);

fn world(name: &str) -> World {
    world_of(name, CORRECT)
}

fn world_of(name: &str, behaviour: Behaviour) -> World {
    let device = Device::start(name, behaviour);
    let mut function = connect(&device);
    let channel = function.open(&plan(1)).unwrap().remove(0);
    (device, function, channel)
}

/// Two worlds: with a device that returns buffers in any order, and with an in-order device.
fn worlds(name: &str) -> impl Iterator<Item = World> {
    [("any", CORRECT), ("order", IN_ORDER)]
        .into_iter()
        .map(move |(order, behaviour)| world_of(&format!("{name}-{order}"), behaviour))
}

/// Receives frames and releases them; returns their lengths.
fn poll(channel: &mut Channel) -> Result<Vec<u32>, Fault> {
    let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
    let lens: Vec<u32> = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64)?;
        burst.frames().iter().map(|frame| frame.len).collect()
    };
    rx.release(lens.len())?;
    Ok(lens)
}

// Goal: the driver accepts the features and both pairs of a correct device, and receives its
// frames. Only the vrings of used pairs are enabled, and none after the close.
#[test]
fn correct_device_is_served() {
    let (device, mut function, mut channel) = world("honest");
    assert_eq!(function.caps().channels, 2);
    {
        let state = device.state.lock().unwrap();
        assert_eq!(state.features, FEATURES);
        assert_eq!((state.vrings.len(), &state.enabled[..]), (4, &[true, true, false, false][..]));
    }
    let mut vring = device.vring(0);
    vring.send(1, [0; 10], &[7; 100]);
    vring.send(1, [0; 10], &[7; 1500]);
    assert_eq!(poll(&mut channel).unwrap(), [100, 1500]);
    assert_eq!(function.stats()[0].rx.packets.get(), 2);
    drop(channel);
    function.close("the end");
    assert_eq!(device.state.lock().unwrap().enabled, [false; 4]);
}

// Goal: frames that were peeked and not released are peeked again, in order, and are counted
// once.
#[test]
fn unreleased_frames_are_shown_again() {
    for (device, function, mut channel) in worlds("again") {
        let mut vring = device.vring(0);
        (1..=5).for_each(|n| vring.send(1, [0; 10], &[n; 64]));
        let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
        for released in [0, 2, 0, 3] {
            let mut burst = Burst::new();
            rx.peek(&mut burst, 64).unwrap();
            drop(burst);
            rx.release(released).unwrap();
        }
        assert!(poll(&mut channel).unwrap().is_empty());
        assert_eq!(function.stats()[0].rx.packets.get(), 5);
    }
}

// Goal: a merged frame is peeked as one frame in several segments.
#[test]
fn merged_frames_are_shown_as_one() {
    for (device, _function, mut channel) in worlds("merged") {
        let mut vring = device.vring(0);
        vring.send(2, [0; 10], &[1; 1000]);
        let (id, at, _) = vring.take().unwrap();
        vring.write(at, &[2; 400]);
        vring.give(id.into(), 400);
        assert_eq!(poll(&mut channel).unwrap(), [1400]);
    }
}

// Goal: frames shorter than their headers, and merged frames with missing, too many or no
// buffers, are counted as length errors. Their buffers are reused, and traffic continues.
#[test]
fn length_errors_are_counted() {
    for (device, function, mut channel) in worlds("lengths") {
        let mut vring = device.vring(0);
        let errors = || function.rx_buffers()[0].counters.length_errors.get();
        let mut expected = 0;
        for _ in 0..1000 {
            let (id, _, _) = vring.take().unwrap();
            vring.give(id.into(), 25);
            assert!(poll(&mut channel).unwrap().is_empty());
            for buffers in [0, 2, 66, u16::MAX] {
                vring.send(buffers, [0; 10], &[1; 64]);
                assert!(poll(&mut channel).unwrap().is_empty());
            }
            expected += 5;
            assert_eq!(errors(), expected);
            vring.send(1, [0; 10], &[1; 64]);
            assert_eq!(poll(&mut channel).unwrap(), [64]);
        }
        let stats = &function.stats()[0].rx;
        assert_eq!(stats.packets.get(), stats.drops.total() + 1000);
        let pages = function.rx_buffers()[0].counters.pages.get();
        assert!(pages <= 512, "{pages} pages are in use: buffers were lost");
    }
}

// Goal: a frame longer than the plan allows, and a frame with a checksum field after its end, are
// dropped with their reasons.
#[test]
fn wrong_frames_are_dropped() {
    for (device, function, mut channel) in worlds("wrong") {
        let mut vring = device.vring(0);
        let mut csum = [0; 10];
        csum[0] = 1;
        csum[6] = 100;
        vring.send(1, csum, &[1; 64]);
        let (id, at, _) = vring.take().unwrap();
        vring.write(at, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        vring.give(id.into(), 1500);
        let (id, _, _) = vring.take().unwrap();
        vring.give(id.into(), 1000);
        assert!(poll(&mut channel).unwrap().is_empty());
        use mqnet_netdev::DropReason::{BadHeader, TooLong};
        let drops = &function.stats()[0].rx.drops;
        assert_eq!((drops.get(BadHeader), drops.get(TooLong), drops.total()), (1, 1, 2));
    }
}

// Goal: an invalid id, an id that is returned twice, a length beyond the buffer, and an index that
// runs ahead close the queue. The reason names the invalid value.
#[test]
fn protocol_violations_close_the_queue() {
    type Violation = fn(&mut Vring);
    let violations: [(&str, Violation); 4] = [
        ("made available", |vring| vring.give(70_000, 100)),
        ("made available", |vring| {
            let (id, _, _) = vring.take().unwrap();
            vring.give(id.into(), 100);
            vring.give(id.into(), 100);
        }),
        ("used with", |vring| {
            let (id, _, len) = vring.take().unwrap();
            vring.give(id.into(), len + 1);
        }),
        ("are possible", |vring| vring.table(2).half(2).store(513, Release)),
    ];
    for (number, (words, violate)) in violations.into_iter().enumerate() {
        for (device, mut function, mut channel) in worlds(&format!("false{number}")) {
            violate(&mut device.vring(0));
            let fault = (0..2).find_map(|_| poll(&mut channel).err()).expect(words);
            assert!(fault.to_string().contains(words), "{fault}");
            drop(channel);
            function.close("a fault");
            // The session's rings must not be used again.
            assert!(matches!(function.poll_link(Duration::ZERO), LinkStatus::Down(_)));
        }
        for (device, _function, mut channel) in worlds(&format!("false-tx{number}")) {
            channel.tx.submit(&one(), 0).unwrap();
            channel.tx.flush().unwrap();
            // The driver ignores the used length of a buffer that the device only reads.
            if number != 2 {
                violate(&mut device.vring(1));
                assert!((0..2).any(|_| channel.tx.is_drained().is_err()), "{words}");
            }
        }
    }
}

fn one() -> Burst<'static> {
    let mut burst = Burst::new();
    burst.push(VnetHdr::default(), 60, Span::of(&[3; 60]));
    burst
}

// Goal: a frame is sent with its header before it. A queue with a full ring takes no more frames,
// sleeps, and continues when the device has returned buffers.
#[test]
fn a_full_ring_stops() {
    for (device, _function, mut channel) in worlds("full") {
        let mut taken = 0;
        while channel.tx.submit(&one(), 0).unwrap() == 1 {
            channel.tx.flush().unwrap();
            taken += 1;
        }
        channel.tx.flush().unwrap();
        assert_eq!(taken, 256);
        assert_eq!(channel.tx.queue().arm(100).unwrap(), Armed::Sleep);
        let mut vring = device.vring(1);
        for _ in 0..256 {
            let (id, at, len) = vring.take().unwrap();
            assert_eq!(len, 72);
            let mut bytes = [0xff; 72];
            vring.map.span(at, 72).unwrap().read_header(&mut bytes);
            assert_eq!((&bytes[..12], &bytes[12..]), (&[0; 12][..], &[3; 60][..]));
            vring.give(id.into(), 0);
        }
        assert_eq!(channel.tx.queue().arm(100).unwrap(), Armed::MoreWork);
        assert!(channel.tx.is_drained().unwrap());
        assert_eq!(channel.tx.submit(&one(), 0).unwrap(), 1);
    }
}

// Goal: a connection that ends during any message of the handshake, or later, takes the link down
// with a reason, and the driver reconnects.
#[test]
fn sockets_may_vanish() {
    for disconnects_at in [1, 2, 3, 5, 8, 9, 12, 15, 16, 17] {
        let device = Device::start("leaves", Behaviour { disconnects_at, ..CORRECT });
        let mut function = VirtioUserFunction::new(VirtioUserConfig::new(&device.path)).unwrap();
        let why = refused(&mut function);
        assert!(why.contains("handshake"), "{disconnects_at}: {why}");
    }
    let (device, mut function, channel) = world("vanish");
    device.hang_up();
    drop(channel);
    let begin = Instant::now();
    loop {
        match function.poll_link(begin.elapsed()) {
            LinkStatus::Up { session: 2 } => break,
            _ => assert!(begin.elapsed() < TIMEOUT),
        }
    }
    assert!(function.open(&plan(2)).is_ok());
}

// Goal: the handshake with a silent device ends after the time limit, with this reason.
#[test]
fn silent_device_is_abandoned() {
    let device =
        Device::start("silent", Behaviour { disconnects_at: 9, stays_silent: true, ..CORRECT });
    let mut function = VirtioUserFunction::new(VirtioUserConfig::new(&device.path)).unwrap();
    let begin = Instant::now();
    let why = refused(&mut function);
    assert!(why.contains("did not answer within 3000 ms"), "{why}");
    assert!(begin.elapsed() < TIMEOUT);
}

// Goal: a silent device does not delay another function of the same thread. The function of the
// silent device reports the pending handshake and signals its end. A drop cancels the handshake.
#[test]
fn silent_device_delays_no_other_function() {
    let behaviour = Behaviour { disconnects_at: 1, stays_silent: true, ..CORRECT };
    let silent = ["mute", "dumb"].map(|name| Device::start(name, behaviour));
    let start = |at: &Device| VirtioUserFunction::new(VirtioUserConfig::new(&at.path)).unwrap();
    let [mut waits, mut dropped] = silent.each_ref().map(start);
    let shaking = |function: &mut VirtioUserFunction| {
        let now = function.poll_link(Duration::ZERO);
        assert_eq!(now, LinkStatus::Down("handshake with the device".to_owned()));
    };
    shaking(&mut waits);
    shaking(&mut dropped);
    drop(dropped);
    let (device, _function, mut channel) = world("other");
    device.vring(0).send(1, [0; 10], &[7; 100]);
    assert_eq!(poll(&mut channel).unwrap(), [100]);
    shaking(&mut waits);
    mqnet_sysio::poll::wait_readable(&waits.events(), TIMEOUT).unwrap();
    assert!(
        !matches!(waits.poll_link(Duration::ZERO), LinkStatus::Down(why) if why.starts_with("sh"))
    );
    let why = refused(&mut waits);
    assert!(why.contains("did not answer within 3000 ms"), "{why}");
}

// Goal: a device older than virtio 1 is refused with a reason. A device without packed rings is
// refused if they are required.
#[test]
fn devices_without_required_features_are_refused() {
    let device = Device::start("old", Behaviour { features: FEATURES & !(1 << 32), ..CORRECT });
    let mut function = VirtioUserFunction::new(VirtioUserConfig::new(&device.path)).unwrap();
    let why = refused(&mut function);
    assert!(why.contains("older than virtio 1"), "{why}");
    let device = Device::start("split", CORRECT);
    let config = VirtioUserConfig { packed: true, ..VirtioUserConfig::new(&device.path) };
    let mut function = VirtioUserFunction::new(config).unwrap();
    let why = refused(&mut function);
    assert!(why.contains("omit packed"), "{why}");
}

// Goal: a plan with more channels than the device has, or with offloads that were not negotiated,
// is refused without any change.
#[test]
fn impossible_changes_are_refused() {
    let (device, mut function, _channel) = world("refuse");
    let refused = function.prepare(&plan(3)).unwrap_err();
    assert!(refused.to_string().contains("3 channels: the device has 2"), "{refused}");
    let none = Plan { rx_offloads: Offloads::NONE, ..plan(2) };
    let refused = function.prepare(&none).unwrap_err();
    assert!(refused.to_string().contains("(csum) are negotiated when"), "{refused}");
    assert_eq!(device.state.lock().unwrap().enabled, [true, true, false, false]);
    let next = function.prepare(&plan(2)).unwrap();
    assert_eq!(device.state.lock().unwrap().enabled, [true, true, false, true]);
    drop(next);
    function.abort();
    assert_eq!(device.state.lock().unwrap().enabled, [true, true, false, false]);
}

// Goal: a server waits for a device, removes a stale socket, and refuses a path that is in use.
#[test]
fn server_waits_for_device() {
    let path = std::env::temp_dir().join(format!("mqnet-evil-{}-server", std::process::id()));
    let _ = std::fs::remove_file(&path);
    drop(UnixListener::bind(&path).unwrap());
    let config = VirtioUserConfig { server: true, ..VirtioUserConfig::new(&path) };
    let mut function = VirtioUserFunction::new(config.clone()).unwrap();
    assert_eq!(VirtioUserFunction::new(config).err().map(|e| e.kind()), Some(ErrorKind::AddrInUse));
    assert!(matches!(function.poll_link(Duration::ZERO), LinkStatus::Down(_)));
    // The backlog has two connections: the probe of the refused server, and the device.
    let device = UnixStream::connect(&path).unwrap();
    std::thread::spawn(move || serve(device, CORRECT, &Mutex::default()));
    let up = (1..100).any(|n| {
        std::thread::sleep(Duration::from_millis(20));
        matches!(function.poll_link(Duration::from_secs(n * 3)), LinkStatus::Up { .. })
    });
    assert!(up);
    let _ = std::fs::remove_file(&path);
}
