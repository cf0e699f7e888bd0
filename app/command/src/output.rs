//! Output of commands: text, JSON and rates.

use std::io::{self, Write};

use crate::failure::Failure;

/// Writes `text`. A closed pipe (`| head -1`) ends the command with exit code 0.
pub fn put(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Exit(0)),
        other => Ok(other?),
    }
}

/// Formats JSON as iproute2 does: indented for a terminal, one line otherwise.
pub fn json_text<T: serde::Serialize>(value: &T, pretty: bool) -> Result<String, Failure> {
    let text =
        if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    Ok(text? + "\n")
}

/// Formats a rate with a metric prefix and four significant characters.
pub fn si(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0} "),
    }
}
