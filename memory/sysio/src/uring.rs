//! Many vectored writes in one system call: an io_uring ring that submits a chain of writes and
//! waits for the end of the chain in the same call. No write is pending when a call returns.
//!
//! The writes are linked, so the kernel executes them in order and stops after a failure. The
//! writes must also not block (`RWF_NOWAIT`). Without that flag a blocking write does not fail but
//! stays in the ring until there is space, even on an `O_NONBLOCK` descriptor. The driver of the
//! descriptor must therefore support the flag ([`supports`]).
//!
//! Rejected: registered files, which are slightly faster. A kernel thread destroys a ring some time
//! after its descriptor is closed, and a TAP queue registered in the ring would exist until then.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::Fd;
use io_uring::{EnterFlags, IoUring, opcode, squeue};

use crate::descriptors::explained;
use crate::vectored::RawRange;

/// Maximum number of writes per call.
pub const WRITES_MAX: usize = 64;

/// Maximum number of failed waits for accepted writes. Writes that are still pending after this
/// limit never execute, because they need a further wait of this thread.
const WAIT_TRIES: u32 = 100;

/// Ring for writes. The ring belongs to the thread of the first write; on other threads writes
/// fail.
pub struct WriteRing {
    ring: IoUring,
    enabled: bool,
}

/// Result of a chain of writes.
#[derive(Debug)]
pub struct Written {
    /// Number of completed writes, counted from the first; the last write may be partial.
    pub writes: usize,
    /// Number of system calls.
    pub calls: u64,
    /// Error after which the ring is unusable. No write is pending, unless [`WAIT_TRIES`] waits
    /// failed.
    pub broken: Option<io::Error>,
}

impl WriteRing {
    /// Creates a ring (Linux 6.1). `kernel.io_uring_disabled` and seccomp filters can forbid it.
    pub fn new() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        // Disabled until the writing thread enables the ring and becomes its single issuer.
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun().dontfork();
        Ok(Self { ring: builder.build(WRITES_MAX as u32).map_err(explained)?, enabled: false })
    }

    /// Executes up to [`WRITES_MAX`] writes in order, each from its ranges, up to the first
    /// failure. To get its error, the caller repeats the failed write separately.
    ///
    /// # Safety
    /// Every range must be readable for the duration of the call.
    pub unsafe fn write_each<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        writes: impl ExactSizeIterator<Item = &'a [RawRange]>,
    ) -> Written {
        let count = writes.len().min(WRITES_MAX);
        let mut done = Written { writes: 0, calls: 0, broken: None };
        if let Err(e) = self.enable(&mut done.calls) {
            return Written { broken: Some(e), ..done };
        }
        let mut queue = self.ring.submission();
        for (i, ranges) in writes.take(count).enumerate() {
            let write = opcode::Writev::new(
                Fd(fd.as_raw_fd()),
                ranges.as_ptr().cast(),
                ranges.len() as u32,
            );
            let linked =
                if i + 1 < count { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
            let write = write.rw_flags(libc::RWF_NOWAIT).build().flags(linked);
            // SAFETY: RawRange is a transparent iovec. The ranges outlive the call, and `finish`
            // waits for every write that the kernel accepted. The queue has space: each call
            // empties it or breaks the ring.
            if unsafe { queue.push(&write) }.is_err() {
                debug_assert!(false, "the queue was not empty");
                break;
            }
        }
        drop(queue);
        self.finish(count, done)
    }

    fn enable(&mut self, calls: &mut u64) -> io::Result<()> {
        if !self.enabled {
            *calls += 1;
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// Submits the chain and waits for its end.
    fn finish(&mut self, count: usize, mut done: Written) -> Written {
        done.calls += 1;
        let taken = match self.ring.submit_and_wait(count) {
            Ok(taken) => taken,
            Err(e) => {
                done.broken = Some(e);
                0
            }
        };
        // Wait again: a signal ends the wait early, and so does a kernel that accepts only some of
        // the writes.
        self.wait_for(taken, &mut done, |ring, wanted| {
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: nothing is submitted, and no argument is passed.
            unsafe { ring.submitter().enter::<()>(0, wanted, flags, None) }
        });
        if taken < count && done.broken.is_none() {
            // Give up the ring: the other writes are still in its queue, and must not execute
            // later.
            done.broken = Some(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        done
    }

    /// Waits for all `taken` writes. A failed wait makes the ring unusable and is repeated, because
    /// the caller reuses the memory of the writes.
    fn wait_for(
        &mut self,
        taken: usize,
        done: &mut Written,
        mut wait: impl FnMut(&IoUring, u32) -> io::Result<usize>,
    ) {
        let mut ended = self.reap(&mut done.writes);
        let mut failed = 0;
        while ended < taken && failed < WAIT_TRIES {
            done.calls += 1;
            match wait(&self.ring, (taken - ended) as u32) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                    (done.broken, failed) = (Some(e), failed + 1);
                }
                _ => {}
            }
            ended += self.reap(&mut done.writes);
        }
    }

    /// Reaps completions. Adds the number of successful writes to `writes`, and returns the number
    /// of all completions. A chain completes in order, and no write follows a failure.
    fn reap(&mut self, writes: &mut usize) -> usize {
        let mut ended = 0;
        for end in self.ring.completion() {
            ended += 1;
            *writes += usize::from(end.result() >= 0);
        }
        ended
    }
}

/// Checks that frames can be written to a TAP queue through a ring. The error names the missing
/// feature. The check writes less than a frame. The driver always rejects such a write, and counts
/// nothing.
pub fn supports(fd: BorrowedFd<'_>) -> io::Result<()> {
    let byte = 0u8;
    let range = RawRange::new((&raw const byte).cast_mut(), 1);
    // SAFETY: one readable byte; an offset of -1 selects the descriptor's current position.
    let n = unsafe {
        libc::pwritev2(fd.as_raw_fd(), (&raw const range).cast(), 1, -1, libc::RWF_NOWAIT)
    };
    let refused = io::Error::last_os_error();
    match refused.raw_os_error() {
        _ if n >= 0 => Err(io::Error::other("not a TAP queue with a virtio_net_hdr")),
        Some(libc::EINVAL) => WriteRing::new().map(drop),
        _ => Err(refused),
    }
}

#[cfg(test)]
mod tests;
