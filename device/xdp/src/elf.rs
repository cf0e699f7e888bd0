//! Programs from the object files that `clang -target bpf` makes.

mod btf;
mod code;

use object::{
    Architecture, File, Object as _, ObjectSection, ObjectSymbol, Section, SectionIndex,
    SectionKind,
};

use crate::inline::inline;
use crate::insn::Insn;
use crate::map::{MapDef, MapKind};
use btf::{Btf, Declared};

/// Most instructions of a program.
pub const INSNS_MAX: usize = 16384;
const MAPS_MAX: usize = 64;
/// Bytes of a map in the older notation.
const LEGACY_MAP: usize = 20;

/// Why a file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub(crate) String);

/// One program of a file, with every map of that file.
#[derive(Clone, Debug)]
pub struct Object {
    /// Name of its function.
    pub name: String,
    /// Section that it was in.
    pub section: String,
    /// Its instructions; references to maps are numbers in `maps`.
    pub insns: Vec<Insn>,
    /// The maps.
    pub maps: Vec<MapDef>,
}

fn bad<T>(what: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError(what.into()))
}

fn broken(e: object::Error) -> LoadError {
    LoadError(format!("not an ELF object that can be read: {e}"))
}

/// Where a map lies in the file.
struct Place {
    section: SectionIndex,
    /// `None`: the whole section is one map, the program's variables.
    at: Option<u64>,
}

struct Maps {
    defs: Vec<MapDef>,
    places: Vec<Place>,
}

impl Object {
    /// Loads the program of `section`, or the only one whose section's name begins with `xdp`.
    pub fn load(bytes: &[u8], section: Option<&str>) -> Result<Self, LoadError> {
        let file = File::parse(bytes).map_err(broken)?;
        if file.architecture() != Architecture::Bpf || !file.is_little_endian() {
            return bad("not an object for little-endian BPF: compile with clang -target bpf");
        }
        let text = choose(&file, section)?;
        let maps = find_maps(&file)?;
        let (section, name) = (section_name(&text)?.to_owned(), function_name(&file, &text));
        let insns = inline(code::link(&file, &text, &maps)?)?;
        Ok(Self { name, section, insns, maps: maps.defs })
    }
}

fn section_name<'a>(section: &Section<'a, '_>) -> Result<&'a str, LoadError> {
    section.name().map_err(broken)
}

fn choose<'a, 'f>(file: &'f File<'a>, wanted: Option<&str>) -> Result<Section<'a, 'f>, LoadError> {
    let is_xdp = |name: &str| name == "xdp" || name.starts_with("xdp.") || name.starts_with("xdp/");
    let named = |s: Section<'a, 'f>| Some((section_name(&s).ok()?, s));
    let code = file.sections().filter(|s| s.kind() == SectionKind::Text && s.size() > 0);
    let mut code: Vec<_> = code.filter_map(named).collect();
    let names = |code: &[(&str, Section<'_, '_>)]| {
        let names: Vec<&str> = code.iter().map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let all = names(&code);
    match wanted {
        Some(wanted) => code.retain(|(name, _)| *name == wanted),
        None => code.retain(|(name, _)| is_xdp(name)),
    }
    match (code.len(), wanted) {
        (1, _) => Ok(code.remove(0).1),
        (0, Some(wanted)) => bad(format!("no section '{wanted}' with code; there are: {all}")),
        (0, None) => bad(format!("no section 'xdp' with code; there are: {all}")),
        (_, _) => bad(format!("several programs, choose one by its section: {}", names(&code))),
    }
}

fn function_name(file: &File<'_>, text: &Section<'_, '_>) -> String {
    let here = |s: &object::Symbol<'_, '_>| {
        s.section_index() == Some(text.index())
            && s.address() == 0
            && s.kind() == object::SymbolKind::Text
    };
    let found = file.symbols().find(here);
    found.and_then(|s| s.name().ok()).unwrap_or("xdp").to_owned()
}

fn find_maps(file: &File<'_>) -> Result<Maps, LoadError> {
    let mut maps = Maps { defs: Vec::new(), places: Vec::new() };
    let mut declared: Vec<Declared> = Vec::new();
    let btf_bytes = file.section_by_name(".BTF").map(|s| s.data()).transpose().map_err(broken)?;
    if file.section_by_name(".maps").is_some() {
        let Some(bytes) = btf_bytes else {
            return bad("section .maps needs type information: compile with -g");
        };
        declared = Btf::parse(bytes)?.maps()?;
    }
    for section in file.sections() {
        let name = section_name(&section)?;
        match name {
            ".maps" | "maps" => {
                for symbol in file.symbols().filter(|s| s.section_index() == Some(section.index()))
                {
                    let symbol_name = symbol.name().map_err(broken)?;
                    if symbol.kind() == object::SymbolKind::Section || symbol_name.is_empty() {
                        continue;
                    }
                    let found = declared.iter().find(|d| d.name == symbol_name);
                    let def = match (name, found) {
                        (".maps", Some(found)) => from_declared(found)?,
                        (".maps", None) => {
                            return bad(format!("map '{symbol_name}' has no type information"));
                        }
                        _ => from_legacy(symbol_name, &section, symbol.address())?,
                    };
                    maps.defs.push(def);
                    let at = Some(symbol.address());
                    maps.places.push(Place { section: section.index(), at });
                }
            }
            _ => variables(&section, name, &mut maps)?,
        }
    }
    if maps.defs.len() > MAPS_MAX {
        return bad(format!("{} maps, at most {MAPS_MAX}", maps.defs.len()));
    }
    Ok(maps)
}

/// The sections of global variables are maps of one entry.
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
    maps.defs.push(MapDef {
        name: name.to_owned(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: size,
        max_entries: 1,
        init,
        readonly: ro,
    });
    maps.places.push(Place { section: section.index(), at: None });
    Ok(())
}

fn from_declared(d: &Declared) -> Result<MapDef, LoadError> {
    MapDef::checked(&d.name, d.kind, [d.key_size, d.value_size, d.max_entries, d.flags])
}

fn from_legacy(name: &str, section: &Section<'_, '_>, at: u64) -> Result<MapDef, LoadError> {
    let bytes = section.data().map_err(broken)?;
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let Some(bytes) = at.checked_add(LEGACY_MAP).and_then(|end| bytes.get(at..end)) else {
        return bad(format!("map '{name}' is cut off"));
    };
    let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| bytes[4 * i + b]));
    MapDef::checked(name, word(0), [word(1), word(2), word(3), word(4)])
}
