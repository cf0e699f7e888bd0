//! Memory of the caller's as the pages of RX pools.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A memory file of the caller's (memfd, or a file in `/dev/shm` or hugetlbfs) for what a device
/// receives: the device writes frames into it, the caller finds them in its own mapping of the
/// file, and nobody copies. Every possible queue has an equal part.
///
/// The file must stay as long as it is: if it shrinks, what is read of it is zeroes.
#[derive(Clone, Debug)]
pub struct ProvidedMemory {
    file: Arc<OwnedFd>,
    len: u64,
}

impl ProvidedMemory {
    /// The first `len` bytes of a file. Huge pages: a multiple of their size.
    pub fn new(file: OwnedFd, len: u64) -> Self {
        Self { file: Arc::new(file), len }
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when it has no bytes.
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
