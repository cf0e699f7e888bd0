//! JSON in the layout that ethtool and tc share (four blanks per level, lists on one line), or on
//! one line without blanks.

use std::fmt::Write as _;
use std::io;

use super::call::Call;

/// JSON value; objects keep the order of their members.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Signed(i64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl From<u16> for Json {
    fn from(n: u16) -> Self {
        Self::Number(n.into())
    }
}

impl From<u32> for Json {
    fn from(n: u32) -> Self {
        Self::Number(n.into())
    }
}

impl From<bool> for Json {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

/// Prints the response of one device: a list of one object, with the device's name (`ifname`) as
/// the first member.
pub(super) fn print<K: Into<String>>(
    call: &mut Call<'_>,
    fields: Vec<(K, Json)>,
) -> io::Result<u8> {
    let mut all = vec![("ifname".to_owned(), Json::Text(call.dev.to_owned()))];
    all.extend(fields.into_iter().map(|(name, value)| (name.into(), value)));
    writeln!(call.out, "{}", pretty(&Json::List(vec![Json::Object(all)])))?;
    Ok(0)
}

fn render(value: &Json, depth: usize, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(yes) => out.push_str(if *yes { "true" } else { "false" }),
        Json::Number(n) => {
            let _ = write!(out, "{n}");
        }
        Json::Signed(n) => {
            let _ = write!(out, "{n}");
        }
        Json::Text(text) => quote(text, out),
        Json::List(items) => {
            out.push_str("[ ");
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                render(item, depth + 1, out);
            }
            out.push_str(if items.is_empty() { "]" } else { " ]" });
        }
        Json::Object(fields) => {
            out.push('{');
            for (i, (name, value)) in fields.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                newline(depth + 1, out);
                quote(name, out);
                out.push_str(": ");
                render(value, depth + 1, out);
            }
            if !fields.is_empty() {
                newline(depth, out);
            }
            out.push('}');
        }
    }
}

/// Formats a value with four blanks per level.
pub(crate) fn pretty(value: &Json) -> String {
    let mut text = String::new();
    render(value, 0, &mut text);
    text
}

/// Formats a value without blanks.
pub(crate) fn compact(value: &Json) -> String {
    let mut text = String::new();
    render_compact(value, &mut text);
    text
}

fn render_compact(value: &Json, out: &mut String) {
    match value {
        Json::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                render_compact(item, out);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (i, (name, value)) in fields.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                quote(name, out);
                out.push(':');
                render_compact(value, out);
            }
            out.push('}');
        }
        single => render(single, 0, out),
    }
}

fn newline(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}

fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}
