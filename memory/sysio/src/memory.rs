//! Memory files and mappings. Access rights to mappings are defined in `shmem`.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{
    MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};
use nix::sys::statfs;

use crate::descriptors::explained;

/// Largest small page of the supported kernels: arm64 has 4, 16 or 64 KiB.
pub const SMALL_PAGE_MAX: usize = 64 << 10;
/// Size of a huge page. Kernels of all page sizes support this size: as a table entry with small
/// pages of 4 KiB, as contiguous entries with small pages of 16 and 64 KiB.
pub const HUGE_PAGE: usize = 2 << 20;

// A multiple of the size of huge pages is a multiple of every size of small pages.
const _: () = assert!(HUGE_PAGE.is_multiple_of(SMALL_PAGE_MAX));

/// Size of a small page of the running kernel.
pub fn small_page() -> usize {
    // SAFETY: a constant of the process is read.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(SMALL_PAGE_MAX)
}

/// Creates a sealable memory file of `len` bytes. `huge` selects 2 MiB pages. If none are reserved,
/// the later mapping fails with `ENOMEM`.
pub fn memory_file(name: &str, len: usize, huge: bool) -> io::Result<OwnedFd> {
    let mut flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    if huge {
        flags |= MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
    }
    let fd = memfd_create(name, flags).map_err(explained)?;
    nix::unistd::ftruncate(&fd, len as i64)?;
    Ok(fd)
}

/// Fixes the size of a memory file permanently. Otherwise a peer could truncate the file under a
/// mapping and cause `SIGBUS`.
pub fn seal_size(fd: BorrowedFd<'_>) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// True if the file can neither shrink nor grow.
pub fn size_is_sealed(fd: BorrowedFd<'_>) -> bool {
    let want = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    fcntl(fd, FcntlArg::F_GET_SEALS)
        .is_ok_and(|bits| SealFlag::from_bits_truncate(bits).contains(want))
}

/// True unless the file is on hugetlbfs. A hole punched into such a file may have no page to fill
/// it, and an access to the hole is then fatal.
///
/// The block size of a file is no indication. The block size of tmpfs is 2 MiB too if the system
/// backs shared memory with transparent huge pages. Such huge pages can be split and refilled.
pub fn has_small_pages(fd: BorrowedFd<'_>) -> bool {
    statfs::fstatfs(fd).is_ok_and(|told| told.filesystem_type() != statfs::HUGETLBFS_MAGIC)
}

/// Length of the file in bytes.
pub fn file_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(usize::try_from(nix::sys::stat::fstat(fd)?.st_size).unwrap_or(0))
}

fn nonzero(len: usize) -> io::Result<NonZeroUsize> {
    NonZeroUsize::new(len).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Maps `len` bytes of `fd`, readable and writable, shared with all other mappings of the file.
pub fn map_shared(fd: impl AsFd, len: usize) -> io::Result<NonNull<u8>> {
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing.
    let p = unsafe { mmap(None, nonzero(len)?, prot, MapFlags::MAP_SHARED, fd, 0)? };
    Ok(p.cast())
}

/// Required alignment of offsets and lengths for mappings of `fd`.
pub fn page_size(fd: BorrowedFd<'_>) -> io::Result<usize> {
    if has_small_pages(fd) {
        return Ok(small_page());
    }
    let size = usize::try_from(nix::sys::stat::fstat(fd)?.st_blksize).unwrap_or(0);
    Ok(if size.is_power_of_two() { size.max(small_page()) } else { small_page() })
}

/// Maps `len` bytes of `fd` at `offset`, as [`map_shared`] does. `len` and `offset` must be
/// multiples of the file's page size.
pub fn map_shared_at(fd: impl AsFd, offset: u64, len: usize) -> io::Result<NonNull<u8>> {
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let offset = i64::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing.
    let p = unsafe { mmap(None, nonzero(len)?, prot, MapFlags::MAP_SHARED, fd, offset)? };
    Ok(p.cast())
}

/// Maps `len` bytes of private zeroed memory.
pub fn map_private(len: usize, huge: bool) -> io::Result<NonNull<u8>> {
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let mut flags = MapFlags::MAP_PRIVATE;
    if huge {
        flags |= MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB;
    }
    // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing.
    let p = unsafe { mmap_anonymous(None, nonzero(len)?, prot, flags)? };
    Ok(p.cast())
}

/// Requests transparent huge pages. A refusal is ignored.
///
/// # Safety
/// `ptr..ptr + len` must be one live mapping.
pub unsafe fn advise_huge(ptr: NonNull<u8>, len: usize) {
    // SAFETY: required of the caller; MADV_HUGEPAGE does not change the contents.
    let _ = unsafe { madvise(ptr.cast(), len, MmapAdvise::MADV_HUGEPAGE) };
}

/// Prefers NUMA node `node` for untouched pages of the range. A refusal (one node only, no
/// permission) is ignored, because placement is only a preference.
///
/// # Safety
/// `ptr..ptr + len` must be one live mapping.
pub unsafe fn prefer_node(ptr: NonNull<u8>, len: usize, node: u32) {
    const MPOL_PREFERRED: libc::c_ulong = 1;
    let mut mask = [0u64; 16];
    let Some(word) = mask.get_mut(node as usize / 64) else { return };
    *word = 1 << (node % 64);
    // SAFETY: the mask outlives the call; mbind only sets the policy of the range.
    unsafe {
        libc::syscall(libc::SYS_mbind, ptr.as_ptr(), len, MPOL_PREFERRED, mask.as_ptr(), 1024, 0);
    }
}

/// Makes memory executable and read-only.
///
/// # Safety
/// `ptr..ptr + len` must be one live mapping without references to it.
pub unsafe fn make_executable(ptr: NonNull<u8>, len: usize) -> io::Result<()> {
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: required of the caller.
    unsafe { mprotect(ptr.cast(), len, prot)? };
    Ok(())
}

/// Removes a mapping.
///
/// # Safety
/// `ptr..ptr + len` must be one live mapping, and no pointer to it may be used afterwards.
pub unsafe fn unmap(ptr: NonNull<u8>, len: usize) {
    // SAFETY: the caller no longer uses the mapping.
    let _ = unsafe { munmap(ptr.cast(), len) };
}
