//! The kernel's implementation of the five systems as reference.

use mqnet_guest::{Kernel, five};

use crate::there_with_tests;

/// Minimum number of equal answers.
const ALIKE: usize = 20;

// Goal: on kernel 7.3, the kernel's implementation and mqnet answer the same requests equally,
// except for the differences in book/src/explanation/five-systems.md. Each documented difference
// still exists.
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

fn kernel_tests(place: &str) {
    if !there_with_tests(Kernel::V7_3) {
        return;
    }
    mqnet_guest::build().unwrap();
    let tests = five::kernel_tests(&format!("test-{}", place.replace('/', "-")), place).unwrap();
    println!("{}", tests.table());
    let complaints = tests.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

// Goal: the kernel's driver tests have the results in book/src/explanation/five-systems.md, on
// VDUSE and on virtio-net with several queues.
#[test]
fn the_tests_of_drivers_end_as_explained() {
    kernel_tests("drivers/net");
}

// Goal: the kernel's tests in `net/forwarding` have the results in
// book/src/explanation/five-systems.md.
#[test]
fn the_tests_of_forwarding_end_as_explained() {
    kernel_tests("net/forwarding");
}
