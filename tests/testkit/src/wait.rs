//! Waiting for conditions.

use std::time::{Duration, Instant};

/// After this time a condition is taken never to come. Far beyond what anything takes, also on a
/// machine that is busy with something else.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `look` finds what the test waits for.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(LOOK);
    }
}
