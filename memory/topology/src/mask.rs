//! CPU masks in the kernel's format: `00ff,00000001`, hexadecimal words of 32 CPUs, highest first.

use crate::cpulist::{BadList, CPU_MAX};

/// Parses a mask. The result is ascending.
pub fn parse_cpu_mask(text: &str) -> Result<Vec<usize>, BadList> {
    let bad = || BadList(text.to_owned());
    let mut cpus = Vec::new();
    for (group, word) in text.trim().rsplit(',').enumerate() {
        if word.is_empty() || word.len() > 8 || !word.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let word = u32::from_str_radix(word, 16).map_err(|_| bad())?;
        cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| group * 32 + bit));
    }
    if cpus.last().is_some_and(|&last| last > CPU_MAX) { Err(bad()) } else { Ok(cpus) }
}

/// Formats a mask as the kernel prints it on a system with `width` CPU numbers. The kernel would
/// reject a wider mask.
pub fn format_cpu_mask(cpus: &[usize], width: usize) -> String {
    let top = cpus.iter().max().map_or(1, |top| top + 1);
    let width = width.max(top);
    let mut words = vec![0u32; width.div_ceil(32)];
    cpus.iter().for_each(|&cpu| words[cpu / 32] |= 1 << (cpu % 32));
    let mut out = String::new();
    for (group, word) in words.iter().enumerate().rev() {
        let bits = (width - group * 32).min(32);
        let comma = if out.is_empty() { "" } else { "," };
        out += &format!("{comma}{word:0digits$x}", digits = bits.div_ceil(4));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: masks are formatted as in sysfs on systems with 2, 24 and 40 CPUs, and invalid text is
    // rejected.
    #[test]
    fn masks_have_the_kernels_format() {
        assert_eq!(format_cpu_mask(&[0], 2), "1");
        assert_eq!(format_cpu_mask(&[12], 24), "001000");
        assert_eq!(format_cpu_mask(&[0], 40), "00,00000001");
        assert_eq!(format_cpu_mask(&[], 4), "0");
        assert_eq!(parse_cpu_mask("00,00000001\n"), Ok(vec![0]));
        for bad in ["", "x", "1,,2", "123456789", "+1"] {
            assert!(parse_cpu_mask(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        // Goal: formatting and parsing restores every set of CPUs, for any width, and no text
        // causes a panic.
        #[test]
        fn round_trip(
            cpus in prop::collection::btree_set(0usize..300, 0..40),
            width in 1usize..320,
            text in "[0-9a-f,]{0,30}",
        ) {
            let cpus: Vec<usize> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpu_mask(&format_cpu_mask(&cpus, width)), Ok(cpus));
            if let Ok(parsed) = parse_cpu_mask(&text) {
                prop_assert_eq!(parse_cpu_mask(&format_cpu_mask(&parsed, 1)), Ok(parsed));
            }
        }
    }
}
