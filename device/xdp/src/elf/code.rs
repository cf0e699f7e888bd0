//! Instructions of a program and of the functions that it calls, one after another.

use object::{File, Object as _, ObjectSection, ObjectSymbol, RelocationTarget, Section};
use object::{SectionIndex, SectionKind, Symbol};

use super::{INSNS_MAX, LoadError, Maps, bad, broken, section_name};
use crate::insn::{Insn, LDDW, PSEUDO_CALL, PSEUDO_MAP, PSEUDO_VALUE, class, jmp};

/// A call of a function in any section.
struct Call {
    at: usize,
    section: SectionIndex,
    target: i64,
}

struct Linker<'m> {
    maps: &'m Maps,
    insns: Vec<Insn>,
    /// Sections, and where they begin in `insns`.
    starts: Vec<(SectionIndex, usize)>,
    calls: Vec<Call>,
}

fn decode(text: &Section<'_, '_>) -> Result<Vec<Insn>, LoadError> {
    let bytes = text.data().map_err(broken)?;
    let (insns, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return bad("the program ends within an instruction");
    }
    if insns.len() > INSNS_MAX {
        return bad(format!("{} instructions, at most {INSNS_MAX}", insns.len()));
    }
    Ok(insns.iter().map(Insn::from_bytes).collect())
}

/// The program of a section, then whatever else it calls; with references to maps as numbers.
pub(super) fn link(
    file: &File<'_>,
    text: &Section<'_, '_>,
    maps: &Maps,
) -> Result<Vec<Insn>, LoadError> {
    let mut linker = Linker { maps, insns: Vec::new(), starts: Vec::new(), calls: Vec::new() };
    linker.add(file, text)?;
    let mut next = 0;
    while let Some(section) = linker.calls.get(next).map(|call| call.section) {
        next += 1;
        if linker.start(section).is_none() {
            let section = file.section_by_index(section).map_err(broken)?;
            linker.add(file, &section)?;
        }
    }
    linker.resolve()
}

impl Linker<'_> {
    fn start(&self, section: SectionIndex) -> Option<usize> {
        self.starts.iter().find(|(index, _)| *index == section).map(|(_, start)| *start)
    }

    fn add(&mut self, file: &File<'_>, text: &Section<'_, '_>) -> Result<(), LoadError> {
        let mut insns = decode(text)?;
        let start = self.insns.len();
        if start + insns.len() > INSNS_MAX {
            return bad(format!("more than {INSNS_MAX} instructions with all functions"));
        }
        // What a file says in these fields is not for us: only relocations refer to maps.
        let mut at = 0;
        while let Some(insn) = insns.get(at) {
            if insn.code == LDDW && insn.src != 0 {
                let kind = insn.src;
                return bad(format!("insn {at}: a 64-bit constant of kind {kind} is not known"));
            }
            at += if insn.code == LDDW { 2 } else { 1 };
        }
        for (offset, relocation) in text.relocations() {
            let at = (offset / 8) as usize;
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return bad(format!("insn {at}: a relocation without a symbol"));
            };
            let symbol = file.symbol_by_index(symbol).map_err(broken)?;
            if insns.get(at).is_some_and(|insn| insn.code == class::JMP | jmp::CALL) {
                let insn = insns[at];
                let call = function(file, &symbol, insn, at)?;
                self.calls.push(Call { at: start + at, ..call });
            } else {
                self.refer(&symbol, &mut insns, at)?;
            }
        }
        self.starts.push((text.index(), start));
        self.insns.extend(insns);
        Ok(())
    }

    /// An instruction that refers to a map or to a variable.
    fn refer(
        &self,
        symbol: &Symbol<'_, '_>,
        insns: &mut [Insn],
        at: usize,
    ) -> Result<(), LoadError> {
        let name = symbol.name().unwrap_or("?");
        let Some(&insn) = insns.get(at) else {
            return bad(format!("a relocation of '{name}' lies outside the program"));
        };
        if insn.code != LDDW || at + 1 >= insns.len() {
            return bad(format!("insn {at}: '{name}' is relocated in a way that is not known"));
        }
        let places = self.maps.places.iter().enumerate();
        let mut here = places.filter(|(_, p)| Some(p.section) == symbol.section_index());
        let found = here.find(|(_, p)| p.at.is_none_or(|at| at == symbol.address()));
        let Some((number, place)) = found else {
            return bad(format!("insn {at}: refers to '{name}', which is no map and no variable"));
        };
        let offset = (symbol.address() as i64).wrapping_add(i64::from(insn.imm));
        let is_map = place.at.is_some();
        insns[at].src = if is_map { PSEUDO_MAP } else { PSEUDO_VALUE };
        insns[at].imm = number as i32;
        insns[at + 1].imm = if is_map { 0 } else { offset as i32 };
        Ok(())
    }

    fn resolve(mut self) -> Result<Vec<Insn>, LoadError> {
        for Call { at, section, target } in std::mem::take(&mut self.calls) {
            let to = self.start(section).map_or(-1, |start| start as i64 + target);
            if !(0..self.insns.len() as i64).contains(&to) {
                return bad(format!("insn {at}: calls what lies outside the file"));
            }
            self.insns[at].src = PSEUDO_CALL;
            self.insns[at].imm = (to - at as i64 - 1) as i32;
        }
        Ok(self.insns)
    }
}

/// The function that a call means.
fn function(
    file: &File<'_>,
    symbol: &Symbol<'_, '_>,
    insn: Insn,
    at: usize,
) -> Result<Call, LoadError> {
    let name = symbol.name().unwrap_or("?");
    let index = symbol.section_index().filter(|_| insn.src == PSEUDO_CALL);
    let Some(section) = index else {
        return bad(format!("insn {at}: calls '{name}', which is not in the file"));
    };
    let found = file.section_by_index(section).map_err(broken)?;
    if found.kind() != SectionKind::Text {
        let section = section_name(&found)?;
        return bad(format!("insn {at}: calls '{name}' in section {section}, which is no code"));
    }
    let target = (symbol.address() / 8) as i64 + i64::from(insn.imm) + 1;
    Ok(Call { at, section, target })
}
