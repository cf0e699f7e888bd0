//! Notification of writes to registers and scratchpads, which are plain memory for the guest.
//!
//! A thread compares the memory every few milliseconds and signals an event after a change. The
//! control thread would need much more time for as many polls.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_shmem::AtomicTable;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{poll, process};

use super::layout::SPADS;

/// Pauses between two comparisons: the shortest, after a change, and the longest. Both are far
/// below the driver's timeout for a command of 1 s.
const PAUSE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(32)];

/// Memory that the watcher compares.
pub(super) struct Watched {
    /// Command register.
    pub(super) command: (AtomicTable, u32),
    /// Scratchpads that the driver writes.
    pub(super) spads: (AtomicTable, u32),
}

impl Watched {
    /// Hash of the watched memory.
    fn mark(&self) -> u64 {
        let word = |(table, at): &(AtomicTable, u32), offset| {
            table.word(at + offset).load(Ordering::Acquire)
        };
        let pads = (0..SPADS as u32).map(|pad| word(&self.spads, 4 * pad));
        let values = pads.chain([word(&self.command, 0)]);
        values.fold(0xcbf2_9ce4_8422_2325, |mark, value| {
            (mark ^ u64::from(value)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

/// Thread that compares the memory until this handle is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts a thread that signals `changed` at its start and after each change of `watched`.
    pub(super) fn start(watched: Watched, changed: Arc<EventFd>) -> io::Result<Self> {
        let stop = Arc::new(EventFd::new()?);
        let thread = std::thread::Builder::new().name("mqnet-doorbells".to_owned());
        let run = {
            let stop = stop.clone();
            move || {
                if let Err(e) = process::restrict_thread(&[]) {
                    tracing::warn!("ntb: a thread could not drop its privileges: {e}");
                }
                run(&watched, &changed, &stop);
            }
        };
        let thread = Some(thread.spawn(run)?);
        Ok(Self { stop, thread })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let stopped = self.stop.ring();
        if let (Some(thread), Ok(())) = (self.thread.take(), stopped) {
            let _ = thread.join();
        }
    }
}

fn run(watched: &Watched, changed: &EventFd, stop: &EventFd) {
    let mut seen = None;
    let mut pause = PAUSE[0];
    loop {
        let mark = Some(watched.mark());
        if mark != seen {
            (seen, pause) = (mark, PAUSE[0]);
            // Ignore an error: an eventfd with a full counter is readable anyway.
            let _ = changed.ring();
        } else {
            pause = (pause * 2).min(PAUSE[1]);
        }
        if poll::is_readable_within(stop.as_fd(), pause).unwrap_or(true) {
            return;
        }
    }
}
