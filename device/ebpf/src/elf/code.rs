//! Linking of a program with the functions that it calls.

use object::{File, Object as _, ObjectSection, ObjectSymbol, RelocationTarget, Section};
use object::{SectionIndex, SectionKind, Symbol, SymbolKind};

use super::{LoadError, Maps, bad, broken, section_name};
use crate::insn::{INSNS_MAX, Insn, LDDW, PSEUDO_CALL, PSEUDO_MAP, PSEUDO_VALUE, class, jmp};

/// A function as a range of instructions of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) section: SectionIndex,
    pub(super) first: usize,
    pub(super) end: usize,
}

/// A call of a function, which may be in another section.
struct Call {
    at: usize,
    section: SectionIndex,
    target: usize,
}

struct Linker<'f, 'a> {
    file: &'f File<'a>,
    maps: &'f Maps,
    insns: Vec<Insn>,
    /// Functions, and the index of their first instruction in `insns`.
    starts: Vec<(Function, usize)>,
    calls: Vec<Call>,
    /// True for each map that the program uses.
    used: Vec<bool>,
}

fn decode(text: &Section<'_, '_>) -> Result<Vec<Insn>, LoadError> {
    let bytes = text.data().map_err(broken)?;
    let (insns, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return bad("the program ends within an instruction");
    }
    Ok(insns.iter().map(Insn::from_bytes).collect())
}

/// Functions of a section, by symbol. A section without symbols is one function.
pub(super) fn functions(
    file: &File<'_>,
    text: &Section<'_, '_>,
) -> Result<Vec<Function>, LoadError> {
    let (section, last) = (text.index(), (text.size() / 8) as usize);
    let here = |s: &Symbol<'_, '_>| {
        s.section_index() == Some(section) && s.kind() == SymbolKind::Text && s.is_definition()
    };
    let mut found = Vec::new();
    for symbol in file.symbols().filter(here) {
        let name = symbol.name().map_err(broken)?.to_owned();
        let (first, size) = ((symbol.address() / 8) as usize, (symbol.size() / 8) as usize);
        let end = if size == 0 { last } else { first.saturating_add(size) };
        if symbol.address() % 8 != 0 || first >= end || end > last {
            return bad(format!("function '{name}' is outside its section"));
        }
        found.push(Function { name, section, first, end });
    }
    found.sort_by_key(|function| function.first);
    if found.is_empty() && last > 0 {
        found.push(Function { name: "xdp".to_owned(), section, first: 0, end: last });
    }
    Ok(found)
}

/// Links a program and the functions that it calls. Returns the instructions, and the indexes of
/// the used maps in file order. References to maps are indexes into that list.
pub(super) fn link(
    file: &File<'_>,
    program: Function,
    maps: &Maps,
) -> Result<(Vec<Insn>, Vec<usize>), LoadError> {
    let (insns, starts, calls) = (Vec::new(), Vec::new(), Vec::new());
    let used = vec![false; maps.locations.len()];
    let mut linker = Linker { file, maps, insns, starts, calls, used };
    linker.add(program)?;
    let mut next = 0;
    while let Some(call) = linker.calls.get(next) {
        next += 1;
        let (section, target) = (call.section, call.target);
        if linker.start(section, target).is_none() {
            let function = linker.function_at(section, target)?;
            linker.add(function)?;
        }
    }
    linker.resolve()
}

impl Linker<'_, '_> {
    fn start(&self, section: SectionIndex, target: usize) -> Option<usize> {
        let is_it = |(f, _): &&(Function, usize)| (f.section, f.first) == (section, target);
        self.starts.iter().find(is_it).map(|(_, start)| *start)
    }

    fn function_at(&self, section: SectionIndex, target: usize) -> Result<Function, LoadError> {
        let text = self.file.section_by_index(section).map_err(broken)?;
        let found = functions(self.file, &text)?;
        if let Some(function) = found.into_iter().find(|function| function.first == target) {
            return Ok(function);
        }
        let end = (text.size() / 8) as usize;
        if target >= end {
            return bad("calls code outside the file");
        }
        Ok(Function { name: String::new(), section, first: target, end })
    }

    fn add(&mut self, function: Function) -> Result<(), LoadError> {
        let text = self.file.section_by_index(function.section).map_err(broken)?;
        let all = decode(&text)?;
        let Some(insns) = all.get(function.first..function.end) else {
            return bad(format!("function '{}' is outside its section", function.name));
        };
        let (mut insns, start, first) = (insns.to_vec(), self.insns.len(), function.first);
        if start + insns.len() > INSNS_MAX {
            return bad(format!("more than {INSNS_MAX} instructions with all functions"));
        }
        // Reject 64-bit constants with a source field in the file: only relocations may refer to
        // maps.
        let mut at = 0;
        while let Some(insn) = insns.get(at) {
            if insn.code == LDDW && insn.src != 0 {
                let kind = insn.src;
                return bad(format!(
                    "insn {at}: a 64-bit constant of kind {kind} is not supported"
                ));
            }
            at += if insn.code == LDDW { 2 } else { 1 };
        }
        let mut relocated = vec![false; insns.len()];
        for (offset, relocation) in text.relocations() {
            let Some(at) = ((offset / 8) as usize).checked_sub(first) else { continue };
            let Some(&insn) = insns.get(at) else { continue };
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return bad(format!("insn {at}: a relocation without a symbol"));
            };
            let symbol = self.file.symbol_by_index(symbol).map_err(broken)?;
            relocated[at] = true;
            if insn.code == class::JMP | jmp::CALL {
                let call = called(self.file, &symbol, insn, at)?;
                self.calls.push(Call { at: start + at, ..call });
            } else {
                self.refer(&symbol, &mut insns, at)?;
            }
        }
        // Add calls within the section, which have no relocation.
        for (at, insn) in insns.iter().enumerate() {
            let is_call = insn.code == class::JMP | jmp::CALL && insn.src == PSEUDO_CALL;
            if is_call && !relocated[at] {
                let target = usize::try_from((first + at) as i64 + i64::from(insn.imm) + 1);
                let target = target.unwrap_or(usize::MAX);
                self.calls.push(Call { at: start + at, section: function.section, target });
            }
        }
        self.starts.push((function, start));
        self.insns.extend(insns);
        Ok(())
    }

    /// Relocates an instruction that refers to a map or a variable.
    fn refer(
        &mut self,
        symbol: &Symbol<'_, '_>,
        insns: &mut [Insn],
        at: usize,
    ) -> Result<(), LoadError> {
        let name = symbol.name().unwrap_or("?");
        let Some(&insn) = insns.get(at) else {
            return bad(format!("a relocation of '{name}' is outside the program"));
        };
        if insn.code != LDDW || at + 1 >= insns.len() {
            return bad(format!("insn {at}: '{name}' has an unsupported relocation type"));
        }
        let locations = self.maps.locations.iter().enumerate();
        let mut here = locations.filter(|(_, p)| Some(p.section) == symbol.section_index());
        let found = here.find(|(_, p)| p.at.is_none_or(|at| at == symbol.address()));
        let Some((number, place)) = found else {
            return bad(match name {
                "" => format!("insn {at}: takes the address of code (a callback): not supported"),
                _ => {
                    format!("insn {at}: refers to '{name}', which is neither a map nor a variable")
                }
            });
        };
        let offset = (symbol.address() as i64).wrapping_add(i64::from(insn.imm));
        let is_map = place.at.is_some();
        insns[at].src = if is_map { PSEUDO_MAP } else { PSEUDO_VALUE };
        insns[at].imm = number as i32;
        insns[at + 1].imm = if is_map { 0 } else { offset as i32 };
        self.used[number] = true;
        Ok(())
    }

    fn resolve(mut self) -> Result<(Vec<Insn>, Vec<usize>), LoadError> {
        for Call { at, section, target } in std::mem::take(&mut self.calls) {
            let Some(to) = self.start(section, target) else {
                return bad(format!("insn {at}: calls code outside the file"));
            };
            self.insns[at].src = PSEUDO_CALL;
            self.insns[at].imm = (to as i64 - at as i64 - 1) as i32;
        }
        let used: Vec<usize> = (0..self.used.len()).filter(|number| self.used[*number]).collect();
        let mut at = 0;
        while let Some(insn) = self.insns.get_mut(at) {
            let wide = insn.code == LDDW;
            if wide && insn.src != 0 {
                let number = used.iter().position(|number| *number as i32 == insn.imm);
                insn.imm = number.map_or(-1, |number| number as i32);
            }
            at += if wide { 2 } else { 1 };
        }
        Ok((self.insns, used))
    }
}

/// Target of a relocated call. Fails if the symbol is not code of this file.
fn called(
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
        return bad(format!("insn {at}: calls '{name}' in section {section}, which has no code"));
    }
    let target = (symbol.address() / 8) as i64 + i64::from(insn.imm) + 1;
    let target = usize::try_from(target).unwrap_or(usize::MAX);
    Ok(Call { at, section, target })
}
