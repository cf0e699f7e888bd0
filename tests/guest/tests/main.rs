//! mqnet on kernels other than the host's.

mod af_xdp;
mod backpressure;
mod boot;
mod five;
mod ivshmem;
mod near;
mod ntb;
mod numa;
mod passt;
mod tunnel;
mod vduse;
mod virtio;

use mqnet_guest::Kernel;

/// Returns true when a guest with this kernel can be started; otherwise the test is skipped.
#[track_caller]
fn there(kernel: Kernel) -> bool {
    match mqnet_guest::prepare(kernel) {
        Ok(()) => true,
        Err(e) => mqnet_testkit::skip(&format!("a guest with kernel {kernel}: {e}")),
    }
}

/// Same as [`there`], for a guest with the kernel's own tests and their Python.
#[track_caller]
fn there_with_tests(kernel: Kernel) -> bool {
    there(kernel)
        && match mqnet_guest::five::prepare() {
            Ok(()) => true,
            Err(e) => mqnet_testkit::skip(&format!("the kernel's own tests: {e}")),
        }
}
