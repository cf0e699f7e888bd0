//! BTF type information of a file, limited to the parts that map definitions need.

use super::LoadError;

const MAGIC: u16 = 0xeb9f;
/// Maximum nesting depth of types, because types may refer to each other cyclically.
const DEPTH_MAX: u32 = 16;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

struct Type {
    name: u32,
    kind: u32,
    /// Size of the type, or id of the referenced type.
    size: u32,
    /// Words that follow the type's header.
    words: Vec<u32>,
}

pub(super) struct Btf<'a> {
    types: Vec<Type>,
    strings: &'a [u8],
}

/// Map definition: name, and values of its members.
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) kind: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
}

fn bad(what: &str) -> LoadError {
    LoadError(format!(".BTF: {what}"))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, LoadError> {
    let word = at.checked_add(4).and_then(|end| bytes.get(at..end));
    let word = word.ok_or_else(|| bad("is truncated"))?;
    Ok(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

impl<'a> Btf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, LoadError> {
        if word(bytes, 0)? as u16 != MAGIC {
            return Err(bad("has an invalid header"));
        }
        let header = word(bytes, 4)? as usize;
        let part = |off: u32, len: u32| {
            let from = header.checked_add(off as usize);
            let range = from.and_then(|from| Some(from..from.checked_add(len as usize)?));
            range.and_then(|range| bytes.get(range)).ok_or_else(|| bad("is truncated"))
        };
        let types = part(word(bytes, 8)?, word(bytes, 12)?)?;
        let strings = part(word(bytes, 16)?, word(bytes, 20)?)?;
        let void = Type { name: 0, kind: 0, size: 0, words: Vec::new() };
        let (mut list, mut at) = (vec![void], 0);
        while at < types.len() {
            let (name, info, size) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
            at += 12;
            let (kind, n) = (info >> 24 & 31, (info & 0xffff) as usize);
            let words = match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 1,
                kind::ARRAY => 3,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 3 * n,
                kind::ENUM | kind::FUNC_PROTO => 2 * n,
                _ => 0,
            };
            let words: Result<Vec<u32>, _> = (0..words).map(|i| word(types, at + 4 * i)).collect();
            let words = words?;
            at += 4 * words.len();
            list.push(Type { name, kind, size, words });
        }
        Ok(Self { types: list, strings })
    }

    fn name(&self, at: u32) -> &'a str {
        let rest = self.strings.get(at as usize..).unwrap_or(&[]);
        let end = rest.iter().position(|&b| b == 0).unwrap_or(0);
        std::str::from_utf8(&rest[..end]).unwrap_or("?")
    }

    fn get(&self, id: u32) -> Result<&Type, LoadError> {
        self.types.get(id as usize).ok_or_else(|| bad("refers to a type that does not exist"))
    }

    /// Resolves typedefs and qualifiers. Returns the underlying type.
    fn plain(&self, mut id: u32) -> Result<&Type, LoadError> {
        for _ in 0..DEPTH_MAX {
            let t = self.get(id)?;
            let other =
                (kind::TYPEDEF..=kind::RESTRICT).contains(&t.kind) || t.kind == kind::TYPE_TAG;
            if !other {
                return Ok(t);
            }
            id = t.size;
        }
        Err(bad("a type has too many names"))
    }

    fn size_of(&self, id: u32, depth: u32) -> Result<u32, LoadError> {
        let t = self.plain(id)?;
        match t.kind {
            kind::PTR => Ok(8),
            kind::ARRAY if depth < DEPTH_MAX => {
                let one = self.size_of(t.words[0], depth + 1)?;
                one.checked_mul(t.words[2]).ok_or_else(|| bad("an array is too large"))
            }
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                Ok(t.size)
            }
            _ => Err(bad("a key or value has no size")),
        }
    }

    fn pointee(&self, id: u32) -> Result<u32, LoadError> {
        let t = self.plain(id)?;
        if t.kind == kind::PTR { Ok(t.size) } else { Err(bad("a map's member is not a pointer")) }
    }

    /// Number in a map definition: the type `id` points to an array, and the number is the array's
    /// length.
    fn number(&self, id: u32) -> Result<u32, LoadError> {
        let t = self.plain(self.pointee(id)?)?;
        if t.kind == kind::ARRAY {
            Ok(t.words[2])
        } else {
            Err(bad("a map's number is not encoded as an array"))
        }
    }

    /// Definition of the map `name` in section `.maps`; `None` if there is none.
    pub(super) fn map(&self, name: &str) -> Result<Option<Declared>, LoadError> {
        let is_maps = |t: &&Type| t.kind == kind::DATASEC && self.name(t.name) == ".maps";
        let Some(section) = self.types.iter().find(is_maps) else { return Ok(None) };
        for entry in section.words.chunks_exact(3) {
            let var = self.get(entry[0])?;
            if self.name(var.name) == name {
                return self.declared(var).map(Some);
            }
        }
        Ok(None)
    }

    fn declared(&self, var: &Type) -> Result<Declared, LoadError> {
        let body = self.plain(var.size)?;
        if var.kind != kind::VAR || body.kind != kind::STRUCT {
            return Err(bad("a map is not declared as a variable of a struct"));
        }
        let mut map = Declared {
            name: self.name(var.name).to_owned(),
            kind: 0,
            key_size: 0,
            value_size: 0,
            max_entries: 0,
            flags: 0,
        };
        for member in body.words.chunks_exact(3) {
            let id = member[1];
            match self.name(member[0]) {
                "type" => map.kind = self.number(id)?,
                "key_size" => map.key_size = self.number(id)?,
                "value_size" => map.value_size = self.number(id)?,
                "max_entries" => map.max_entries = self.number(id)?,
                "map_flags" => map.flags = self.number(id)?,
                "key" => map.key_size = self.size_of(self.pointee(id)?, 0)?,
                "value" => map.value_size = self.size_of(self.pointee(id)?, 0)?,
                // Ignore these members: memory is allocated near the workers, and no map is pinned.
                "pinning" | "numa_node" => {}
                other => {
                    let why = format!("map '{}': member '{other}' is not supported", map.name);
                    return Err(LoadError(why));
                }
            }
        }
        Ok(map)
    }
}
