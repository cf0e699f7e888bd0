//! Notation of Python's `pprint`: keys sorted, single quotes, 80 columns.

use serde_json::{Map, Value};

const WIDTH: usize = 80;

/// Formats a value over as many lines as needed.
pub(super) fn format(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, 0, &mut out);
    out
}

/// Writes a value. `indent`: the column at which the value begins; `allowance`: the columns needed
/// after the value.
fn write(value: &Value, indent: usize, allowance: usize, out: &mut String) {
    let flat = repr(value);
    if fits(&flat, WIDTH.checked_sub(indent + allowance)) {
        out.push_str(&flat);
        return;
    }
    match value {
        Value::Object(map) => {
            out.push('{');
            for (i, (key, item)) in sorted(map).into_iter().enumerate() {
                let key = quote(key);
                separate(i, indent + 1, out);
                out.push_str(&key);
                out.push_str(": ");
                let behind = if i + 1 == map.len() { allowance + 1 } else { 1 };
                write(item, indent + 1 + key.chars().count() + 2, behind, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                separate(i, indent + 1, out);
                let behind = if i + 1 == items.len() { allowance + 1 } else { 1 };
                write(item, indent + 1, behind, out);
            }
            out.push(']');
        }
        Value::String(text) if !text.is_empty() => write_text(text, indent, allowance, out),
        _ => out.push_str(&flat),
    }
}

/// True if a text has at most `room` characters. No text fits into `None`, a negative width.
fn fits(text: &str, room: Option<usize>) -> bool {
    room.is_some_and(|room| text.chars().count() <= room)
}

fn separate(i: usize, indent: usize, out: &mut String) {
    if i > 0 {
        out.push_str(",\n");
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

/// Writes a text that does not fit as several literals: one per line, and a line that does not fit
/// is split between words.
fn write_text(text: &str, indent: usize, allowance: usize, out: &mut String) {
    let lines = split(text, is_line_end);
    let mut chunks: Vec<String> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let last_line = i + 1 == lines.len();
        let room = |last: bool| WIDTH.checked_sub(indent + if last { allowance } else { 0 });
        let flat = quote(line);
        if fits(&flat, room(last_line)) {
            chunks.push(flat);
            continue;
        }
        let words = split(line, char::is_whitespace);
        let mut current = String::new();
        for (j, word) in words.iter().enumerate() {
            let candidate = format!("{current}{word}");
            if fits(&quote(&candidate), room(last_line && j + 1 == words.len())) {
                current = candidate;
                continue;
            }
            if !current.is_empty() {
                chunks.push(quote(&current));
            }
            current = (*word).to_owned();
        }
        if !current.is_empty() {
            chunks.push(quote(&current));
        }
    }
    for (i, chunk) in chunks.iter().enumerate() {
        if i > 0 {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
        }
        out.push_str(chunk);
    }
}

fn is_line_end(c: char) -> bool {
    matches!(
        c,
        '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Splits a text after each line end (`\r\n` is one), or, if `ends` matches blanks, after each run
/// of blanks.
fn split(text: &str, ends: impl Fn(char) -> bool) -> Vec<&str> {
    let lines = ends('\n') && !ends(' ');
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((_, c)) = chars.next() {
        let Some(&(next, after)) = chars.peek() else { break };
        let cut = if lines { !(c == '\r' && after == '\n') } else { !ends(after) };
        if ends(c) && cut {
            pieces.push(&text[start..next]);
            start = next;
        }
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

/// Formats a value on one line.
fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(n) => n.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<_> = sorted(map)
                .into_iter()
                .map(|(key, item)| format!("{}: {}", quote(key), repr(item)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Entries of a map, sorted by key.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = map.iter().collect();
    fields.sort_by_key(|(key, _)| *key);
    fields
}

/// Formats a string literal of Python.
pub(super) fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(mark);
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if code >= 0xa1 && printable(c) => out.push(c),
            _ if code < 0x100 => out.push_str(&format!("\\x{code:02x}")),
            _ if code < 0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out.push(mark);
    out
}

/// True if Python prints the character unescaped. Python does not escape alphabetic combining
/// marks; `escape_debug` does, so `is_alphabetic` is tested too.
fn printable(c: char) -> bool {
    c != '\u{ad}' && (c.escape_debug().len() == 1 || c.is_alphabetic())
}
