//! Prefetch of cache lines.
//!
//! A core's stores complete in order. The stores of a burst into slots that the other side has read
//! therefore wait for their lines one after the other, unless all lines are prefetched before the
//! first store. A reader prefetches the lines of its next burst while it processes the current one,
//! and then finds them in its cache. Measurements: book/src/measurements/findings.md, *Rings and
//! the page pool*.

/// Length of a cache line in bytes: that of x86-64 and of most arm64 CPUs. A longer line is
/// prefetched twice.
pub(crate) const LINE: usize = 64;

/// Maximum number of lines prefetched per burst: a core has 10 to 16 line fill buffers.
const LINES_MAX: usize = 16;

/// Prefetches a cache line for reading, if the CPU supports that. Every address is allowed.
#[inline(always)]
pub fn for_reading<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes memory; every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch neither faults nor changes memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Prefetches a cache line for writing. Every address is allowed. Every x86-64 CPU accepts
/// `prefetchw`, every arm64 CPU `prfm`; the effect depends on the CPU.
#[inline(always)]
pub fn for_writing<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes memory.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch neither faults nor changes memory.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Number of lines that the `len` bytes from address `at` on touch.
#[inline(always)]
pub(crate) fn lines_of(at: usize, len: usize) -> usize {
    if len == 0 { 0 } else { (at % LINE + len).div_ceil(LINE) }
}

/// Calls `fetch` for the first [`LINES_MAX`] lines of a burst: the part up to the ring's end, then
/// the part from its start. A burst of at most one line is skipped.
#[inline(always)]
pub(crate) fn burst<T>(one: &[T], two: &[T], fetch: impl Fn(*const u8)) {
    if size_of_val(one) + size_of_val(two) <= LINE {
        return;
    }
    let mut left = LINES_MAX;
    for piece in [one, two] {
        let mut line = piece.as_ptr().cast::<u8>();
        let lines = lines_of(line.addr(), size_of_val(piece)).min(left);
        for _ in 0..lines {
            fetch(line);
            line = line.wrapping_add(LINE);
        }
        left -= lines;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    // Goal: the count is that of the lines that a range touches.
    #[test]
    fn lines_are_counted() {
        for (at, len, lines) in [
            (0, 0, 0),
            (63, 0, 0),
            (0, 1, 1),
            (63, 1, 1),
            (63, 2, 2),
            (64, 64, 1),
            (80, 64, 2),
            (16, 112, 2),
            (16, 113, 3),
            (usize::MAX - 100, 90, 2),
        ] {
            assert_eq!(lines_of(at, len), lines, "{len} bytes at {at}");
        }
    }

    // Goal: each line of both parts is prefetched once, at most 16 in total, and none for a burst
    // of at most one line.
    #[test]
    fn each_line_once() {
        let all = [0u64; 512];
        let begin = all.as_ptr().align_offset(LINE);
        let lines = |from: usize, n: usize| {
            let piece = &all[begin + from..][..n];
            let mut lines: Vec<usize> =
                piece.iter().map(|entry| std::ptr::from_ref(entry).addr() / LINE).collect();
            lines.dedup();
            (piece, lines)
        };
        for (from, n, cut) in [
            (3, 0, 0),
            (0, 8, 0),
            (3, 5, 3),
            (3, 8, 1),
            (7, 2, 0),
            (0, 32, 0),
            (1, 33, 0),
            (5, 27, 5),
            (2, 400, 0),
            (2, 100, 40),
        ] {
            let (one, mut expected) = lines(from, n);
            let (two, more) = lines(0, cut);
            expected.extend(more);
            expected.truncate(if n + cut <= 8 { 0 } else { LINES_MAX });
            let fetched = RefCell::new(Vec::new());
            burst(one, two, |line| fetched.borrow_mut().push(line.addr() / LINE));
            assert_eq!(fetched.into_inner(), expected, "{n} from {from}, and {cut}");
        }
    }

    // Goal: no address causes a fault.
    #[test]
    fn any_address_may_be_given() {
        for at in [0, 1, 4096, usize::MAX / 2, usize::MAX] {
            for_reading(std::ptr::without_provenance::<u8>(at));
            for_writing(std::ptr::without_provenance::<u8>(at));
        }
    }
}
