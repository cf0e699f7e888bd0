//! The suite on every backend.

use std::sync::Mutex;

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

// Goal: a TAP keeps the contract, with a real kernel behind it.
#[test]
fn tap() {
    if rigs::own_network() {
        whole_suite(&mut rigs::taps);
    }
}
