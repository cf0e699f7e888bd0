//! Tests of the message handlers without a socket.

use std::os::fd::AsFd;

use vhost::vhost_user::message::VhostUserVringAddrFlags as Flags;

use super::*;
use crate::offer::Offer;

/// First address of the guest's memory in the peer's process.
const USER: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 1 << 20;

fn device() -> Shared {
    with_control_queue(false)
}

fn with_control_queue(ctrl: bool) -> Shared {
    let shared = Shared::new(Offer { mac: None, mtu: None, pairs: 2, packed: true, ctrl }).unwrap();
    shared.lock().absent = None;
    shared
}

fn memory() -> File {
    memory_file("test", MEMORY as usize, false).unwrap().into()
}

fn event() -> Option<File> {
    Some(EventFd::new().unwrap().try_clone().unwrap().into())
}

fn begin(device: &Shared, features: Features) {
    device.set_features(features.or(Features::PROTOCOL_FEATURES).0).unwrap();
    let range = VhostUserMemoryRegion::new(0, MEMORY, USER, 0);
    device.set_mem_table(&[range], vec![memory()], None).unwrap();
}

fn start(device: &Shared, queue: u32) {
    let at = USER + 0x1_0000 * u64::from(queue);
    device.set_vring_num(queue, 256).unwrap();
    device.set_vring_base(queue, 0).unwrap();
    device.set_vring_addr(queue, Flags::empty(), at, at + 0x8000, at + 0x4000, 0).unwrap();
    device.set_vring_kick(queue as u8, event()).unwrap();
    device.set_vring_call(queue as u8, event()).unwrap();
}

// Goal: a pair counts as started (enabled) if both of its rings are started (enabled) and all pairs
// before it count. Stopping a ring returns its position.
#[test]
fn pairs_are_counted() {
    let device = device();
    begin(&device, Features::VERSION_1);
    assert!(device.lock().why_down().unwrap().contains("not started"));
    (0..4).for_each(|queue| start(&device, queue));
    let pairs = || {
        let state = device.lock();
        (state.pairs_started(), state.pairs_enabled())
    };
    assert_eq!(pairs(), (2, 0));
    for (queue, enabled) in [(0, 0), (2, 0), (3, 0), (1, 2)] {
        device.set_vring_enable(queue, true).unwrap();
        assert_eq!(pairs(), (2, enabled), "ring {queue}");
    }
    device.set_vring_enable(2, false).unwrap();
    assert_eq!(pairs(), (2, 1));
    assert_eq!({ device.get_vring_base(3).unwrap().num }, 0);
    assert_eq!(pairs(), (1, 1));
    device.reset_device().unwrap();
    assert_eq!(pairs(), (0, 0));
    assert!(device.lock().why_down().unwrap().contains("not started"));
}

// Goal: the position of a packed ring is recovered from its descriptors if this process has not
// read a position from the ring before.
#[test]
fn packed_position_is_recovered_from_ring() {
    let device = device();
    begin(&device, Features::VERSION_1.or(Features::RING_PACKED));
    let map = device.lock().memory.by_guest().clone();
    let ring = map.table(0x1_0000, 16 * 256, 16).unwrap();
    for i in 0..100 {
        ring.half(16 * i + 14).store(0x8080u16.to_le(), std::sync::atomic::Ordering::Relaxed);
    }
    start(&device, 1);
    assert_eq!({ device.get_vring_base(1).unwrap().num }, 0x8064_8064);
}

// Goal: a driver is interrupted once when its ring is taken into service, because the former
// backend may have lost an interrupt.
#[test]
fn driver_is_interrupted_when_ring_enters_service() {
    let device = device();
    begin(&device, Features::VERSION_1);
    let call = EventFd::new().unwrap();
    let is_rung = || {
        let ready = mqnet_sysio::poll::is_readable(call.as_fd()).unwrap();
        call.drain();
        ready
    };
    device.set_vring_call(0, Some(call.try_clone().unwrap().into())).unwrap();
    assert!(!is_rung());
    start(&device, 0);
    assert!(is_rung() && !is_rung());
}

// Goal: settings from commands of the driver persist when the VMM starts and stops dirty logging. A
// change of other features resets the settings.
#[test]
fn commanded_settings_persist_over_logging() {
    let device = with_control_queue(true);
    let features = Features::VERSION_1.or(Features::CTRL_VQ).or(Features::MQ);
    let features = features.or(Features::PROTOCOL_FEATURES);
    begin(&device, features);
    let pairs = |device: &Shared| device.lock().commands.as_ref().unwrap().settings.pairs;
    device.lock().commands.as_mut().unwrap().settings.pairs = 2;
    device.set_features(features.or(Features::LOG_ALL).0).unwrap();
    assert_eq!(pairs(&device), 2);
    device.set_features(features.0).unwrap();
    assert_eq!(pairs(&device), 2);
    device.set_features(features.or(Features::GUEST_CSUM).0).unwrap();
    assert_eq!(pairs(&device), 1);
}

// Goal: an impossible request is refused with its reason and leaves the device unchanged.
#[test]
fn impossible_requests_are_refused() {
    let device = device();
    begin(&device, Features::VERSION_1);
    let words = |result: Result<()>| format!("{:?}", result.unwrap_err());
    assert!(words(device.set_features(1 << 63)).contains("not offered"));
    assert!(words(device.set_vring_num(4, 256)).contains("only 4 exist"));
    assert!(words(device.set_vring_num(0, 0)).contains("allowed are 1 to 32768"));
    assert!(words(device.set_vring_call(9, event())).contains("only 4 exist"));
    assert!(words(device.set_vring_err(0, Some(memory()))).contains("eventfd"));
    assert!(words(device.set_vring_kick(0, Some(memory()))).contains("eventfd"));
    assert!(words(device.set_vring_call(0, Some(memory()))).contains("eventfd"));
    let far = VhostUserMemoryRegion::new(0, MEMORY + 1, USER, 0);
    let refused = device.set_mem_table(&[far], vec![memory()], None).map(drop);
    assert!(words(refused).contains("announced"));
    assert!(device.lock().memory.by_guest().span(0, 1).is_some(), "the memory before is gone");
}

// Goal: a ring of an invalid size, or outside of guest memory, keeps the device down; the reason
// names the fault.
#[test]
fn rings_that_cannot_be_served_are_named() {
    let device = device();
    begin(&device, Features::VERSION_1);
    device.set_vring_num(0, 100).unwrap();
    device.set_vring_kick(0, event()).unwrap();
    assert!(device.lock().why_down().unwrap().contains("power of two"));
    device.set_vring_num(0, 256).unwrap();
    assert!(device.lock().why_down().unwrap().contains("not in guest memory"));
    assert_eq!(device.lock().pairs_started(), 0);
}

// Goal: an inflight region has the announced size and a table for each announced ring only. Regions
// for too many rings, or longer than the limit, are refused.
#[test]
fn inflight_memory_is_sized() {
    let device = device();
    let (granted, file) = device.get_inflight_fd(&VhostUserInflight::new(0, 0, 4, 256)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), { granted.mmap_size });
    assert!(device.lock().inflight.as_ref().unwrap().of(3, true).is_some());
    assert!(device.lock().inflight.as_ref().unwrap().of(4, true).is_none());
    assert!(device.get_inflight_fd(&VhostUserInflight::new(0, 0, u16::MAX, 256)).is_err());
    let short = VhostUserInflight::new(1 << 30, 0, 4, 256);
    assert!(device.set_inflight_fd(&short, memory()).is_err());
}
