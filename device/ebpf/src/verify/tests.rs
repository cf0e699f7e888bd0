use super::verify;
use crate::insn::{Insn, LDDW};
use crate::map::MapDef;

fn refused(insns: &[(u8, u8, u8, i16, i32)]) -> String {
    let insns: Vec<Insn> =
        insns.iter().map(|&(code, dst, src, off, imm)| Insn { code, dst, src, off, imm }).collect();
    verify(&insns, &[]).err().map_or_else(|| "accepted".to_owned(), |e| e.to_string())
}

const EXIT: (u8, u8, u8, i16, i32) = (0x95, 0, 0, 0, 0);

// Goal: programs that no compiler emits are rejected: partial pointers, jumps into constants,
// missing ends, unknown registers and opcodes, classic packet loads.
#[test]
fn malformed_programs_are_refused() {
    for (insns, want) in [
        (vec![], "insn 0: nothing: 0 instructions"),
        (vec![EXIT], "r0 is read before it is written"),
        (vec![(0xb7, 0, 0, 0, 1)], "runs past its end"),
        (vec![(0x05, 0, 0, 5, 0), EXIT], "jumps out of the program"),
        (vec![(0x05, 0, 0, -1, 0)], "not proven to end"),
        (vec![(0x05, 0, 0, 1, 0), (LDDW, 0, 0, 0, 1), (0, 0, 0, 0, 0), EXIT], "into the middle"),
        (vec![(LDDW, 0, 0, 0, 1), EXIT], "lacks its second half"),
        (vec![(0xb7, 11, 0, 0, 1), EXIT], "a register that does not exist"),
        (vec![(0xb7, 10, 0, 0, 1), EXIT], "the frame pointer, cannot be written"),
        (vec![(0xbc, 0, 1, 0, 0), EXIT], "half of the context is copied"),
        (vec![(0x20, 0, 0, 0, 0), EXIT], "as classic BPF does"),
        (vec![(0xb7, 0, 0, 0, 1), (0x37, 0, 0, 0, 0), EXIT], "divides by 0"),
        (vec![(0xb7, 0, 0, 0, 1), (0x67, 0, 0, 0, 64), EXIT], "shifts by 64"),
        (vec![(0xb7, 0, 0, 0, 1), (0xff, 0, 0, 0, 0), EXIT], "is not known"),
        (vec![(0xbf, 0, 1, 0, 0), EXIT], "r0 is the context, not an action"),
        (vec![(0x85, 0, 1, 0, 1), EXIT], "a call of kind 1"),
        (vec![(0x85, 0, 0, 0, 9999), EXIT], "helper 9999 is not supported"),
    ] {
        let got = refused(&insns);
        assert!(got.contains(want), "{got}: not {want}");
    }
}

// Goal: an instruction that accesses the context on one path and other memory on another is
// rejected, because the instruction could be rewritten for only one of the paths.
#[test]
fn access_has_one_memory_kind_on_all_paths() {
    let got = refused(&[
        (0x61, 3, 1, 12, 0),
        (0xbf, 2, 1, 0, 0),
        (0x15, 3, 0, 2, 0),
        (0x7b, 10, 3, -8, 0),
        (0xbf, 2, 10, 0, 0),
        (0x61, 0, 2, 12, 0),
        EXIT,
    ]);
    assert!(got.contains("outside its 512 bytes") || got.contains("on one path"), "{got}");
}

fn map() -> MapDef {
    MapDef::checked("one", 2, [4, 8, 1, 0]).unwrap()
}

/// Verifies a program with one map of 8 bytes. Returns the error or "accepted".
fn with_map(insns: &[(u8, u8, u8, i16, i32)]) -> String {
    let insns: Vec<Insn> =
        insns.iter().map(|&(code, dst, src, off, imm)| Insn { code, dst, src, off, imm }).collect();
    verify(&insns, &[map()]).err().map_or_else(|| "accepted".to_owned(), |e| e.to_string())
}

// Goal: the remaining bytes of a partly overwritten saved pointer cannot be read, and no helper
// reads a saved pointer.
#[test]
fn saved_pointers_do_not_leak() {
    // Save r10, overwrite one byte of the saved pointer, and read a part of the slot.
    let saved = [(0x7b, 10, 10, -8, 0), (0x72, 10, 0, -8, 0)];
    for (read, want) in [
        ((0x79, 0, 10, -8, 0), "byte -7 of the stack is read and was never written"),
        ((0x69, 0, 10, -6, 0), "byte -6 of the stack is read and was never written"),
        ((0x71, 0, 10, -8, 0), "accepted"),
    ] {
        let got = refused(&[saved[0], saved[1], read, EXIT]);
        assert!(got.contains(want), "{got}: not {want}");
    }
    // Overwrite four bytes of a saved pointer by bpf_xdp_load_bytes.
    let by_helper = |last: (u8, u8, u8, i16, i32)| {
        refused(&[
            (0x7b, 10, 1, -8, 0),
            (0xb7, 2, 0, 0, 0),
            (0xbf, 3, 10, 0, 0),
            (0x07, 3, 0, 0, -8),
            (0xb7, 4, 0, 0, 4),
            (0x85, 0, 0, 0, 189),
            last,
            EXIT,
        ])
    };
    assert!(by_helper((0x61, 0, 10, -4, 0)).contains("never written"));
    assert_eq!(by_helper((0x61, 0, 10, -8, 0)), "accepted");
    // Update a map with the context as the value.
    let got = with_map(&[
        (0x7b, 10, 1, -8, 0),
        (0x62, 10, 0, -16, 0),
        (LDDW, 1, 1, 0, 0),
        (0, 0, 0, 0, 0),
        (0xbf, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -16),
        (0xbf, 3, 10, 0, 0),
        (0x07, 3, 0, 0, -8),
        (0xb7, 4, 0, 0, 0),
        (0x85, 0, 0, 0, 2),
        EXIT,
    ]);
    assert!(got.contains("the helper reads the context that was saved there"), "{got}");
}

// Goal: the memory for pending paths is bounded: a loop that adds one path per iteration is
// rejected long before it is walked completely.
#[test]
fn pending_paths_are_bounded() {
    let got = refused(&[
        (0x61, 2, 1, 12, 0),
        (0xb7, 3, 0, 0, 0),
        (0x2d, 3, 2, 2, 0),
        (0x07, 3, 0, 0, 1),
        (0x05, 0, 0, -3, 0),
        (0xb7, 0, 0, 0, 2),
        EXIT,
    ]);
    assert!(got.contains("too many paths"), "{got}");
}
