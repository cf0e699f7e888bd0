//! Waiting for conditions.

use std::path::Path;
use std::time::{Duration, Instant};

/// After this time a condition is taken never to come. Far beyond what anything takes, also on a
/// machine that is busy with something else.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A file that has not grown for so long has all that there is.
const STILL: Duration = Duration::from_secs(1);

/// Waits until `look` finds what the test waits for.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, look)
}

/// The same for what may rightly take longer than [`DEADLINE`].
#[track_caller]
pub fn until_within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Waits until a file has something in it and grows no more: what writes it comes to its CPU late
/// on a busy machine.
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
