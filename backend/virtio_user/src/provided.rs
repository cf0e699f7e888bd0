//! Memory of the caller for received frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Memory file of the caller (memfd, or a file in `/dev/shm` or hugetlbfs) for received frames. The
/// device writes frames into it, and the caller reads them in its own mapping of the file without a
/// copy. Every possible queue has an equal part.
///
/// The file must keep its length: if it shrinks, the removed part reads as zeroes.
#[derive(Clone, Debug)]
pub struct ProvidedMemory {
    file: Arc<OwnedFd>,
    len: u64,
}

impl ProvidedMemory {
    /// Uses the first `len` bytes of a file. With huge pages, `len` must be a multiple of their
    /// size.
    pub fn new(file: OwnedFd, len: u64) -> Self {
        Self { file: Arc::new(file), len }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl PartialEq for ProvidedMemory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.len == other.len
    }
}

impl Eq for ProvidedMemory {}
