//! Memory pages for machine code (W^X: never writable and executable at the same time).

use std::io;
use std::ptr::NonNull;

use mqnet_sysio::memory::{make_executable, map_private, unmap};

/// Memory pages for machine code.
#[derive(Debug)]
pub struct CodePages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only the owner writes the pages, and no thread writes them once they are executable.
unsafe impl Send for CodePages {}
// SAFETY: as above.
unsafe impl Sync for CodePages {}

impl CodePages {
    /// Allocates `len` bytes of writable pages.
    pub fn new(len: usize) -> io::Result<Self> {
        let start = map_private(len, false)?;
        Ok(Self { start, len })
    }

    /// Start of the pages.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes the pages executable and read-only. Fails if the system call fails.
    ///
    /// # Safety
    /// No reference to the bytes of the pages may exist.
    pub unsafe fn seal(&self) -> io::Result<()> {
        // SAFETY: this object owns the mapping; the rest is required of the caller.
        unsafe { make_executable(self.start, self.len) }
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, which is not used any more.
        unsafe { unmap(self.start, self.len) };
    }
}
