//! Lines that are asked for before they are used.
//!
//! A core's stores leave it in order, so that a burst into slots which the other side has read
//! waits for their lines one after the other, unless all of them are asked for before the first
//! store. And a reader that asks for the lines of its next burst while it works on this one finds
//! them there. Through [`spsc`](crate::spsc) 690 to 800 million entries of 8 bytes a second in
//! bursts of 32, for 450 to 500 without (docs/findings.md, *rings*).

/// A cache line.
pub(crate) const LINE: usize = 64;

/// Most lines of a burst that are asked for: a core waits for 10 to 16 at a time.
const LINES_MAX: usize = 16;

/// Has a cache line fetched for reading, if the machine can be told so. Any address may be given.
#[inline(always)]
pub fn for_reading<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes anything; every x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Has a cache line fetched for writing. Any address may be given. (What the machine makes of
/// `prefetchw`, which every x86-64 takes, is its own affair.)
#[inline(always)]
pub fn for_writing<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes anything.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Lines that `len` bytes at an address have a part in.
#[inline(always)]
pub(crate) fn lines_of(at: usize, len: usize) -> usize {
    if len == 0 { 0 } else { (at % LINE + len).div_ceil(LINE) }
}

/// Has the lines of a burst asked for by `ask`, those up to the ring's end and those from its begin
/// on: the first [`LINES_MAX`]. A burst that is not longer than a line is not worth it.
#[inline(always)]
pub(crate) fn burst<T>(one: &[T], two: &[T], ask: impl Fn(*const u8)) {
    if size_of_val(one) + size_of_val(two) <= LINE {
        return;
    }
    let mut left = LINES_MAX;
    for piece in [one, two] {
        let mut line = piece.as_ptr().cast::<u8>();
        let lines = lines_of(line.addr(), size_of_val(piece)).min(left);
        for _ in 0..lines {
            ask(line);
            line = line.wrapping_add(LINE);
        }
        left -= lines;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    // Goal: all lines that a range has a part in, and no other.
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

    // Goal: each line of each piece is asked for once, of both together only the first 16, and of a
    // burst that is no longer than a line none.
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
            let asked = RefCell::new(Vec::new());
            burst(one, two, |line| asked.borrow_mut().push(line.addr() / LINE));
            assert_eq!(asked.into_inner(), expected, "{n} from {from}, and {cut}");
        }
    }

    // Goal: no address is a fault.
    #[test]
    fn any_address_may_be_given() {
        for at in [0, 1, 4096, usize::MAX / 2, usize::MAX] {
            for_reading(std::ptr::without_provenance::<u8>(at));
            for_writing(std::ptr::without_provenance::<u8>(at));
        }
    }
}
