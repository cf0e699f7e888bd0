use super::*;
use crate::insn::X;

const MOV: u8 = 0xb7;
const CALL: u8 = 0x85;

fn insn((code, dst, src, off, imm): (u8, u8, u8, i16, i32)) -> Insn {
    Insn { code, dst, src, off, imm }
}

fn inlined(insns: &[(u8, u8, u8, i16, i32)]) -> Result<Vec<Insn>, String> {
    inline(insns.iter().copied().map(insn).collect()).map_err(|e| e.to_string())
}

// Goal: a function's accesses to its frame move below the caller's frame, and registers that the
// caller uses later are preserved.
#[test]
fn frames_are_stacked_below_the_caller() {
    let got = inlined(&[
        (MOV, 6, 0, 0, 3),
        (0x7a, 10, 0, -16, 7),
        (CALL, 0, PSEUDO_CALL, 0, 2),
        (0x0f, 0, 6, 0, 0),
        (EXIT, 0, 0, 0, 0),
        (0xb7, 6, 0, 0, 9),
        (0xbf, 1, 10, 0, 0),
        (0x7b, 10, 6, -8, 0),
        (0x15, 6, 0, 1, 0),
        (0x79, 0, 10, -8, 0),
        (EXIT, 0, 0, 0, 0),
    ]);
    let want = [
        (MOV, 6, 0, 0, 3),
        (0x7a, 10, 0, -16, 7),
        (STORE64, 10, 6, -24, 0),
        (0xb7, 6, 0, 0, 9),
        (0xbf, 1, 10, 0, 0),
        (0x07, 1, 0, 0, -24),
        (0x7b, 10, 6, -32, 0),
        (0x15, 6, 0, 1, 0),
        (0x79, 0, 10, -32, 0),
        (JA, 0, 0, 0, 0),
        (LOAD64, 6, 10, -24, 0),
        (0x0f, 0, 6, 0, 0),
        (EXIT, 0, 0, 0, 0),
    ];
    assert_eq!(got.unwrap(), want.map(insn));
}

// Goal: functions without an end, recursion, calls that are too deep, and stacks that are too large
// are rejected with a message, without a panic or unbounded growth.
#[test]
fn programs_that_cannot_be_inlined_are_refused() {
    let exit = (EXIT, 0, 0, 0, 0);
    let call = |imm| (CALL, 0, PSEUDO_CALL, 0, imm);
    let deep: Vec<_> = (0..9).flat_map(|_| [call(1), exit]).chain([exit]).collect();
    let wide: Vec<_> =
        (0..3).flat_map(|_| [(0x7a, 10, 0, -200, 0), call(1), exit]).chain([exit]).collect();
    // Each of seven functions calls the next one ten times.
    let many: Vec<_> =
        (0..7).flat_map(|_| (0..10).map(|i| call(10 - i)).chain([exit])).chain([exit]).collect();
    let cases = [
        (vec![call(-1), exit], "calls itself"),
        (vec![call(1), exit, call(-3), exit], "calls itself"),
        (vec![call(9), exit], "outside the program"),
        (vec![call(i32::MIN), exit], "outside the program"),
        (vec![call(1), exit, (MOV, 0, 0, 0, 1)], "has no end"),
        (vec![call(1), exit, (LDDW, 0, 0, 0, 1)], "has no end"),
        (vec![call(1), exit, (JA, 0, 0, -2, 0)], "before its function"),
        (vec![call(1), exit, (0x7b, 1, 10, 0, 0), exit], "accepted"),
        (vec![(0x7a, 10, 0, -8, 0), call(1), exit, (0x7b, 1, 10, 0, 0), exit], "frame pointer"),
        (deep, "deeper than 8"),
        (wide, "512 bytes of stack together"),
        (many, "instructions with all functions"),
    ];
    for (insns, want) in cases {
        let got = inlined(&insns).err().unwrap_or_else(|| "accepted".to_owned());
        assert!(got.contains(want), "{got}: not {want}");
    }
    let jump = inlined(&[call(1), exit, (0x05 | X, 0, 0, 0, 0), exit]);
    assert!(jump.is_ok());
}
