//! Bounded waits for work that a peer, a client or a file system in user space can delay.
//!
//! Opening, examining and closing a file of such a file system blocks until its server answers, and
//! neither signals nor timeouts end the wait. The work therefore runs on a separate thread. A
//! thread that exceeds its limit is abandoned, and ends when the server answers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{clock, poll};

/// Maximum number of threads of the process that may be blocked in such work.
pub const BLOCKED_MAX: usize = 32;

/// Number of threads of the process that run bounded work now.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Share of one thread in [`BLOCKED_MAX`], released at drop.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let add = |n: usize| (n < BLOCKED_MAX).then_some(n + 1);
        BLOCKED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok().then(|| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        BLOCKED.fetch_sub(1, Ordering::Relaxed);
    }
}

fn too_many() -> io::Error {
    let why = format!(
        "{BLOCKED_MAX} threads are blocked by file systems that do not respond: end the programs \
         that serve them"
    );
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// Runs `work` on a separate thread and returns its result, or `TimedOut` after `limit`. After a
/// timeout the thread continues, and its result is dropped.
pub fn run<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let place = Place::take().ok_or_else(too_many)?;
    let (done, result) = mpsc::sync_channel(1);
    let body = move || {
        let result = work();
        drop(place);
        // The caller may have timed out.
        let _ = done.send(result);
    };
    let thread = std::thread::Builder::new().name("mqnet-bounded".to_owned()).spawn(body)?;
    match result.recv_timeout(limit) {
        Ok(result) => {
            // The thread has only its last instructions left. The join excludes it from later
            // thread counts.
            let _ = thread.join();
            Ok(result)
        }
        Err(RecvTimeoutError::Timeout) => {
            let why = format!("no answer within {} ms", limit.as_millis());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread panicked")),
    }
}

/// Waits at most `limit` until a thread ends. Returns false if the thread still runs; it is then
/// abandoned.
pub fn join(thread: JoinHandle<()>, limit: Duration) -> bool {
    let since = clock::monotonic();
    while !thread.is_finished() {
        if clock::monotonic().saturating_sub(since) > limit {
            return false;
        }
        poll::pause(Duration::from_millis(1));
    }
    // The panic hook has printed a panic already.
    let _ = thread.join();
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    /// Work that does not end delays the caller by its limit only, and blocks a bounded number of
    /// threads.
    #[test]
    fn blocked_work_costs_its_limit() {
        let (end, wait) = channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        assert_eq!(run(Duration::from_secs(9), || 7).unwrap(), 7);
        let blocked = || {
            let wait = wait.clone();
            run(Duration::from_millis(1), move || {
                wait.lock().map_or(true, |wait| wait.recv().is_ok())
            })
        };
        for _ in 0..BLOCKED_MAX {
            assert_eq!(blocked().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(blocked().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(end);
        while BLOCKED.load(Ordering::Relaxed) > 0 {
            poll::pause(Duration::from_millis(1));
        }
        assert_eq!(run(Duration::from_secs(9), || 7).unwrap(), 7);
    }

    /// A thread that does not end is abandoned, and one that ends is joined.
    #[test]
    fn joins_are_bounded() {
        let (end, wait) = channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().unwrap_or_default());
        assert!(!join(thread, Duration::from_millis(1)));
        drop(end);
        assert!(join(std::thread::spawn(|| ()), Duration::from_secs(9)));
    }
}
