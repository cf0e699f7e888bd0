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

/// True if a guest with this kernel can be started; otherwise skips the test and returns false.
#[track_caller]
fn there(kernel: Kernel) -> bool {
    match mqnet_guest::prepare(kernel) {
        Ok(()) => true,
        Err(e) => mqnet_testkit::skip(&format!("a guest with kernel {kernel}: {e}")),
    }
}

/// True if a guest with this kernel and the kernel's tests can be started; otherwise skips the test
/// and returns false.
#[track_caller]
fn there_with_tests(kernel: Kernel) -> bool {
    there(kernel)
        && match mqnet_guest::five::prepare() {
            Ok(()) => true,
            Err(e) => mqnet_testkit::skip(&format!("the kernel's own tests: {e}")),
        }
}
