//! Signalling of an eventfd without blocking.
//!
//! A `write` to an eventfd blocks while the counter is full and `O_NONBLOCK` is clear. Flag and
//! counter belong to the open file description. A peer that holds the eventfd therefore controls
//! both, and a check before the write races with the peer. Instead, a completion of Linux AIO
//! signals the eventfd within the kernel. A full counter saturates, and the caller never blocks
//! (`io_submit(2)`, `IOCB_FLAG_RESFD`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::memory;

/// Completions that the context holds until they are reaped.
const COMPLETIONS: usize = 128;
/// Maximum number of submissions per signal, if the context is full.
const ATTEMPTS: usize = 64;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    /// `aio_key` and `aio_rw_flags`, in an order that depends on the byte order; both are zero.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64);
const _: () = assert!(size_of::<IoEvent>() == 32);

/// AIO context of the process, with the file for its reads of zero bytes.
struct Context {
    id: usize,
    file: OwnedFd,
}

impl Context {
    /// Creates the context. Returns `None` if the kernel or a sandbox offers no AIO, or if
    /// `fs.aio-max-nr` is exhausted.
    fn new() -> Option<Self> {
        let mut id = 0_usize;
        // SAFETY: the kernel writes the context's id, one word, to `id`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, COMPLETIONS, &raw mut id) };
        if made != 0 {
            return None;
        }
        let file = memory::memory_file("signal", 1, false);
        if file.is_err() {
            // SAFETY: this function owns the context, which has no requests.
            unsafe { libc::syscall(libc::SYS_io_destroy, id) };
        }
        Some(Self { id, file: file.ok()? })
    }

    /// Submits a read of zero bytes; its completion adds one to `event`.
    fn signal(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut request = Iocb {
            opcode: IOCB_CMD_PREAD,
            fd: self.file.as_raw_fd().cast_unsigned(),
            flags: IOCB_FLAG_RESFD,
            result_fd: event.as_raw_fd().cast_unsigned(),
            ..Iocb::default()
        };
        for _ in 0..ATTEMPTS {
            let mut list = [&raw mut request];
            // SAFETY: the list has one pointer to a request that outlives the call. The request
            // reads zero bytes of a memory file, which the kernel completes within the call.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, list.as_mut_ptr()) };
            if taken == 1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
            self.reap();
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// Discards the completions of earlier signals.
    fn reap(&self) {
        let mut events = [IoEvent::default(); COMPLETIONS];
        let mut no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most `COMPLETIONS` events to the array, and reads the time.
        unsafe {
            let to = events.as_mut_ptr();
            let (id, most) = (self.id, COMPLETIONS);
            libc::syscall(libc::SYS_io_getevents, id, 0_usize, most, to, &raw mut no_wait);
        }
    }
}

/// Adds one to the eventfd `event` without blocking. Returns `None` if the system offers no way to
/// do that.
///
/// Fails with `EINVAL` for a descriptor that is not an eventfd.
pub(super) fn signal(event: BorrowedFd<'_>) -> Option<io::Result<()>> {
    context().map(|context| context.signal(event))
}

/// Returns the context of the process, created by the first call. A failure, such as a lack of
/// descriptors, may be temporary, so the next call retries.
fn context() -> Option<&'static Context> {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    static CREATION: Mutex<()> = Mutex::new(());
    if let Some(context) = CONTEXT.get() {
        return Some(context);
    }
    let _one_at_a_time = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    if CONTEXT.get().is_none() {
        let _ = CONTEXT.set(Context::new()?);
    }
    CONTEXT.get()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    /// A full eventfd without `O_NONBLOCK` neither blocks nor fails a signal: the counter
    /// saturates.
    #[test]
    fn full_blocking_counter_saturates() {
        let event = EventFd::from_value_and_flags(0, EfdFlags::empty()).unwrap();
        event.write(u64::MAX - 1).unwrap();
        for _ in 0..3 {
            signal(event.as_fd()).unwrap().unwrap();
        }
        assert_eq!(event.read().unwrap(), u64::MAX);
    }

    /// More signals than the context holds all arrive, from several threads concurrently.
    #[test]
    fn every_signal_counts() {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let each = 10 * COMPLETIONS as u64;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..each).for_each(|_| signal(event.as_fd()).unwrap().unwrap()));
            }
        });
        assert_eq!(event.read().unwrap(), 4 * each);
    }

    /// A descriptor that is not an eventfd is rejected.
    #[test]
    fn other_descriptors_are_refused() {
        let (read, write) = nix::unistd::pipe().unwrap();
        for pipe in [&read, &write] {
            let refused = signal(pipe.as_fd()).unwrap().unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
