//! Memory mappings and their ownership.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_sysio::sigbus::Guard;
use mqnet_sysio::xdp::XdpSocket;
use mqnet_sysio::{descriptors, memory as sys};

use crate::{Span, SpanMut};

/// Reason why a peer's memory is rejected, or why memory cannot be allocated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("memory of {len} bytes: {source}")]
    System {
        /// Requested length in bytes.
        len: usize,
        /// Error of the system call.
        source: io::Error,
    },
    /// File of a peer that could shrink under the mapping.
    #[error("the peer's memory file is not sealed against resizing (F_SEAL_SHRINK, F_SEAL_GROW)")]
    NotSealed,
    /// File of a peer that could lose its pages under the mapping.
    #[error(
        "the peer's memory file has huge pages, which the peer could remove while they are mapped"
    )]
    HugePages,
    /// File of a peer whose page faults depend on a user-space server.
    #[error(
        "the peer's memory file is on a file system that may block: use memory-backend-memfd, or a \
         file in /dev/shm or hugetlbfs"
    )]
    Foreign,
    /// Memory of all peers together that would exceed its limit of address space.
    #[error("{len} bytes: the memory of all peers would exceed {most} bytes")]
    Budget {
        /// Length of the region.
        len: u64,
        /// Limit for all peers together.
        most: u64,
    },
    /// File of a peer that is smaller than announced.
    #[error("the peer's memory file has {len} bytes, but {announced} were announced")]
    TooSmall {
        /// Length of the file.
        len: usize,
        /// Announced length.
        announced: usize,
    },
}

/// Page size of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 4 KiB pages.
    Small,
    /// 2 MiB pages from hugetlbfs.
    Huge,
}

/// One memory mapping, removed at drop.
#[derive(Debug)]
pub struct Region {
    ptr: NonNull<u8>,
    len: usize,
    kind: PageKind,
    file: Option<OwnedFd>,
    guest: Option<Guest>,
}

/// State of memory that its owner can truncate.
#[derive(Debug)]
struct Guest {
    guard: Guard,
    file: OwnedFd,
    /// Offset of the end of the used range in the file.
    end: usize,
    _charge: Charge,
}

/// Default of [`set_peer_memory`]: half of the user address space of x86-64 with four levels of
/// page tables.
pub const PEER_MEMORY_DEFAULT: u64 = 1 << 46;

/// Limit of address space for peers' memory, in bytes.
static PEERS_MAX: AtomicU64 = AtomicU64::new(PEER_MEMORY_DEFAULT);

/// Sets the limit of address space for the memory of all peers of this process. `None` selects the
/// default. Existing mappings are not affected.
pub fn set_peer_memory(bytes: Option<u64>) {
    PEERS_MAX.store(bytes.unwrap_or(PEER_MEMORY_DEFAULT), Ordering::Relaxed);
}

/// Address space used by peers' memory, in bytes.
static PEERS: AtomicU64 = AtomicU64::new(0);

/// Share of `PEERS_MAX`, released at drop.
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

// SAFETY: a Region exposes only Spans (opaque bytes) and atomic words; the rings ensure one writing
// thread of this process per range.
unsafe impl Send for Region {}
// SAFETY: see Send.
unsafe impl Sync for Region {}

/// Start and length of the whole pages that contain `offset..end`.
fn whole_pages(offset: u64, end: usize, page: usize) -> (u64, usize) {
    let first = offset - offset % page as u64;
    (first, (end - first as usize).next_multiple_of(page))
}

impl Region {
    /// Creates zeroed shared memory, sealed against resizing, that can be passed to a peer. Uses
    /// huge pages if `huge` is true and the system has free ones, else small pages.
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
        let len = len.next_multiple_of(sys::small_page());
        attempt(len, PageKind::Small).map_err(|source| Error::System { len, source })
    }

    /// Maps a ring that a kernel socket provides at `offset` of its descriptor.
    pub fn of_socket(socket: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Error> {
        let ptr = sys::map_shared_at(socket, offset, len);
        let ptr = ptr.map_err(|source| Error::System { len, source })?;
        Ok(Self { ptr, len, kind: PageKind::Small, file: None, guest: None })
    }

    /// Registers the whole region as the frame memory (UMEM) of an AF_XDP socket. The kernel then
    /// writes the region like a peer. This is sound because the region is only exposed as spans.
    pub fn lend_to(&self, socket: &XdpSocket, chunk: u32) -> io::Result<()> {
        // SAFETY: mapped, and a region exposes no references to its bytes.
        unsafe { socket.set_memory(self.ptr, self.len, chunk) }
    }

    /// Maps a peer's shared memory. Fails unless the file is sealed, has small pages, and holds
    /// `announced` bytes; only these bytes are mapped.
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

    /// Maps `len` bytes of a guest's memory file at `offset`. Returns the region, and the offset of
    /// the bytes in the region. The file need not be sealed, and may have huge pages. Pages that
    /// the guest removes read as zeros, and [`is_lost`](Self::is_lost) then returns true.
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
        // `announced` is within a file, so the computations below cannot overflow.
        let (first, mapped) = whole_pages(offset, announced, page);
        let skip = (offset - first) as usize;
        Self::guarded(file, first, mapped, announced).map(|region| (region, skip))
    }

    /// Maps `len` bytes of a device's memory at `offset`. The file needs no seals. The kernel
    /// removes such memory only with the device, and reads then return zeros, as with a guest's
    /// memory.
    pub fn of_device(file: OwnedFd, offset: u64, len: usize) -> Result<Self, Error> {
        Self::guarded(file, offset, len.next_multiple_of(sys::small_page()), 0)
    }

    /// Maps memory that its owner may remove. `end` is the required minimum length of the file.
    fn guarded(file: OwnedFd, first: u64, mapped: usize, end: usize) -> Result<Self, Error> {
        let system = |source| Error::System { len: mapped, source };
        let page = sys::page_size(file.as_fd()).map_err(system)?;
        let charge = Charge::take(mapped)?;
        let ptr = sys::map_shared_at(&file, first, mapped).map_err(system)?;
        let guard = guarded(ptr, mapped).map_err(system)?;
        let kind = if page == sys::small_page() { PageKind::Small } else { PageKind::Huge };
        let guest = Some(Guest { guard, file, end, _charge: charge });
        Ok(Self { ptr, len: mapped, kind, file: None, guest })
    }

    /// Maps `len` bytes of memory that the kernel provides at `offset` of a special file, which has
    /// no length and no file system. Pages that are not provided read as zeros, and
    /// [`is_lost`](Self::is_lost) then returns true.
    pub fn of_kernel(file: OwnedFd, offset: u64, len: u64) -> Result<Self, Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let system = |source| Error::System { len, source };
        let charge = Charge::take(len)?;
        let ptr = sys::map_shared_at(&file, offset, len).map_err(system)?;
        let guard = guarded(ptr, len.next_multiple_of(sys::small_page())).map_err(system)?;
        // Require no length: a special file has none.
        let guest = Some(Guest { guard, file, end: 0, _charge: charge });
        Ok(Self { ptr, len, kind: PageKind::Small, file: None, guest })
    }

    /// True if pages of a guest's, a device's or the kernel's memory were removed, or if a guest's
    /// file was truncated.
    pub fn is_lost(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| {
            let shrank = || sys::file_len(guest.file.as_fd()).is_ok_and(|len| len < guest.end);
            guest.guard.is_lost() || shrank()
        })
    }

    /// Creates zeroed private memory, preferably on NUMA node `node`. Uses huge pages if `huge` is
    /// true and the system has free ones.
    pub fn private(len: usize, huge: bool, node: Option<u32>) -> Result<Self, Error> {
        let attempt = |len: usize, kind: PageKind| -> io::Result<Self> {
            let ptr = sys::map_private(len, kind == PageKind::Huge)?;
            let region = Self { ptr, len, kind, file: None, guest: None };
            if let Some(node) = node {
                // SAFETY: the mapping was just created and is contiguous.
                unsafe { sys::prefer_node(ptr, len, node) };
            }
            Ok(region)
        };
        if huge && let Ok(region) = attempt(len.next_multiple_of(sys::HUGE_PAGE), PageKind::Huge) {
            return Ok(region);
        }
        let len = len.next_multiple_of(sys::small_page());
        attempt(len, PageKind::Small).map_err(|source| Error::System { len, source })
    }

    /// Requests transparent huge pages, for memory that is used entirely: the first access to a
    /// page then allocates 2 MiB. This is a hint. Shared memory gets huge pages if
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` is `advise` at the first access.
    pub fn prefer_huge_pages(&self) {
        // For smaller regions some kernels (6.1) would still allocate 2 MiB.
        if self.kind == PageKind::Small && self.len >= sys::HUGE_PAGE {
            // SAFETY: the region owns the mapping, which lives as long as the region.
            unsafe { sys::advise_huge(self.ptr, self.len) };
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an empty region cannot be created.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Page size of the region.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// Memory file, to be passed to a peer, or `None` for private memory and for a peer's memory.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is not within the region. (Callers compute the offset, and never take it
    /// unchecked from a peer.)
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Span<'_> {
        self.check(offset, len);
        // SAFETY: checked above; the mapping lives as long as `self`.
        unsafe { Span::from_raw(self.ptr.as_ptr().add(offset), len) }
    }

    /// Returns `len` writable bytes at `offset`.
    ///
    /// # Safety
    /// No other `SpanMut` of this process may overlap the range during its lifetime.
    ///
    /// # Panics
    /// If the range is not within the region.
    #[inline]
    pub unsafe fn span_mut(&self, offset: usize, len: usize) -> SpanMut<'_> {
        self.check(offset, len);
        // SAFETY: checked above; exclusive access is required of the caller.
        unsafe { SpanMut::from_raw(self.ptr.as_ptr().add(offset), len) }
    }

    /// Aligned 64-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is not within the region or not aligned.
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
    /// If the register is not within the region or not aligned.
    pub fn register(&self, offset: usize) -> u32 {
        // SAFETY: register_at has checked the address; any value is valid.
        u32::from_le(unsafe { self.register_at(offset).read_volatile() })
    }

    /// Writes the 32-bit little-endian register at `offset` of a device, in one access.
    ///
    /// # Panics
    /// If the register is not within the region or not aligned.
    pub fn set_register(&self, offset: usize, value: u32) {
        // SAFETY: register_at has checked the address; no references to it exist.
        unsafe { self.register_at(offset).write_volatile(value.to_le()) };
    }

    fn register_at(&self, offset: usize) -> *mut u32 {
        self.check(offset, 4);
        assert!(offset.is_multiple_of(4), "register at unaligned offset {offset}");
        // SAFETY: checked above: the result is within the mapping.
        unsafe { self.ptr.as_ptr().add(offset).cast() }
    }

    /// Pointer to a range, for a [`crate::Window`], which keeps the region alive.
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        // SAFETY: checked above: the result is within the mapping or at its end.
        unsafe { self.ptr.add(offset) }
    }

    /// Start of the mapping, for a [`crate::RegionPart`], which has checked its bounds.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Panics out of line: otherwise the panic message is prepared before every access to a word.
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

/// Guards a new mapping of a region. Removes the mapping on failure.
fn guarded(ptr: NonNull<u8>, len: usize) -> io::Result<Guard> {
    // SAFETY: the mapping is new, and Region::drop drops the guard before it.
    let guard = unsafe { Guard::new(ptr, len) };
    if guard.is_err() {
        // SAFETY: no reference to the mapping exists yet.
        unsafe { sys::unmap(ptr, len) };
    }
    guard
}

impl Drop for Region {
    fn drop(&mut self) {
        // The guard is dropped first: another mapping may reuse these addresses once this one is
        // removed.
        self.guest = None;
        // SAFETY: spans and words borrow the region, so none exists.
        unsafe { sys::unmap(self.ptr, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a file that its owner can still truncate is rejected, because it could cause SIGBUS.
    #[test]
    fn unsealed_memory_is_rejected() {
        let file = sys::memory_file("test", 8192, false).unwrap();
        assert!(matches!(Region::of_peer(file, 8192), Err(Error::NotSealed)));
    }

    // Goal: a peer that announces more than its file holds is rejected.
    #[test]
    fn short_memory_is_rejected() {
        const LEN: usize = sys::SMALL_PAGE_MAX;
        const ANNOUNCED: usize = 2 * LEN;
        let ours = Region::shared("test", LEN, false).unwrap();
        let fd = ours.file().unwrap().try_clone_to_owned().unwrap();
        let refused = Region::of_peer(fd, ANNOUNCED);
        assert!(matches!(refused, Err(Error::TooSmall { len: LEN, announced: ANNOUNCED })));
    }

    // Goal: memory with page faults served by user space is rejected, and the message names the
    // remedy.
    #[test]
    fn memory_with_user_faults_is_rejected() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let refused = Region::of_guest(file.into(), 0, 1).unwrap_err();
        assert!(matches!(refused, Error::Foreign));
        assert!(refused.to_string().contains("memory-backend-memfd"));
    }

    // Goal: the pages around a range contain it and are as few as possible, for each page size of
    // arm64 and for huge pages. Guests announce ranges in multiples of 4 KiB at most.
    #[test]
    fn pages_around_a_range_contain_it() {
        for page in [4 << 10, 16 << 10, sys::SMALL_PAGE_MAX, sys::HUGE_PAGE] {
            assert_eq!(sys::HUGE_PAGE % page, 0);
            for offset in [0, 512, 4096, 12 << 10, 60 << 10, 64 << 10, (2 << 20) - 1, 5 << 20] {
                for len in [1, 4096, 16 << 10, 64 << 10, 3 << 20] {
                    let end = offset as usize + len;
                    let (first, mapped) = whole_pages(offset, end, page);
                    assert_eq!((first % page as u64, mapped % page), (0, 0), "{page} {offset}");
                    let skip = (offset - first) as usize;
                    assert!(skip < page && (end - first as usize) <= mapped, "{page} {offset}");
                    assert!(mapped - (end - first as usize) < page, "{page} {offset} {len}");
                }
            }
        }
    }

    // Goal: a guest that truncates its memory does no harm. Reads return zeros, writes are
    // discarded, and the region reports the loss.
    #[test]
    fn truncated_memory_reads_zeros() {
        let file = sys::memory_file("test", 4 * sys::small_page(), false).unwrap();
        let theirs = std::fs::File::from(file.try_clone().unwrap());
        let page = sys::small_page() as u64;
        let (region, skip) = Region::of_guest(file, page + 512, 2 * page).unwrap();
        assert_eq!((skip, region.len()), (512, 3 * sys::small_page()));
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

    // Goal: a fault outside guarded memory still ends the process.
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
        let guarded = sys::memory_file("test", sys::small_page(), false).unwrap();
        let _guarded = Region::of_guest(guarded, 0, 4096).unwrap();
        let file = sys::memory_file("test", sys::small_page(), false).unwrap();
        let bare = sys::map_shared(&file, sys::small_page()).unwrap();
        std::fs::File::from(file).set_len(0).unwrap();
        // SAFETY: mapped; the access ends the process, as the test expects.
        std::hint::black_box(unsafe { bare.as_ptr().read_volatile() });
    }

    // Goal: an announcement beyond the guest's file, or with an overflow, is rejected.
    #[test]
    fn impossible_guest_memory_is_rejected() {
        for (offset, len) in [(0, 8193), (u64::MAX, 1), (8192, 1), (4096, u64::MAX), (0, 0)] {
            let file = sys::memory_file("test", 8192, false).unwrap();
            let refused = Region::of_guest(file, offset, len);
            assert!(matches!(refused, Err(Error::TooSmall { .. })), "{offset} {len}");
        }
    }

    // Goal: two mappings of one file share bytes and words.
    #[test]
    fn mappings_of_one_file_share_bytes() {
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

    // Goal: private memory falls back to small pages if no huge pages are free, with at least the
    // requested length.
    #[test]
    fn huge_pages_fall_back() {
        let region = Region::private(100, true, Some(0)).unwrap();
        assert!(region.len() >= 100);
        assert_eq!(region.len() % sys::small_page(), 0);
    }

    // Goal: an offset out of range is a bug in this program and panics.
    #[test]
    #[should_panic(expected = "leaves a region")]
    fn ranges_are_checked() {
        let region = Region::private(sys::SMALL_PAGE_MAX, false, None).unwrap();
        region.span(sys::SMALL_PAGE_MAX - 6, 7);
    }
}
