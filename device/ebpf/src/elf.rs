//! Loading of programs from object files of `clang -target bpf`.

mod btf;
mod code;

use object::{
    Architecture, File, Object as _, ObjectSection, ObjectSymbol, Section, SectionIndex,
    SectionKind,
};

use crate::error::LoadError;
use crate::inline::inline;
use crate::insn::Insn;
use crate::map::{MapDef, MapKind};
use btf::Btf;
use code::Function;

const MAPS_MAX: usize = 64;
/// Bytes of a legacy map definition (section `maps`).
const LEGACY_MAP: usize = 20;

/// Selection of a program in a file. The default selects the only program in the sections with
/// names that begin with `xdp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selector<'a> {
    /// Name of the section; `None`: any section that begins with `xdp`.
    pub section: Option<&'a str>,
    /// Name of the function; `None`: the only function of the selected sections.
    pub program: Option<&'a str>,
}

/// One program of a file, with the maps that it uses.
#[derive(Clone, Debug)]
pub struct ObjectProgram {
    /// Name of the function.
    pub name: String,
    /// Section of the function.
    pub section: String,
    /// Instructions, with all functions inlined; references to maps are indexes into `maps`.
    pub insns: Vec<Insn>,
    /// Maps that the program uses.
    pub maps: Vec<MapDef>,
}

fn bad<T>(what: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError(what.into()))
}

fn broken(e: object::Error) -> LoadError {
    LoadError(format!("not a readable ELF object: {e}"))
}

/// Location of a map in the file.
struct MapLocation {
    section: SectionIndex,
    /// Address in the section; `None`: the whole section is one map, which holds variables.
    at: Option<u64>,
}

/// Maps of a file. A map that is invalid is an error only if the program uses it.
struct Maps {
    defs: Vec<Result<MapDef, LoadError>>,
    locations: Vec<MapLocation>,
}

impl Maps {
    fn push(&mut self, def: Result<MapDef, LoadError>, section: SectionIndex, at: Option<u64>) {
        self.defs.push(def);
        self.locations.push(MapLocation { section, at });
    }
}

impl ObjectProgram {
    /// Loads the selected program. Fails if the file is no little-endian BPF object, if the
    /// selection is not unique, or if the program cannot be linked.
    pub fn load(bytes: &[u8], which: Selector<'_>) -> Result<Self, LoadError> {
        let file = File::parse(bytes).map_err(broken)?;
        if file.architecture() != Architecture::Bpf || !file.is_little_endian() {
            return bad("not an object for little-endian BPF: compile with clang -target bpf");
        }
        let function = choose(&file, which)?;
        let section = file.section_by_index(function.section).map_err(broken)?;
        let (section, name) = (section_name(&section)?.to_owned(), function.name.clone());
        let maps = find_maps(&file)?;
        let (insns, used) = code::link(&file, function, &maps)?;
        if used.len() > MAPS_MAX {
            return bad(format!("{} maps, at most {MAPS_MAX}", used.len()));
        }
        let defs: Result<Vec<_>, _> = used.iter().map(|&n| maps.defs[n].clone()).collect();
        Ok(Self { name, section, insns: inline(insns)?, maps: defs? })
    }
}

fn section_name<'a>(section: &Section<'a, '_>) -> Result<&'a str, LoadError> {
    section.name().map_err(broken)
}

/// Finds the selected function; fails if none or several match.
fn choose(file: &File<'_>, which: Selector<'_>) -> Result<Function, LoadError> {
    let is_meant = |name: &str| match which.section {
        Some(section) => name == section,
        None => name.starts_with("xdp"),
    };
    let (mut sections, mut found) = (Vec::new(), Vec::new());
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text && s.size() > 0) {
        let name = section_name(&section)?.to_owned();
        if is_meant(&name) {
            let functions = code::functions(file, &section)?.into_iter();
            found.extend(functions.map(|function| (function, name.clone())));
        }
        sections.push(name);
    }
    if found.is_empty() {
        let (all, section) = (list(&sections), which.section.unwrap_or("xdp"));
        return bad(format!("no section '{section}' with code; allowed: {all}"));
    }
    let text =
        |(function, section): &(Function, String)| format!("{} (section {section})", function.name);
    let all: Vec<String> = found.iter().map(text).collect();
    if let Some(program) = which.program {
        found.retain(|(function, _)| function.name == program);
    }
    match (found.len(), which.program) {
        (1, _) => Ok(found.remove(0).0),
        (0, Some(program)) => bad(format!("no program '{program}'; allowed: {}", list(&all))),
        (n, _) => {
            bad(format!("{n} programs: {}; choose one by its name (--program NAME)", list(&all)))
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn find_maps(file: &File<'_>) -> Result<Maps, LoadError> {
    let mut maps = Maps { defs: Vec::new(), locations: Vec::new() };
    let types = file.section_by_name(".BTF").map(|s| s.data().map_err(broken).and_then(Btf::parse));
    for section in file.sections() {
        let name = section_name(&section)?;
        if !matches!(name, ".maps" | "maps") {
            variables(&section, name, &mut maps)?;
            continue;
        }
        let index = section.index();
        for symbol in file.symbols().filter(|s| s.section_index() == Some(index)) {
            let symbol_name = symbol.name().map_err(broken)?;
            if symbol.kind() == object::SymbolKind::Section || symbol_name.is_empty() {
                continue;
            }
            let def = match &types {
                _ if name == "maps" => from_legacy(symbol_name, &section, symbol.address()),
                None => bad("section .maps needs type information: compile with -g"),
                Some(Err(e)) => Err(e.clone()),
                Some(Ok(types)) => from_types(symbol_name, types),
            };
            maps.push(def, index, Some(symbol.address()));
        }
    }
    Ok(maps)
}

/// Adds a section of global variables as an array map with one entry.
fn variables(section: &Section<'_, '_>, name: &str, maps: &mut Maps) -> Result<(), LoadError> {
    let of = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let (ro, data, bss) = (of(".rodata"), of(".data"), of(".bss"));
    if !(ro || data || bss) || section.size() == 0 {
        return Ok(());
    }
    let Ok(size) = u32::try_from(section.size()) else {
        return bad(format!("{name} is too large"));
    };
    let init = if bss { Vec::new() } else { section.data().map_err(broken)?.to_vec() };
    let def = MapDef {
        name: name.to_owned(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: size,
        max_entries: 1,
        init,
        readonly: ro,
    };
    maps.push(Ok(def), section.index(), None);
    Ok(())
}

fn from_types(name: &str, types: &Btf<'_>) -> Result<MapDef, LoadError> {
    let Some(d) = types.map(name)? else {
        return bad(format!("map '{name}' has no type information"));
    };
    MapDef::checked(&d.name, d.kind, [d.key_size, d.value_size, d.max_entries, d.flags])
}

fn from_legacy(name: &str, section: &Section<'_, '_>, at: u64) -> Result<MapDef, LoadError> {
    let bytes = section.data().map_err(broken)?;
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let Some(bytes) = at.checked_add(LEGACY_MAP).and_then(|end| bytes.get(at..end)) else {
        return bad(format!("map '{name}' is truncated"));
    };
    let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| bytes[4 * i + b]));
    MapDef::checked(name, word(0), [word(1), word(2), word(3), word(4)])
}
