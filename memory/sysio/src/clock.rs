//! The monotonic clock. Only workers, the control thread and tools read it; everything below
//! them takes time as an argument (but for `mqnet_shmem`'s stores, which time themselves).

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the Unix epoch, as the system's wall clock has it.
pub fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Time since an arbitrary fixed point (`CLOCK_MONOTONIC`), nanosecond resolution.
#[inline]
pub fn monotonic() -> Duration {
    // CLOCK_MONOTONIC cannot fail on Linux; a zero would only delay a time-out.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// CPU time used by the calling process so far (user + system).
pub fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
