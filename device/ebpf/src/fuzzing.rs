//! Generated programs, tested against a reference machine that tracks each byte.
//!
//! A program that the verifier accepts runs on the reference machine first. The machine reports any
//! access outside of the program's memory. It also reports a run of more instructions than the
//! verifier walked. Before each instruction, the machine compares its state with the verifier's
//! claims. The interpreter and the compiled code must then produce identical results.

mod calls;
mod generate;
mod machine;

use std::sync::Arc;

use crate::elf::ObjectProgram;
use crate::helper;
use crate::insn::{Insn, class, jmp};
use crate::map::{MapDef, MapKind};
use crate::mode::ExecutionMode;
use crate::run::{HEADROOM, Origin, Program, Verdict, XdpAction};
use crate::verify::{State, verify_watched};
use calls::NOW;
use generate::Generator;
use machine::{Machine, Values};

/// Maximum number of instructions that the verifier walks; it rejects programs beyond this limit.
const WALKED_MAX: u32 = 4000;
const CALL: u8 = class::JMP | jmp::CALL;
const CHANNELS: u16 = 2;
const TAILROOM: usize = 48;

/// Result of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzOutcome {
    /// The program did not run: the verifier or a runtime rejected it, or its results are random.
    Refused,
    /// The program ran on the machine and in both runtimes, with identical effects.
    Ran,
}

fn map(name: &str, kind: MapKind, numbers: [u32; 3], init: Vec<u8>) -> MapDef {
    let [key_size, value_size, max_entries] = numbers;
    let readonly = name == "constants";
    MapDef { name: name.into(), kind, key_size, value_size, max_entries, init, readonly }
}

fn maps() -> Vec<MapDef> {
    vec![
        map("array", MapKind::Array, [4, 60, 2], (0..60).collect()),
        map("hash", MapKind::Hash, [4, 16, 2], Vec::new()),
        map("constants", MapKind::Array, [4, 40, 1], (100..140).collect()),
        map("each", MapKind::PercpuArray, [4, 12, 2], Vec::new()),
    ]
}

fn program(insns: &[Insn], mode: ExecutionMode) -> Result<Arc<Program>, String> {
    let (name, section) = ("any".to_owned(), "xdp".to_owned());
    let object = ObjectProgram { name, section, insns: insns.to_vec(), maps: maps() };
    Program::new(object, mode, CHANNELS).map_err(|e| e.to_string())
}

fn text(insns: &[Insn]) -> String {
    let lines = insns.iter().enumerate().map(|(i, insn)| format!("{i:4}: {insn}\n"));
    lines.collect()
}

fn action(r0: u64, redirect: u32) -> XdpAction {
    match r0 as u32 {
        1 => XdpAction::Drop,
        2 => XdpAction::Pass,
        3 => XdpAction::Tx,
        4 if redirect != 0 => XdpAction::Redirect(redirect),
        _ => XdpAction::Aborted,
    }
}

/// Generates a program and a frame from `data`, and checks the program. An error describes a
/// violation.
pub fn any_program(data: &[u8]) -> Result<FuzzOutcome, String> {
    let (frame, code) = data.split_at(data.len() / 4);
    let insns = Generator::new(code).program();
    check(&insns, frame)
}

/// Checks a program with the input `frame`. An error describes a violation.
pub(crate) fn check(insns: &[Insn], frame: &[u8]) -> Result<FuzzOutcome, String> {
    let mut claims: Vec<Vec<State>> = vec![Vec::new(); insns.len()];
    let mut watch = |at: usize, state: &State| claims[at].push(state.clone());
    let proof = verify_watched(insns, &maps(), WALKED_MAX, &mut watch);
    let Ok(proof) = proof else { return Ok(FuzzOutcome::Refused) };
    // Skip programs with random results, which cannot be compared.
    if insns.iter().any(|insn| insn.code == CALL && insn.imm == helper::RANDOM) {
        return Ok(FuzzOutcome::Refused);
    }
    let fail = |why: String| format!("{why}\n{}", text(insns));
    let modes = [ExecutionMode::Interpret, ExecutionMode::BEST];
    let loaded: Result<Vec<_>, _> = modes.iter().map(|mode| program(insns, *mode)).collect();
    // Skip programs that a runtime rejects.
    let Ok(loaded) = loaded else { return Ok(FuzzOutcome::Refused) };
    let mut values: Vec<Values> = maps().iter().map(|def| Values::new(def, CHANNELS)).collect();
    for (round, len) in [frame.len().min(70), 20, 0].into_iter().enumerate() {
        let channel = round as u16 % CHANNELS;
        let mut page = vec![0xa5; HEADROOM + len + TAILROOM];
        let bytes = frame.iter().copied().chain(std::iter::repeat(7));
        page[HEADROOM..HEADROOM + len].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        let place = (HEADROOM, len);
        let mut machine = Machine::new(insns, &claims, &mut values, page.clone(), place, channel);
        let r0 = machine.run(proof.walked).map_err(fail)?;
        let want = Verdict {
            action: action(r0, machine.redirect),
            start: machine.start(),
            len: (machine.end - machine.data) as usize,
        };
        let want = (want, machine.page);
        for program in &loaded {
            let mut page = page.clone();
            let from = Origin { ifindex: 3, channel, clock: || NOW };
            let got = (program.run(&mut page, HEADROOM, len, from), page);
            if got != want {
                let mode = program.mode().name();
                return Err(fail(format!("round {round}, {mode}: {:?}, not {:?}", got.0, want.0)));
            }
            for (map, values) in program.maps().iter().zip(&values) {
                if map.dump(100) != values.dump() {
                    let mode = program.mode().name();
                    return Err(fail(format!("round {round}, {mode}: map {}", map.def().name)));
                }
            }
        }
    }
    Ok(FuzzOutcome::Ran)
}

#[cfg(test)]
mod tests;
