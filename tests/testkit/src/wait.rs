//! Waiting for conditions.

use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which a condition counts as failed: much longer than any operation, even on a busy
/// machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(5);

/// Time without growth after which a file is considered complete.
const STILL: Duration = Duration::from_secs(1);

/// Waits until `attempt` returns a value; returns this value. Panics after [`DEADLINE`].
#[track_caller]
pub fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, attempt)
}

/// Waits like [`until`], for conditions that may take longer than [`DEADLINE`].
#[track_caller]
pub fn until_within<T>(
    deadline: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Waits until a file is not empty and no longer grows. The writer may be late on a busy machine,
/// so the file must not grow for `STILL`.
#[track_caller]
pub fn until_still(path: &Path) {
    let len = || std::fs::metadata(path).map_or(0, |file| file.len());
    let (mut last, mut since) = (len(), Instant::now());
    until("a file that grows no more", || {
        let now = len();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (now > 0 && since.elapsed() >= STILL).then_some(())
    });
}
