//! Output of commands: text, JSON and rates.

use std::io::{self, Write};

use crate::failure::Failure;

/// Writes and flushes `text`. A closed pipe (`| head -1`) returns `Exit(0)`, which ends the command
/// with exit code 0.
pub fn put(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Exit(0)),
        other => Ok(other?),
    }
}

/// Formats JSON with a final line end: indented if `pretty`, on one line otherwise.
pub fn json_text<T: serde::Serialize>(value: &T, pretty: bool) -> Result<String, Failure> {
    let text =
        if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    Ok(text? + "\n")
}

/// Formats a rate with a metric prefix; rates below 1000 are rounded to whole numbers.
pub fn si(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0} "),
    }
}
