//! Instructions of a frame by layer, from callgrind's record. The shares are exact, like the
//! counts, and do not need the privileges of a sampling profiler.
//!
//! The program has line tables, so inlined code counts for its source file. Code of the standard
//! library counts for the layer that calls it. Code without a file is identified by name: the
//! copies are functions of libc.

use std::collections::BTreeMap;
use std::path::Path;

/// Layers in the order of a frame's path. Every profile has all layers, so that each layer has the
/// same colour in all pictures.
const ROOMS: [(&str, &str); 5] = [
    ("memory: rings, windows, pages", "memory/"),
    ("packet: headers, buffers", "packet/"),
    ("device: virtqueues, disciplines", "device/"),
    ("backend", "backend/"),
    ("runtime", "runtime/"),
];
const COPIES: &str = "copies (libc)";
const REST: &str = "the benchmark itself";

/// Percentage of the instructions by layer; `None` without a record or without instructions.
pub(super) fn read(record: &Path) -> Option<Vec<(&'static str, f64)>> {
    let mut shares = shares(&std::fs::read_to_string(record).ok()?);
    let all: f64 = shares.iter().map(|(_, cost)| cost).sum();
    for (_, cost) in &mut shares {
        *cost *= 100.0 / all;
    }
    (all > 0.0).then_some(shares)
}

/// Instructions by layer, in the order of `ROOMS`, followed by copies and by all other code.
fn shares(record: &str) -> Vec<(&'static str, f64)> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut reader = Reader::default();
    for line in record.lines() {
        if let Some((room, cost)) = reader.read(line) {
            *sums.entry(room).or_default() += cost as f64;
        }
    }
    let names = ROOMS.iter().map(|(name, _)| *name).chain([COPIES, REST]);
    names.map(|name| (name, sums.get(name).copied().unwrap_or_default())).collect()
}

/// Reader of callgrind's format. Each line sets the file, the function or the callee, or contains a
/// cost. The first use of a name defines its number (`fl=(3) backend/ntb/src/tx.rs`). Later uses
/// contain the number only (`fl=(3)`).
#[derive(Default)]
struct Reader {
    files: BTreeMap<String, String>,
    functions: BTreeMap<String, String>,
    /// File of the function; `file` is that of the current inlined code.
    own: String,
    file: String,
    function: String,
    /// True if the next line is the cost of a call, which the callee's lines already contain.
    called: bool,
}

impl Reader {
    fn read(&mut self, line: &str) -> Option<(&'static str, u64)> {
        if let Some((key, name)) = line.split_once('=') {
            match key {
                "fl" => {
                    self.own = resolve(&mut self.files, name);
                    self.file.clone_from(&self.own);
                }
                "fi" | "fe" => self.file = resolve(&mut self.files, name),
                "fn" => self.function = resolve(&mut self.functions, name),
                "cfi" | "cfl" => _ = resolve(&mut self.files, name),
                "cfn" => _ = resolve(&mut self.functions, name),
                "calls" => self.called = true,
                _ => {}
            }
            return None;
        }
        let mut words = line.split_whitespace();
        let first = words.next()?;
        if !first.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            return None;
        }
        let cost = words.next()?.parse().ok()?;
        (!std::mem::take(&mut self.called)).then(|| (self.room(), cost))
    }

    fn room(&self) -> &'static str {
        let copies = ["memcpy", "memmove", "memset"];
        if copies.iter().any(|name| self.function.contains(name)) {
            return COPIES;
        }
        room_of(&self.file).or_else(|| room_of(&self.own)).unwrap_or(REST)
    }
}

/// Resolves a number to its name, or defines the name on the first use.
fn resolve(names: &mut BTreeMap<String, String>, text: &str) -> String {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(text).cloned().unwrap_or_default(),
    }
}

/// Layer of a source file: the innermost folder that is a layer. None for external crates, the
/// standard library and other files.
fn room_of(file: &str) -> Option<&'static str> {
    let whole = |at: &usize| *at == 0 || file[..*at].ends_with('/');
    let place = |part| file.rmatch_indices(part).map(|(at, _)| at).find(whole);
    if file.contains("/registry/") || file.contains("/rustc/") {
        return None;
    }
    let found = ROOMS.iter().filter_map(|&(name, part)| Some((place(part)?, name)));
    found.max().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "# callgrind format\npositions: line\nevents: Ir\n\n\
        fl=(1) /a/bin/mqnet/backend/ntb/src/tx.rs\nfn=(1) mqnet_ntb::tx::send\n10 5\n\
        fi=(2) memory/rings/src/spsc.rs\n+3 7\nfe=(1)\n-2 1\n\
        fi=(3) /rustc/59807/library/core/src/ptr/mod.rs\n20 2\nfe=(1)\n\
        cfi=(4) ???\ncfn=(2) __memcpy_avx_unaligned\ncalls=1 0\n12 100\n14 1\n\n\
        fl=(4)\nfn=(2)\n0 100\n\nfn=(3) _start\n0 3\n\ntotals: 119\n";

    // Goal: only self costs count. Inlined code counts for its own layer, the standard library for
    // the caller's layer, and libc's copies by name.
    #[test]
    fn a_record_is_split_into_rooms() {
        let shares = shares(RECORD);
        let of = |name: &str| shares.iter().find(|(room, _)| room.starts_with(name)).unwrap().1;
        assert_eq!(of("backend"), 9.0);
        assert_eq!(of("memory"), 7.0);
        assert_eq!(of("copies"), 100.0);
        assert_eq!(of("the benchmark"), 3.0);
        assert_eq!(shares.iter().map(|(_, cost)| cost).sum::<f64>(), 119.0);
    }

    // Goal: text without costs gives 0 for each layer.
    #[test]
    fn no_record_is_nothing() {
        assert!(shares("").iter().all(|&(_, cost)| cost == 0.0));
        assert!(shares("fl=\nfn=(9)\ncalls=\n1\n+\n1 x\n").iter().all(|&(_, cost)| cost == 0.0));
    }
}
