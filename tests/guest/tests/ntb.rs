//! The kernel's NTB drivers on devices of ours.

use mqnet_guest::{Guest, Kernel};

use crate::there;

/// True when guests with NTB drivers can be started; else the test is skipped.
#[track_caller]
fn there_with_ntb() -> bool {
    there(Kernel::V7_3)
        && match mqnet_guest::ntb::prepare() {
            Ok(()) => true,
            Err(e) => mqnet_testkit::skip(&format!("the kernel's NTB drivers: {e}")),
        }
}

const LOAD: &str = "
cd /ntb
for module in ntb ntb_hw_epf ntb_transport ntb_tool; do insmod $module.ko || exit 1; done
lsmod
";

// Goal: the modules that are built of the kernel's source load into Debian's kernel.
#[test]
fn modules_load() {
    if !there_with_ntb() {
        return;
    }
    let guest = Guest::new(Kernel::V7_3, "ntb-modules").bare().with_ntb().memory(512);
    let outcome = guest.script("load", LOAD).run().unwrap();
    let output = &outcome.passed("load").unwrap().output;
    assert!(output.contains("ntb_transport"), "{output}");
}
