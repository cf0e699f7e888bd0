//! The suite on every backend.

use std::sync::Mutex;

use mqnet_af_xdp::ModeWish;
use mqnet_conformance::{Rig, rigs, suite};

/// One backend at a time: the suite counts the process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

fn whole_suite(make: &mut dyn FnMut() -> Rig) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    suite::frames_arrive_in_order(&mut make());
    suite::partial_bursts_lose_nothing(&mut make());
    suite::full_is_an_outcome(&mut make());
    suite::an_armed_queue_is_woken(&mut make());
    suite::a_stopped_queue_is_woken(&mut make());
    suite::all_is_enough(&mut make());
    suite::counters_add_up(&mut make());
    suite::closing_returns_everything(make);
}

// Goal: the device without an operating system keeps the contract.
#[test]
fn loopback() {
    whole_suite(&mut rigs::loopback);
}

// Goal: the bridge keeps the contract with its default window, and with one that holds barely more
// than one large frame, so that every burst wraps or is partial.
#[test]
fn ntb() {
    whole_suite(&mut || rigs::ntb(2 << 20));
    whole_suite(&mut || rigs::ntb(80 << 10));
}

// Goal: a TAP keeps the contract, with a real kernel behind it, however frames are written to it.
#[test]
fn tap() {
    if rigs::own_network() {
        for io in rigs::ways() {
            whole_suite(&mut || rigs::taps_written(io));
        }
    }
}

// Goal: an interface that was taken over keeps the contract, in the driver and in the stack.
#[test]
fn af_xdp() {
    if rigs::own_network() {
        for mode in [ModeWish::Native, ModeWish::Generic] {
            whole_suite(&mut || rigs::nics(mode));
        }
    }
}
