//! Types of the running kernel (BTF), as far as needed for calls of kernel functions.

use std::sync::OnceLock;

const TYPES_OF_KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const FUNC: u32 = 12;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

/// Number of bytes after the first three words of a type of this kind with `n` members; `None` for
/// an unknown kind.
fn more_bytes(kind: u32, n: usize) -> Option<usize> {
    Some(match kind {
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, data sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => 12 * n,
        // Enumerations, function prototypes.
        6 | 13 => 8 * n,
        0..=19 => 0,
        _ => return None,
    })
}

/// Type id of a function, or `None` if there is no such function.
fn find(btf: &[u8], function: &str) -> Option<u32> {
    if word(btf, 0)? as u16 != MAGIC {
        return None;
    }
    let header = word(btf, 4)? as usize;
    let part = |at: usize| {
        let from = header.checked_add(word(btf, at)? as usize)?;
        btf.get(from..from.checked_add(word(btf, at + 4)? as usize)?)
    };
    let (types, strings) = (part(8)?, part(16)?);
    let (mut at, mut number) = (0, 1);
    while at < types.len() {
        let (name, info) = (word(types, at)? as usize, word(types, at + 4)?);
        let (kind, n) = (info >> 24 & 31, (info & 0xffff) as usize);
        let is_it = || {
            let text = strings.get(name..)?.strip_prefix(function.as_bytes())?;
            (text.first() == Some(&0)).then_some(())
        };
        if kind == FUNC && is_it().is_some() {
            return Some(number);
        }
        at += 12 + more_bytes(kind, n)?;
        number += 1;
    }
    None
}

/// Type id of the kernel function `bpf_xdp_metadata_rx_vlan_tag`, or `None` if it does not exist.
pub(super) fn rx_vlan_tag() -> Option<u32> {
    static NUMBER: OnceLock<Option<u32>> = OnceLock::new();
    let read = || find(&std::fs::read(TYPES_OF_KERNEL).ok()?, "bpf_xdp_metadata_rx_vlan_tag");
    *NUMBER.get_or_init(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(types: &[&[u32]], strings: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = types.concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let sizes = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let magic = u32::from(MAGIC) | 1 << 16;
        let words = [magic].into_iter().chain(sizes).flat_map(u32::to_ne_bytes);
        words.chain(types).chain(strings.iter().copied()).collect()
    }

    // Goal: a function is found by its complete name after types of every kind. Truncated or
    // unknown types yield no function.
    #[test]
    fn functions_are_found_by_name() {
        let strings = b"\0other\0wanted\0wanted_too\0";
        let types: [&[u32]; 6] = [
            &[1, 1 << 24, 4, 32],
            &[0, 13 << 24 | 2, 0, 1, 1, 0, 1],
            &[14, 12 << 24, 2],
            &[7, 4 << 24 | 1, 4, 1, 1, 0],
            &[7, 12 << 24, 2],
            &[1, 12 << 24, 2],
        ];
        let whole = btf(&types, strings);
        assert_eq!(find(&whole, "wanted"), Some(5));
        assert_eq!(find(&whole, "other"), Some(6));
        assert_eq!(find(&whole, "want"), None);
        for n in 0..whole.len() {
            let _ = find(&whole[..n], "wanted");
        }
        assert_eq!(find(&btf(&[&[7, 31 << 24, 0], types[4]], strings), "wanted"), None);
    }
}
