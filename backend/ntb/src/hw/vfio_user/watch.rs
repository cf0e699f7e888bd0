//! Notification of writes to registers and scratchpads, which are plain memory for the guest.
//!
//! A thread compares the memory every few milliseconds and rings an event after a change. A poll of
//! the control thread costs a hundred times more.

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

/// Pause between two comparisons, shortly after a change and long after it.
const PAUSE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(8)];

/// Memory that is compared.
pub(super) struct Watched {
    /// The command register.
    pub(super) command: (AtomicTable, u32),
    /// The scratchpads that the driver writes.
    pub(super) spads: (AtomicTable, u32),
}

impl Watched {
    /// A number that differs after each change, save for coincidences.
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

/// A thread that compares until it is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Rings `changed` after each change of `watched` from now on.
    pub(super) fn start(watched: Watched, changed: Arc<EventFd>) -> io::Result<Self> {
        let stop = Arc::new(EventFd::new()?);
        let thread = std::thread::Builder::new().name("mqnet-doorbells".to_owned());
        let run = {
            let stop = stop.clone();
            move || {
                if let Err(e) = process::restrict_thread(&[]) {
                    tracing::warn!("ntb: a thread keeps its privileges: {e}");
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
            // An eventfd of our own: a full counter counts as rung.
            let _ = changed.ring();
        } else {
            pause = (pause * 2).min(PAUSE[1]);
        }
        let waited = poll::wait_readable(&[stop.as_fd()], pause);
        if waited.is_err() || poll::is_readable(stop.as_fd()).unwrap_or(true) {
            return;
        }
    }
}
