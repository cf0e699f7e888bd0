//! One mapping and who may write it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use mqnet_sysio::memory as sys;

use crate::{Span, SpanMut};

/// Why a peer's memory is not accepted, or why ours could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("memory of {len} bytes: {source}")]
    System {
        /// What was asked for.
        len: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A peer's file could shrink under our mapping.
    #[error("the peer's memory file is not sealed against resizing (F_SEAL_SHRINK, F_SEAL_GROW)")]
    NotSealed,
    /// A peer's file could lose its pages under our mapping.
    #[error("the peer's memory file has huge pages, which it could take away under us")]
    HugePages,
    /// A peer's file is smaller than what it announced.
    #[error("the peer's memory file has {len} bytes, announced were {announced}")]
    TooSmall {
        /// Length of the file.
        len: usize,
        /// Length in the announcement.
        announced: usize,
    },
}

/// Which pages back a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 4 KiB pages.
    Small,
    /// 2 MiB pages from hugetlbfs.
    Huge,
}

/// One mapping of memory, removed when dropped.
#[derive(Debug)]
pub struct Region {
    ptr: NonNull<u8>,
    len: usize,
    kind: PageKind,
    file: Option<OwnedFd>,
}

// SAFETY: a Region hands out only Spans (opaque bytes) and atomic words; which of our threads may
// write which range is the business of the rings, which keep one writer per range.
unsafe impl Send for Region {}
// SAFETY: see Send.
unsafe impl Sync for Region {}

impl Region {
    /// Shared memory of our own, sealed against resizing, to hand to a peer. Zeroed. Uses huge
    /// pages when `huge` and the machine has some free, plain pages otherwise.
    pub fn shared(name: &str, len: usize, huge: bool) -> Result<Self, Error> {
        let attempt = |len: usize, kind: PageKind| -> io::Result<Self> {
            let file = sys::memory_file(name, len, kind == PageKind::Huge)?;
            sys::seal_size(file.as_fd())?;
            let ptr = sys::map_shared(&file, len)?;
            Ok(Self { ptr, len, kind, file: Some(file) })
        };
        if huge && let Ok(region) = attempt(len.next_multiple_of(sys::HUGE_PAGE), PageKind::Huge) {
            return Ok(region);
        }
        let len = len.next_multiple_of(sys::PAGE);
        attempt(len, PageKind::Small).map_err(|source| Error::System { len, source })
    }

    /// A peer's shared memory. The file must be sealed and hold `announced` bytes; only those are
    /// mapped.
    pub fn of_peer(file: OwnedFd, announced: usize) -> Result<Self, Error> {
        if !sys::size_is_sealed(file.as_fd()) {
            return Err(Error::NotSealed);
        }
        if !sys::has_small_pages(file.as_fd()) {
            return Err(Error::HugePages);
        }
        let system = |source| Error::System { len: announced, source };
        let len = sys::file_len(file.as_fd()).map_err(system)?;
        if len < announced {
            return Err(Error::TooSmall { len, announced });
        }
        let ptr = sys::map_shared(&file, announced).map_err(system)?;
        Ok(Self { ptr, len: announced, kind: PageKind::Small, file: None })
    }

    /// Private memory of our own, zeroed, preferably on NUMA node `node`; huge pages when `huge`
    /// and some are free.
    pub fn private(len: usize, huge: bool, node: Option<u32>) -> Result<Self, Error> {
        let attempt = |len: usize, kind: PageKind| -> io::Result<Self> {
            let ptr = sys::map_private(len, kind == PageKind::Huge)?;
            let region = Self { ptr, len, kind, file: None };
            if let Some(node) = node {
                // SAFETY: the mapping was just made and is one piece.
                unsafe { sys::prefer_node(ptr, len, node) };
            }
            Ok(region)
        };
        if huge && let Ok(region) = attempt(len.next_multiple_of(sys::HUGE_PAGE), PageKind::Huge) {
            return Ok(region);
        }
        let len = len.next_multiple_of(sys::PAGE);
        attempt(len, PageKind::Small).map_err(|source| Error::System { len, source })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an empty region cannot be made.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages behind it.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// The memory file, to hand to a peer; `None` for private memory and a peer's.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// `len` bytes at `offset`.
    ///
    /// # Panics
    /// When the range is not within the region: offsets are computed by us, never read from a
    /// peer unchecked.
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Span<'_> {
        self.check(offset, len);
        // SAFETY: checked; the mapping lives as long as `self`.
        unsafe { Span::from_raw(self.ptr.as_ptr().add(offset), len) }
    }

    /// `len` writable bytes at `offset`.
    ///
    /// # Safety
    /// No other `SpanMut` of this process may overlap the range during its lifetime.
    ///
    /// # Panics
    /// When the range is not within the region.
    #[inline]
    pub unsafe fn span_mut(&self, offset: usize, len: usize) -> SpanMut<'_> {
        self.check(offset, len);
        // SAFETY: checked; exclusiveness is the caller's promise.
        unsafe { SpanMut::from_raw(self.ptr.as_ptr().add(offset), len) }
    }

    /// The aligned 64-bit word at `offset`.
    ///
    /// # Panics
    /// When the word is not within the region or not aligned.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8);
        assert!(offset.is_multiple_of(8), "word at unaligned offset {offset}");
        // SAFETY: in range and aligned (a mapping begins at a page); atomics allow any writer.
        unsafe { AtomicU64::from_ptr(self.ptr.as_ptr().add(offset).cast()) }
    }

    /// The address of a range, for a [`crate::Window`] that keeps the region alive.
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        // SAFETY: checked: the result is within the mapping or at its end.
        unsafe { self.ptr.add(offset) }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "range {offset}+{len} leaves a region of {} bytes", self.len);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: spans and words borrow the region, so none is left.
        unsafe { sys::unmap(self.ptr, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a file that its owner can still truncate is refused: it could SIGBUS us.
    #[test]
    fn unsealed_memory_is_refused() {
        let file = sys::memory_file("test", 8192, false).unwrap();
        assert!(matches!(Region::of_peer(file, 8192), Err(Error::NotSealed)));
    }

    // Goal: a peer that announces more than it gave is refused.
    #[test]
    fn short_memory_is_refused() {
        let ours = Region::shared("test", 4096, false).unwrap();
        let fd = ours.file().unwrap().try_clone_to_owned().unwrap();
        let refused = Region::of_peer(fd, 8192);
        assert!(matches!(refused, Err(Error::TooSmall { len: 4096, announced: 8192 })));
    }

    // Goal: two mappings of one file see each other's bytes and words.
    #[test]
    fn both_mappings_are_one_memory() {
        let ours = Region::shared("test", 4096, false).unwrap();
        let fd = ours.file().unwrap().try_clone_to_owned().unwrap();
        let theirs = Region::of_peer(fd, 4096).unwrap();
        theirs.word(8).store(7, std::sync::atomic::Ordering::Release);
        assert_eq!(ours.word(8).load(std::sync::atomic::Ordering::Acquire), 7);
        // SAFETY: the only SpanMut of this range.
        unsafe { ours.span_mut(100, 3) }.copy_from(Span::of(b"abc"));
        let mut read = [0u8; 3];
        theirs.span(100, 3).read_header(&mut read);
        assert_eq!(&read, b"abc");
    }

    // Goal: huge pages are a wish, never a condition.
    #[test]
    fn huge_pages_fall_back() {
        let region = Region::private(100, true, Some(0)).unwrap();
        assert!(region.len() >= 100);
        assert_eq!(region.len() % sys::PAGE, 0);
    }

    // Goal: an offset outside is a bug of ours and stops at once.
    #[test]
    #[should_panic(expected = "leaves a region")]
    fn ranges_are_checked() {
        let region = Region::private(4096, false, None).unwrap();
        region.span(4090, 7);
    }
}
