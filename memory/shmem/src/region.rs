//! One mapping and who may write it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_sysio::sigbus::Guard;
use mqnet_sysio::xdp::XdpSocket;
use mqnet_sysio::{descriptors, memory as sys};

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
    /// Whoever touches the peer's file waits for somebody.
    #[error(
        "the peer's memory file is of a file system that may keep us waiting: use \
         memory-backend-memfd, or a file in /dev/shm or hugetlbfs"
    )]
    Foreign,
    /// The memory of all peers would take more of the address space than is set apart for it.
    #[error("{len} bytes: the memory of all peers together may have {most} bytes")]
    Budget {
        /// Length of the region.
        len: u64,
        /// The limit of all peers.
        most: u64,
    },
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
    guest: Option<Guest>,
}

/// What is kept of memory that its owner can take away.
#[derive(Debug)]
struct Guest {
    guard: Guard,
    file: OwnedFd,
    /// Where in the file the mapping ends.
    end: usize,
    _charge: Charge,
}

/// Default of [`set_peer_memory`]: half of the address space that x86-64 and arm64 have with four
/// levels of page tables.
pub const PEER_MEMORY_DEFAULT: u64 = 1 << 46;

/// Most bytes of the process's address space that peers' memory may take.
static PEERS_MAX: AtomicU64 = AtomicU64::new(PEER_MEMORY_DEFAULT);

/// Sets how many bytes of memory all peers of this process together may share; `None` is the
/// default. What is mapped already stays.
pub fn set_peer_memory(bytes: Option<u64>) {
    PEERS_MAX.store(bytes.unwrap_or(PEER_MEMORY_DEFAULT), Ordering::Relaxed);
}

/// Bytes of the address space that peers' memory takes.
static PEERS: AtomicU64 = AtomicU64::new(0);

/// A part of `PEERS_MAX`, released when dropped.
#[derive(Debug)]
struct Charge(u64);

impl Charge {
    fn take(len: usize) -> Result<Self, Error> {
        let len = len as u64;
        let most = PEERS_MAX.load(Ordering::Relaxed);
        let add = |sum: u64| sum.checked_add(len).filter(|&sum| sum <= most);
        match PEERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Self(len)),
            Err(_) => Err(Error::Budget { len, most }),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        PEERS.fetch_sub(self.0, Ordering::Relaxed);
    }
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
            Ok(Self { ptr, len, kind, file: Some(file), guest: None })
        };
        if huge && let Ok(region) = attempt(len.next_multiple_of(sys::HUGE_PAGE), PageKind::Huge) {
            return Ok(region);
        }
        let len = len.next_multiple_of(sys::PAGE);
        attempt(len, PageKind::Small).map_err(|source| Error::System { len, source })
    }

    /// A ring that a socket of the kernel shares with us, as a file at `offset`.
    pub fn of_socket(socket: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Error> {
        let ptr = sys::map_shared_at(socket, offset, len);
        let ptr = ptr.map_err(|source| Error::System { len, source })?;
        Ok(Self { ptr, len, kind: PageKind::Small, file: None, guest: None })
    }

    /// Gives all of it to an AF_XDP socket, as its frames' memory. From then on the kernel writes
    /// it, like a peer: as always it is seen as spans only.
    pub fn lend_to(&self, socket: &XdpSocket, chunk: u32) -> io::Result<()> {
        // SAFETY: mapped, and a region hands out no references to its bytes.
        unsafe { socket.set_memory(self.ptr, self.len, chunk) }
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
        let region = Self { ptr, len: announced, kind: PageKind::Small, file: None, guest: None };
        region.prefer_huge_pages();
        Ok(region)
    }

    /// `len` bytes of a guest's memory file from `offset` on: the region, and where in it they
    /// begin. The file need not be sealed, and may have huge pages: whoever takes pages away finds
    /// us reading zeroes, and [`is_lost`](Self::is_lost) tells.
    pub fn of_guest(file: OwnedFd, offset: u64, len: u64) -> Result<(Self, usize), Error> {
        let announced = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
        let announced = announced.unwrap_or(usize::MAX);
        if !descriptors::is_of_kernel(file.as_fd()) {
            return Err(Error::Foreign);
        }
        let system = |source| Error::System { len: announced, source };
        let have = sys::file_len(file.as_fd()).map_err(system)?;
        if have < announced || len == 0 {
            return Err(Error::TooSmall { len: have, announced });
        }
        let page = sys::page_size(file.as_fd()).map_err(system)?;
        let first = offset - offset % page as u64;
        let skip = (offset - first) as usize;
        // `announced` is within a file, so nothing here overflows.
        let mapped = (announced - first as usize).next_multiple_of(page);
        Self::guarded(file, first, mapped, announced).map(|region| (region, skip))
    }

    /// `len` bytes of a device's memory from `offset` on. Its file needs no seals: the kernel takes
    /// such memory away only with the device, and then we read zeroes, as with a guest's.
    pub fn of_device(file: OwnedFd, offset: u64, len: usize) -> Result<Self, Error> {
        Self::guarded(file, offset, len.next_multiple_of(sys::PAGE), 0)
    }

    /// Maps what somebody may take away. `end` is what the length of the file must stay above.
    fn guarded(file: OwnedFd, first: u64, mapped: usize, end: usize) -> Result<Self, Error> {
        let system = |source| Error::System { len: mapped, source };
        let page = sys::page_size(file.as_fd()).map_err(system)?;
        let charge = Charge::take(mapped)?;
        let ptr = sys::map_shared_at(&file, first, mapped).map_err(system)?;
        let guard = guarded(ptr, mapped).map_err(system)?;
        let kind = if page == sys::PAGE { PageKind::Small } else { PageKind::Huge };
        let guest = Some(Guest { guard, file, end, _charge: charge });
        Ok(Self { ptr, len: mapped, kind, file: None, guest })
    }

    /// `len` bytes of memory that the kernel lends from `offset` of a file of its own on, which has
    /// no length and no file system. Whoever touches a page that is not lent reads zeroes, and
    /// [`is_lost`](Self::is_lost) tells.
    pub fn of_kernel(file: OwnedFd, offset: u64, len: u64) -> Result<Self, Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let system = |source| Error::System { len, source };
        let charge = Charge::take(len)?;
        let ptr = sys::map_shared_at(&file, offset, len).map_err(system)?;
        let guard = guarded(ptr, len.next_multiple_of(sys::PAGE)).map_err(system)?;
        // It cannot become shorter than nothing.
        let guest = Some(Guest { guard, file, end: 0, _charge: charge });
        Ok(Self { ptr, len, kind: PageKind::Small, file: None, guest })
    }

    /// True when this was a guest's memory and pages of it are gone.
    pub fn is_lost(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| {
            let shrank = || sys::file_len(guest.file.as_fd()).is_ok_and(|len| len < guest.end);
            guest.guard.is_lost() || shrank()
        })
    }

    /// Private memory of our own, zeroed, preferably on NUMA node `node`; huge pages when `huge`
    /// and some are free.
    pub fn private(len: usize, huge: bool, node: Option<u32>) -> Result<Self, Error> {
        let attempt = |len: usize, kind: PageKind| -> io::Result<Self> {
            let ptr = sys::map_private(len, kind == PageKind::Huge)?;
            let region = Self { ptr, len, kind, file: None, guest: None };
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

    /// Asks for transparent huge pages, for memory of which all is used: a page then is 2 MiB, and
    /// comes when the first byte of it is touched. A wish: shared memory has them where
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` is `advise`, and whoever touches a page
    /// first decides.
    pub fn prefer_huge_pages(&self) {
        // Below that some kernels (6.1) would give 2 MiB all the same.
        if self.kind == PageKind::Small && self.len >= sys::HUGE_PAGE {
            // SAFETY: the region's own mapping, which lives as long as it.
            unsafe { sys::advise_huge(self.ptr, self.len) };
        }
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
        let fits = offset.checked_add(8).is_some_and(|end| end <= self.len);
        if !(fits && offset.is_multiple_of(8)) {
            self.no_word(offset);
        }
        // SAFETY: in range and aligned (a mapping begins at a page); atomics allow any writer.
        unsafe { AtomicU64::from_ptr(self.ptr.as_ptr().add(offset).cast()) }
    }

    /// Reads the 32-bit little-endian register at `offset` of a device, in one access.
    ///
    /// # Panics
    /// When it is not within the region or not aligned.
    pub fn register(&self, offset: usize) -> u32 {
        // SAFETY: register_at has checked the place; any value is a number.
        u32::from_le(unsafe { self.register_at(offset).read_volatile() })
    }

    /// Writes the 32-bit little-endian register at `offset` of a device, in one access.
    ///
    /// # Panics
    /// When it is not within the region or not aligned.
    pub fn set_register(&self, offset: usize, value: u32) {
        // SAFETY: register_at has checked the place; nobody has a reference to it.
        unsafe { self.register_at(offset).write_volatile(value.to_le()) };
    }

    fn register_at(&self, offset: usize) -> *mut u32 {
        self.check(offset, 4);
        assert!(offset.is_multiple_of(4), "register at unaligned offset {offset}");
        // SAFETY: checked: the result is within the mapping.
        unsafe { self.ptr.as_ptr().add(offset).cast() }
    }

    /// The address of a range, for a [`crate::Window`] that keeps the region alive.
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        // SAFETY: checked: the result is within the mapping or at its end.
        unsafe { self.ptr.add(offset) }
    }

    /// Where it begins, for a [`crate::Part`], which has checked that it is inside.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Out of line: inlined, its text was prepared before every look at a word.
    #[cold]
    #[inline(never)]
    fn no_word(&self, offset: usize) -> ! {
        self.check(offset, 8);
        panic!("word at unaligned offset {offset}");
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "range {offset}+{len} leaves a region of {} bytes", self.len);
    }
}

/// Guards a mapping that was just made and becomes a region's, or removes it.
fn guarded(ptr: NonNull<u8>, len: usize) -> io::Result<Guard> {
    // SAFETY: the mapping is new, and Region::drop drops the guard before it.
    let guard = unsafe { Guard::new(ptr, len) };
    if guard.is_err() {
        // SAFETY: nobody has seen it yet.
        unsafe { sys::unmap(ptr, len) };
    }
    guard
}

impl Drop for Region {
    fn drop(&mut self) {
        // Another mapping may come to lie here as soon as this one is gone.
        self.guest = None;
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

    // Goal: memory whose pages somebody else brings, in his own time, is refused with the knob.
    #[test]
    fn memory_that_keeps_us_waiting_is_refused() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let refused = Region::of_guest(file.into(), 0, 1).unwrap_err();
        assert!(matches!(refused, Error::Foreign));
        assert!(refused.to_string().contains("memory-backend-memfd"));
    }

    // Goal: a guest that truncates its memory under us harms nobody: zeroes are read, writes go
    // nowhere, and the region tells.
    #[test]
    fn vanished_memory_is_survived() {
        let file = sys::memory_file("test", 4 * sys::PAGE, false).unwrap();
        let theirs = std::fs::File::from(file.try_clone().unwrap());
        let (region, skip) = Region::of_guest(file, sys::PAGE as u64 + 512, 8192).unwrap();
        assert_eq!((skip, region.len()), (512, 3 * sys::PAGE));
        region.word(512).store(7, std::sync::atomic::Ordering::Relaxed);
        assert!(!region.is_lost());
        theirs.set_len(0).unwrap();
        let reads = std::thread::scope(|s| {
            let read = || region.word(512).load(std::sync::atomic::Ordering::Relaxed);
            let one = s.spawn(read);
            (one.join().unwrap(), read())
        });
        assert_eq!(reads, (0, 0));
        assert!(region.is_lost());
        region.word(1024).store(1, std::sync::atomic::Ordering::Relaxed);
        drop(region);
    }

    // Goal: a fault elsewhere still ends the process, guard or not.
    #[test]
    fn other_faults_stay_deadly() {
        const CHILD: &str = "MQNET_TEST_BUS_ERROR";
        let name = "region::tests::other_faults_stay_deadly";
        if std::env::var_os(CHILD).is_none() {
            use std::os::unix::process::ExitStatusExt;
            let me = std::env::current_exe().unwrap();
            let mut child = std::process::Command::new(me);
            let status = child.args([name, "--exact"]).env(CHILD, "1").output().unwrap().status;
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
            return;
        }
        let guarded = sys::memory_file("test", sys::PAGE, false).unwrap();
        let _guarded = Region::of_guest(guarded, 0, 4096).unwrap();
        let file = sys::memory_file("test", sys::PAGE, false).unwrap();
        let bare = sys::map_shared(&file, sys::PAGE).unwrap();
        std::fs::File::from(file).set_len(0).unwrap();
        // SAFETY: mapped; the access ends the process, which is the point.
        std::hint::black_box(unsafe { bare.as_ptr().read_volatile() });
    }

    // Goal: what a guest announces beyond its file, or cannot be counted, is refused.
    #[test]
    fn impossible_guest_memory_is_refused() {
        for (offset, len) in [(0, 8193), (u64::MAX, 1), (8192, 1), (4096, u64::MAX), (0, 0)] {
            let file = sys::memory_file("test", 8192, false).unwrap();
            let refused = Region::of_guest(file, offset, len);
            assert!(matches!(refused, Err(Error::TooSmall { .. })), "{offset} {len}");
        }
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
