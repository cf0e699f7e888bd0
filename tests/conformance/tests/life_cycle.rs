//! Life cycle of every backend's function: random calls in any order that the contract allows, with
//! injected failures.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mqnet_af_xdp::RequestedMode;
use mqnet_conformance::lifecycle::{Seen, live};
use mqnet_conformance::rigs;
use mqnet_conformance::setups::{
    Bridge, Hardware, Loopbacks, Nics, Nothing, Ports, Setup, Taps, Virtio,
};
use mqnet_group::OnLoss;
use mqnet_tap::Io;

/// Lock that serializes the tests, because they count and limit the descriptors of the whole
/// process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one life cycle for each seed; returns the sums of the counts.
fn lives<S: Setup + 'static>(make: impl Fn() -> S, seeds: u64, steps: u32) -> Seen {
    let mut all = Seen::default();
    for seed in 1..=seeds {
        let seen = live(&mut || Box::new(make()), seed, steps);
        all.failures += seen.failures;
        all.changes += seen.changes;
    }
    println!("{}: {all:?}", make().name());
    all
}

/// Runs life cycles of a backend. Some calls must fail, and some changes must be committed.
fn eventful<S: Setup + 'static>(make: impl Fn() -> S, seeds: u64, steps: u32) {
    let Seen { failures, changes } = lives(make, seeds, steps);
    assert!(failures > 0 && changes > 0, "{failures} failures, {changes} changes");
}

// Goal: loopback devices, null devices and ports keep the life cycle.
#[test]
fn loopback_null_and_port() {
    let _alone = alone();
    eventful(|| Loopbacks::One, 20, 100);
    eventful(|| Nothing, 20, 100);
    eventful(Ports::default, 20, 100);
}

// Goal: bridges over memory files and over ivshmem keep the life cycle.
#[test]
fn bridges() {
    let _alone = alone();
    eventful(|| Bridge::new(Hardware::Memfd, 2 << 20), 10, 80);
    eventful(|| Bridge::new(Hardware::Ivshmem, 2 << 20), 5, 60);
}

// Goal: groups keep the life cycle, with bridges and without.
#[test]
fn groups() {
    let _alone = alone();
    for on_loss in [OnLoss::Destroy, OnLoss::Degrade] {
        eventful(|| Loopbacks::Group(on_loss), 10, 80);
        eventful(|| Bridge::groups(Hardware::Memfd, on_loss), 5, 60);
        eventful(|| Bridge::groups(Hardware::Ivshmem, on_loss), 2, 50);
    }
}

// Goal: the virtio device and driver keep the life cycle with each other as peer.
#[test]
fn virtio() {
    let _alone = alone();
    for packed in [false, true] {
        for (ctrl, rich) in [(false, true), (true, true), (true, false)] {
            eventful(|| Virtio::new(packed, ctrl, rich), 3, 80);
        }
    }
    eventful(|| Virtio::new(true, true, true).reversed(), 3, 80);
}

// Goal: TAPs keep the life cycle.
#[test]
fn tap() {
    let _alone = alone();
    if rigs::own_network() {
        for steering in [true, false] {
            eventful(|| Taps::new(Io::Auto, steering), 3, 50);
        }
    }
}

// Goal: AF_XDP interfaces keep the life cycle.
#[test]
fn af_xdp() {
    let _alone = alone();
    if rigs::own_network() {
        for mode in [RequestedMode::Native, RequestedMode::Generic] {
            eventful(|| Nics::new(mode), 3, 50);
        }
    }
}
