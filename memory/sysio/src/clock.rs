//! Clocks. Only workers, the control thread and tools read them. Other code takes the time as an
//! argument (except `Stores` in `mqnet_shmem`, which measures time).

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the Unix epoch, by the system clock.
pub fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Time since an arbitrary fixed point (`CLOCK_MONOTONIC`), with nanosecond resolution.
#[inline]
pub fn monotonic() -> Duration {
    // CLOCK_MONOTONIC cannot fail on Linux; a zero would only delay a timeout.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// CPU time of the process so far (user and system).
pub fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
