//! Pages for machine code, never writable and executable at once.

use std::io;
use std::ptr::NonNull;

use mqnet_sysio::memory::{make_executable, map_private, unmap};

/// Pages for machine code.
#[derive(Debug)]
pub struct CodePages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: what is in them is written by whoever owns them, and by nobody once it is executable.
unsafe impl Send for CodePages {}
// SAFETY: as above.
unsafe impl Sync for CodePages {}

impl CodePages {
    /// Writable pages of `len` bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        let start = map_private(len, false)?;
        Ok(Self { start, len })
    }

    /// Where they begin.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes them executable, and no more writable.
    ///
    /// # Safety
    /// No reference to their bytes may be left.
    pub unsafe fn seal(&self) -> io::Result<()> {
        // SAFETY: the mapping is ours; the rest is the caller's promise.
        unsafe { make_executable(self.start, self.len) }
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more.
        unsafe { unmap(self.start, self.len) };
    }
}
