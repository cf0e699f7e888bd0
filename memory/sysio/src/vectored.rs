//! Vectored reads and writes on raw ranges, which move payload directly between a descriptor and
//! another queue's memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Memory range for a vectored call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct RawRange(libc::iovec);

const _: () = assert!(size_of::<RawRange>() == 16);

impl RawRange {
    /// Creates a range of `len` bytes at `ptr`.
    #[inline]
    pub fn new(ptr: *mut u8, len: usize) -> Self {
        Self(libc::iovec { iov_base: ptr.cast(), iov_len: len })
    }

    /// Start of the range.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// True if the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// Empty range.
    pub const EMPTY: Self = Self(libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
}

#[inline]
fn count(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Executes `readv`, which fills the ranges in order.
///
/// # Safety
/// Every range must be writable for the duration of the call.
#[inline]
pub unsafe fn read(fd: BorrowedFd<'_>, ranges: &[RawRange]) -> io::Result<usize> {
    // SAFETY: RawRange is a transparent iovec; the ranges are required of the caller.
    count(unsafe { libc::readv(fd.as_raw_fd(), ranges.as_ptr().cast(), ranges.len() as i32) })
}

/// Executes `writev`, which writes the ranges in order.
///
/// # Safety
/// Every range must be readable for the duration of the call.
#[inline]
pub unsafe fn write(fd: BorrowedFd<'_>, ranges: &[RawRange]) -> io::Result<usize> {
    // SAFETY: RawRange is a transparent iovec; the ranges are required of the caller.
    count(unsafe { libc::writev(fd.as_raw_fd(), ranges.as_ptr().cast(), ranges.len() as i32) })
}
