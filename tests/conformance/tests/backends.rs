//! The suite on every backend.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mqnet_af_xdp::ModeWish;
use mqnet_conformance::setups::{Bridge, Hardware, Loopbacks, Setup, Virtio};
use mqnet_conformance::{Rig, rigs, suite};
use mqnet_group::OnLoss;
use mqnet_shmem::{Preference, prefer};
use mqnet_tap::Io;

/// One backend at a time: the suite counts the process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`rigs::own_network`], which opens files, as do the ways of a TAP.
fn own_network() -> Option<Vec<Io>> {
    let _alone = alone();
    rigs::own_network().then(rigs::ways)
}

/// True when frames can leave the backend's RX queue with their memory.
fn whole_suite(make: &mut dyn FnMut() -> Rig) -> bool {
    let _alone = alone();
    suite::whole(make)
}

// Goal: the device without an operating system keeps the contract.
#[test]
fn loopback() {
    assert!(!whole_suite(&mut rigs::loopback));
}

// Goal: the bridge keeps the contract with its default window, and with one that holds barely more
// than one large frame, so that every burst wraps or is partial.
#[test]
fn ntb() {
    assert!(!whole_suite(&mut || rigs::ntb(2 << 20)));
    assert!(!whole_suite(&mut || rigs::ntb(80 << 10)));
}

// Goal: slots of the kernel's protocol keep the contract: with its slot size, with few slots of the
// smallest size that a link needs, and with slots at odd bytes.
#[test]
fn ntb_transport() {
    for (window, slot) in [(2 << 20, 65_536), (10 << 10, 1600), (64 << 10, 1601)] {
        assert!(!whole_suite(&mut || rigs::ntb_transport(window, slot)));
    }
}

/// The suite on a channel of a setup, in the direction from the end `from`.
fn of_setup<S: Setup + 'static>(make: impl Fn() -> S, from: usize, channel: usize) -> bool {
    whole_suite(&mut || rigs::of_setup(Box::new(make()), from, channel))
}

// Goal: the same over the memory of an ivshmem server.
#[test]
fn ivshmem() {
    assert!(!of_setup(|| Bridge::new(Hardware::Ivshmem, 512 << 10), 0, 0));
}

// Goal: a guest's device and the driver of a device keep the contract, each with the other as its
// peer: on split and packed rings, with a control queue and without, with mergeable buffers and
// buffers for whole frames. Frames can leave the driver with their memory.
#[test]
fn virtio() {
    for packed in [false, true] {
        for (ctrl, rich) in [(false, true), (true, false)] {
            assert!(of_setup(|| Virtio::new(packed, ctrl, rich), 0, 0), "to the driver");
            assert!(!of_setup(|| Virtio::new(packed, ctrl, rich), 1, 0), "to the device");
        }
    }
}

// Goal: channels of a group keep the contract, on each of its members, whether it can lose members
// or not.
#[test]
fn groups() {
    for on_loss in [OnLoss::Destroy, OnLoss::Degrade] {
        for channel in [0, 1] {
            assert!(!of_setup(|| Loopbacks::Group(on_loss), 0, channel));
            assert!(!of_setup(|| Bridge::groups(Hardware::Memfd, on_loss), 0, channel));
        }
    }
}

// Goal: a port keeps the contract, towards the program and from it.
#[test]
fn port() {
    assert!(!whole_suite(&mut rigs::to_program));
    assert!(!whole_suite(&mut rigs::from_program));
}

// Goal: the same where every frame is stored past the cache.
#[test]
fn ntb_streamed() {
    let streamed = |make: &dyn Fn() -> Rig| {
        // Of the queues that are made now; no other test makes any at the same time.
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

// Goal: a TAP keeps the contract, with a real kernel behind it, however frames are written to it.
#[test]
fn tap() {
    for io in own_network().unwrap_or_default() {
        assert!(!whole_suite(&mut || rigs::taps_written(io)));
    }
}

// Goal: an interface that was taken over keeps the contract, in the driver and in the stack, and
// frames can leave it with their memory.
#[test]
fn af_xdp() {
    if own_network().is_some() {
        for mode in [ModeWish::Native, ModeWish::Generic] {
            assert!(whole_suite(&mut || rigs::nics(mode)));
        }
    }
}
