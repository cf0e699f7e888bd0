//! mqnet on kernels that the host does not run. Tests share guests: a boot takes seconds.

mod af_xdp;
mod backpressure;
mod boot;
mod five;
mod ivshmem;
mod near;
mod numa;
mod tunnel;
mod vduse;
mod virtio;

use std::sync::OnceLock;
use std::time::Duration;

use mqnet_guest::bench::{self, Settings};
use mqnet_guest::{Guest, Kernel, Outcome};

/// A tunnel for a moment: that it works, not how well.
const SMOKE: Settings =
    Settings { rate: 40, delay: 30, ring: 100, room: 65_536, rounds: 1, seconds: 4 };

const FLOOD: &str =
    concat!("SENDERS='1 2 4' SECONDS_EACH=3\n", include_str!("../scripts/flood.sh"));

/// Names of the scripts in every guest.
const HELLO: &str = "a-hello";

/// What a test guest left, or why there is none. The first to ask waits for it.
#[track_caller]
fn outcome(kernel: Kernel) -> Option<&'static Outcome> {
    static OLD: OnceLock<Result<Outcome, String>> = OnceLock::new();
    static NEW: OnceLock<Result<Outcome, String>> = OnceLock::new();
    if !there(kernel) {
        return None;
    }
    let slot = if kernel == Kernel::V7_3 { &NEW } else { &OLD };
    let outcome = slot.get_or_init(|| run(kernel).map_err(|e| e.to_string()));
    Some(outcome.as_ref().unwrap_or_else(|e| panic!("guest {kernel}: {e}")))
}

/// True when a guest with this kernel can be started; else the test is skipped.
#[track_caller]
fn there(kernel: Kernel) -> bool {
    match mqnet_guest::prepare(kernel) {
        Ok(()) => true,
        Err(e) => mqnet_testkit::skip(&format!("a guest with kernel {kernel}: {e}")),
    }
}

/// The same of one that has the kernel's own tests, and the Python that comes with them.
#[track_caller]
fn there_with_tests(kernel: Kernel) -> bool {
    there(kernel)
        && match mqnet_guest::five::prepare() {
            Ok(()) => true,
            Err(e) => mqnet_testkit::skip(&format!("the kernel's own tests: {e}")),
        }
}

fn run(kernel: Kernel) -> mqnet_guest::Result<Outcome> {
    mqnet_guest::build()?;
    let hello = "uname -r; cat /files/greeting; echo from the guest > $RESULTS/reply; exit 7";
    let mut guest = Guest::new(kernel, &format!("test-{kernel}"))
        .limit(Duration::from_secs(300))
        .file("files/greeting", "hello\n")
        .script(HELLO, hello)
        .script("flood", FLOOD);
    if kernel == Kernel::V7_3 {
        guest = bench::with_tunnel(guest, &SMOKE);
    }
    let outcome = guest.run()?;
    println!(
        "guest {kernel}: {} booted after {:.1} s, ended after {:.1} s",
        outcome.release,
        outcome.booted_after,
        outcome.wall.as_secs_f64()
    );
    Ok(outcome)
}
