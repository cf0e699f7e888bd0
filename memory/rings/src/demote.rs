//! Lines that were just written, handed on to the cache that all CPUs share.
//!
//! A reader whose CPU asks for a line that lies changed in the caches of another one waits for that
//! one. `cldemote` (Intel, since 2020) is a hint to move it into the shared cache, from where it
//! comes sooner. A device of DPDK that waits for each header had 18 M frames of 64 B a second
//! without, and 28 to 30 M with it (docs/findings.md, *handed on*). It costs the writer 1 to 3 ns a
//! line, and 35 ns where the reader turns out to run on the writer's own CPU. So it is for a writer
//! who has the time (one whose reader is behind), and for lines that a reader waits for one after
//! the other: those that come in order its CPU has asked for by itself. (The batches of a return
//! ring come in order, too, but only a few lines at a time.)

use crate::prefetch::{LINE, lines_of};

/// Whether this machine has such a hint.
#[cfg(target_arch = "x86_64")]
pub fn is_possible() -> bool {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    use std::sync::LazyLock;
    // Others take it for a no-op, but for those that know no such instruction (valgrind).
    static POSSIBLE: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: every x86-64 has `cpuid`. (These are safe functions since some Rust after the
        // oldest that we take.) Intel SDM, CPUID, leaf 7, ECX bit 25.
        #[allow(unused_unsafe)]
        unsafe {
            __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).ecx & 1 << 25 != 0
        }
    });
    *POSSIBLE
}

/// Whether this machine has such a hint.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_possible() -> bool {
    false
}

/// Hands on the lines of `len` bytes from `at` on. Any address may be given; only where
/// [`is_possible`].
#[inline(always)]
pub fn lines(at: *const u8, len: usize) {
    let mut line = at.wrapping_sub(at.addr() % LINE);
    for _ in 0..lines_of(at.addr(), len) {
        hand_on(line);
        line = line.wrapping_add(LINE);
    }
}

#[inline(always)]
fn hand_on(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint neither faults nor changes what memory holds.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: whatever the range, memory holds what it held, and no address is a fault (nor, on an
    // older CPU, the instruction).
    #[test]
    fn nothing_changes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for at in 0..200 {
            for len in [0, 1, 63, 64, 65, 300] {
                lines(bytes[at..].as_ptr(), len);
            }
        }
        for at in [0, 1, 4096, usize::MAX / 2, usize::MAX - 100, usize::MAX] {
            lines(std::ptr::without_provenance(at), 64);
        }
        assert!(bytes.iter().copied().eq(0..=255));
    }
}
