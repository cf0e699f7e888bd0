//! Runs the suite on every backend.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mqnet_af_xdp::RequestedMode;
use mqnet_conformance::setups::{Bridge, Hardware, Loopbacks, Setup, Virtio};
use mqnet_conformance::{Rig, rigs, suite};
use mqnet_group::OnLoss;
use mqnet_shmem::{Preference, prefer};
use mqnet_tap::Io;

/// Lock that serializes the tests: the suite counts descriptors of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a new network namespace and returns the methods of writing to a TAP; `None` without root.
/// The lock is necessary because other tests count descriptors, and namespaces and TAPs open some.
fn own_network() -> Option<Vec<Io>> {
    let _alone = alone();
    rigs::own_network().then(rigs::ways)
}

/// Runs the suite. Returns true if the RX queue can detach frames with their memory.
fn whole_suite(make: &mut dyn FnMut() -> Rig) -> bool {
    let _alone = alone();
    suite::whole(make)
}

// Goal: the loopback device keeps the contract.
#[test]
fn loopback() {
    assert!(!whole_suite(&mut rigs::loopback));
}

// Goal: the bridge keeps the contract with its default window. The contract also holds with a
// window for barely more than one large frame, where every burst wraps or is partial.
#[test]
fn ntb() {
    assert!(!whole_suite(&mut || rigs::ntb(2 << 20)));
    assert!(!whole_suite(&mut || rigs::ntb(80 << 10)));
}

// Goal: the protocol of `ntb_transport` keeps the contract with the default slot size, with few
// slots of the smallest usable size, and with unaligned slots.
#[test]
fn ntb_transport() {
    for (window, slot) in [(2 << 20, 65_536), (10 << 10, 1600), (64 << 10, 1601)] {
        assert!(!whole_suite(&mut || rigs::ntb_transport(window, slot)));
    }
}

/// Runs the suite on a channel of a setup, from end `from`. Returns true if the RX queue can detach
/// frames.
fn of_setup<S: Setup + 'static>(make: impl Fn() -> S, from: usize, channel: usize) -> bool {
    whole_suite(&mut || rigs::of_setup(Box::new(make()), from, channel))
}

// Goal: a bridge over ivshmem keeps the contract.
#[test]
fn ivshmem() {
    assert!(!of_setup(|| Bridge::new(Hardware::Ivshmem, 512 << 10), 0, 0));
}

// Goal: the virtio device and the virtio driver keep the contract with each other. The runs cover
// split and packed rings, a control queue or none, and mergeable buffers or buffers for whole
// frames. The driver can detach frames with their memory.
#[test]
fn virtio() {
    for packed in [false, true] {
        for (ctrl, rich) in [(false, true), (true, false)] {
            assert!(of_setup(|| Virtio::new(packed, ctrl, rich), 0, 0), "to the driver");
            assert!(!of_setup(|| Virtio::new(packed, ctrl, rich), 1, 0), "to the device");
        }
    }
}

// Goal: channels of a group keep the contract on each member, with either reaction to a lost
// member.
#[test]
fn groups() {
    for on_loss in [OnLoss::Destroy, OnLoss::Degrade] {
        for channel in [0, 1] {
            assert!(!of_setup(|| Loopbacks::Group(on_loss), 0, channel));
            assert!(!of_setup(|| Bridge::groups(Hardware::Memfd, on_loss), 0, channel));
        }
    }
}

// Goal: a port keeps the contract in both directions.
#[test]
fn port() {
    assert!(!whole_suite(&mut rigs::to_program));
    assert!(!whole_suite(&mut rigs::from_program));
}

// Goal: the bridge keeps the contract with non-temporal stores for every frame.
#[test]
fn ntb_streamed() {
    let streamed = |make: &dyn Fn() -> Rig| {
        // The preference applies to queues created between these calls. No other test creates
        // queues at the same time, because this test holds the lock.
        prefer(Preference::Streamed);
        let rig = make();
        prefer(Preference::Auto);
        rig
    };
    for window in [2 << 20, 80 << 10] {
        assert!(!whole_suite(&mut || streamed(&|| rigs::ntb(window))));
    }
    for (window, slot) in [(2 << 20, 65_536), (64 << 10, 1601)] {
        assert!(!whole_suite(&mut || streamed(&|| rigs::ntb_transport(window, slot))));
    }
}

// Goal: a TAP of the kernel keeps the contract with every write method.
#[test]
fn tap() {
    for io in own_network().unwrap_or_default() {
        assert!(!whole_suite(&mut || rigs::taps_written(io)));
    }
}

// Goal: an AF_XDP interface keeps the contract in native and generic mode, and can detach frames
// with their memory.
#[test]
fn af_xdp() {
    if own_network().is_some() {
        for mode in [RequestedMode::Native, RequestedMode::Generic] {
            assert!(whole_suite(&mut || rigs::nics(mode)));
        }
    }
}
