//! Cache-line demotion (CLDEMOTE): moves lines that were just written to the shared cache.
//!
//! A load of a line that is modified in another core's cache waits for that core. `cldemote`
//! (Intel) is a hint to move the line to the shared cache, from which loads complete sooner
//! (book/src/measurements/findings.md, *handed on*). The hint costs the writer some time, and more
//! if the reader runs on the same core. The hint is therefore used only if the reader is behind,
//! and for lines with dependent loads. Sequential lines need no hint, because the hardware
//! prefetcher covers them. (Batches of a return ring are sequential too, but only a few lines
//! long.)

use crate::prefetch::{LINE, lines_of};

/// True if the CPU supports the hint.
#[cfg(target_arch = "x86_64")]
pub fn is_possible() -> bool {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    use std::sync::LazyLock;
    // Test for the instruction: other CPUs execute it as a no-op, but some emulators (valgrind)
    // lack it.
    static POSSIBLE: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: every x86-64 CPU has `cpuid`. (Newer Rust versions than the minimum supported one
        // declare these functions safe.) Intel SDM, CPUID, leaf 7, ECX bit 25.
        #[allow(unused_unsafe)]
        unsafe {
            __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).ecx & 1 << 25 != 0
        }
    });
    *POSSIBLE
}

/// True if the CPU supports the hint; always false on this architecture.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_possible() -> bool {
    false
}

/// Demotes the lines of `len` bytes from `at` on, which may be any address. Call only if
/// [`is_possible`] is true.
#[inline(always)]
pub fn lines(at: *const u8, len: usize) {
    let mut line = at.wrapping_sub(at.addr() % LINE);
    for _ in 0..lines_of(at.addr(), len) {
        demote_line(line);
        line = line.wrapping_add(LINE);
    }
}

#[inline(always)]
fn demote_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint neither faults nor changes memory.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: demotion of any range changes no memory, and no address causes a fault.
    #[test]
    fn demotion_changes_no_memory() {
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
