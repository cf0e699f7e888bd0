//! The kernel's own implementation of the five systems as reference.

use mqnet_guest::{Kernel, five};

use crate::there_with_tests;

/// Questions that are answered exactly alike.
const ALIKE: usize = 20;

// Goal: on kernel 7.3, asked the same, the kernel's own implementation and ours answer alike, but
// for the differences that docs/five-systems.md explains, all of which are still there.
#[test]
fn every_difference_from_the_kernel_is_explained() {
    if !there_with_tests(Kernel::V7_3) {
        return;
    }
    mqnet_guest::build().unwrap();
    let report = five::run("test-five").unwrap();
    println!("{}", report.table());
    let complaints = report.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let (all, same) = report.counts();
    assert!(same >= ALIKE, "only {same} of {all} answered alike: are both there?");
}

// Goal: the kernel's own network tests, its drivers' and those of its bridges, routers and filters,
// end on VDUSE's netdevs and on virtio-net's with several queues as docs/five-systems.md says.
#[test]
fn the_tests_of_the_kernel_end_as_explained() {
    if !there_with_tests(Kernel::V7_3) {
        return;
    }
    mqnet_guest::build().unwrap();
    let tests = five::kernel_tests("test-selftests").unwrap();
    println!("{}", tests.table());
    let complaints = tests.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
