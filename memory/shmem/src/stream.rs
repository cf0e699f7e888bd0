//! Non-temporal copies (`movntdq` on x86-64; not available elsewhere).

use mqnet_rings::prefetch;

/// Bytes per non-temporal store.
pub(crate) const UNIT: usize = 16;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// True if this CPU has non-temporal stores.
pub(crate) const fn is_possible() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Permission for non-temporal stores, to be dropped before the stored data is published. The drop
/// executes a fence that orders those stores before all later ones. A Release store alone does not
/// order them.
#[derive(Debug)]
pub struct Streaming(());

impl Streaming {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl Drop for Streaming {
    /// Pairs with the reader's Acquire load of the next publication, together with the writer's
    /// Release store.
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a fence changes no memory; every x86-64 CPU has SSE.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Stores one unit non-temporally.
///
/// # Safety
/// `to` must be aligned to the unit, and writable for one unit.
#[inline(always)]
pub(crate) unsafe fn unit(to: *mut u8, value: [u8; UNIT]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: required of the caller; every x86-64 CPU has SSE2.
    unsafe {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        _mm_stream_si128(to.cast(), _mm_loadu_si128(value.as_ptr().cast()));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: required of the caller.
    unsafe {
        to.cast::<[u8; UNIT]>().write(value);
    }
}

/// Copies `n` bytes non-temporally, in whole units; the last unit is padded with zeros.
///
/// # Safety
/// `to` must be aligned to the unit. `from` must hold `n` bytes, and `to` the same number rounded
/// up to whole units. The ranges must not overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    let whole = n & !(UNIT - 1);
    // SAFETY: at + UNIT <= whole <= n; `to` is aligned because all steps are units. The rest is
    // required of the caller.
    unsafe {
        for at in (0..whole).step_by(UNIT) {
            unit(to.add(at), from.add(at).cast::<[u8; UNIT]>().read());
        }
        if whole < n {
            let mut last = [0; UNIT];
            std::ptr::copy_nonoverlapping(from.add(whole), last.as_mut_ptr(), n - whole);
            unit(to.add(whole), last);
        }
    }
}

/// Copies `n` bytes, with non-temporal stores for whole lines. Partial lines at both ends use
/// cached stores and are prefetched. (A line with both kinds of stores is slower than all other
/// lines together.)
///
/// # Safety
/// Both ranges must hold `n` bytes and not overlap.
#[inline]
pub(crate) unsafe fn copy_lines(from: *const u8, to: *mut u8, n: usize) {
    let front = to.align_offset(LINE).min(n);
    let whole = (n - front) & !(LINE - 1);
    let rest = n - front - whole;
    // SAFETY: the three segments are n bytes together, and the second consists of whole lines; the
    // rest is required of the caller.
    unsafe {
        let behind = to.add(front + whole);
        if rest > 0 {
            prefetch::for_writing(behind);
        }
        std::ptr::copy_nonoverlapping(from, to, front);
        copy(from.add(front), to.add(front), whole);
        std::ptr::copy_nonoverlapping(from.add(front + whole), behind, rest);
    }
}
