//! What a pool is made of, and why it cannot be.

use crate::page::PAGES_MAX;

pub(crate) const PAGE_SIZE_MIN: u32 = 4096;
const PAGE_SIZE_MAX: u32 = 2 << 20;

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Pages of the arena, at most 2^20. They cost no memory until they are first used.
    pub pages: u32,
    /// Bytes of a page: a power of two from 4 KiB to 2 MiB.
    pub page_size: u32,
    /// Entries of the return ring; 0 means as many as there are pages, 1024 at least; more than
    /// 16384 means 16384.
    pub ring_size: u32,
    /// The NUMA node that the pages should be on; a page is placed when it is first touched.
    pub node: Option<u32>,
    /// Use huge pages for the arena if the machine has some free.
    pub huge: bool,
    /// Whether a device knows the pages by addresses of its own.
    pub mapping: Mapping,
}

/// How a device finds the pages of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// The pool is for allocation only: whoever lends a page to a device maps it there, if need be.
    #[default]
    Allocation,
    /// All pages are mapped for the device once, as long as the pool lives. This is the device's
    /// address (IOVA) of page 0; the others follow.
    Device(u64),
}

impl Mapping {
    /// Its name in listings of pools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Device(_) => "device",
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        let mapping = Mapping::Allocation;
        Self { pages: 1024, page_size: 4096, ring_size: 0, node: None, huge: false, mapping }
    }
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Not a power of two, or out of range.
    #[error("page size {0} is not a power of two from 4096 to 2097152")]
    PageSize(u32),
    /// None, or too many.
    #[error("a page pool has 1 to {PAGES_MAX} pages, not {0}")]
    Pages(u32),
    /// The caller's own memory is too short, or does not begin at a multiple of 64.
    #[error("{pages} pages of {page_size} bytes do not fit into {len} bytes, aligned")]
    Memory {
        /// Pages wanted.
        pages: u32,
        /// Their size.
        page_size: u32,
        /// Bytes that were given.
        len: usize,
    },
    /// Handles tell 4095 pools apart.
    #[error("too many page pools in this process (4095, lost pages of closed ones included)")]
    TooManyPools,
    /// No memory.
    #[error(transparent)]
    System(#[from] mqnet_shmem::Error),
}

pub(crate) fn check(config: &PoolConfig) -> Result<(), PoolError> {
    let &PoolConfig { pages, page_size, .. } = config;
    let range = PAGE_SIZE_MIN..=PAGE_SIZE_MAX;
    if !page_size.is_power_of_two() || !range.contains(&page_size) {
        return Err(PoolError::PageSize(page_size));
    }
    if !(1..=PAGES_MAX).contains(&pages) {
        return Err(PoolError::Pages(pages));
    }
    Ok(())
}
