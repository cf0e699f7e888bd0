//! Pool configuration and its errors.

use crate::page::PAGES_MAX;

pub(crate) const PAGE_SIZE_MIN: u32 = 4096;
const PAGE_SIZE_MAX: u32 = 2 << 20;

/// Configuration of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Number of pages of the arena, at most 2^20. Unused pages occupy no memory.
    pub pages: u32,
    /// Page size in bytes: a power of two from 4 KiB to 2 MiB.
    pub page_size: u32,
    /// Entries of the return ring, at most 16384. The value 0 selects the number of pages, but at
    /// least 1024.
    pub ring_size: u32,
    /// Preferred NUMA node. The kernel places a page at its first access.
    pub node: Option<u32>,
    /// True to use huge pages for the arena if the system has free ones.
    pub huge: bool,
    /// Mapping of the pages for a device.
    pub mapping: Mapping,
}

/// Address space in which a device reaches the pages of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Pages are only allocated. A queue that passes a page to a device maps the page, if the
    /// device needs a mapping.
    #[default]
    Allocation,
    /// All pages are mapped for the device while the pool exists. The value is the device address
    /// (IOVA) of page 0; the other pages follow.
    Device(u64),
}

impl Mapping {
    /// Name in listings of pools.
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

/// Reason why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Page size that is not a power of two, or is out of range.
    #[error("page size {0} is not a power of two from 4096 to 2097152")]
    PageSize(u32),
    /// Number of pages that is 0 or too large.
    #[error("a page pool has 1 to {PAGES_MAX} pages, not {0}")]
    Pages(u32),
    /// Memory of the caller that is too short, or begins at an offset that is not a multiple of 64.
    #[error("{pages} pages of {page_size} bytes do not fit into {len} bytes, aligned")]
    Memory {
        /// Requested pages.
        pages: u32,
        /// Page size in bytes.
        page_size: u32,
        /// Length of the memory in bytes.
        len: usize,
    },
    /// No free identity: all 4095 are in use.
    #[error("too many page pools in this process (4095, lost pages of closed ones included)")]
    TooManyPools,
    /// Memory that cannot be allocated.
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
