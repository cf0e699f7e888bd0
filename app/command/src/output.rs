//! Output of commands: text, JSON and rates.

use std::io::{self, Write};

use crate::failure::Failure;

/// Writes `text`. A reader who has gone away (`| head -1`) has seen enough.
pub fn put(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Exit(0)),
        other => Ok(other?),
    }
}

/// JSON as iproute2 prints it: indented for a screen, one line otherwise.
pub fn json_text<T: serde::Serialize>(value: &T, pretty: bool) -> Result<String, Failure> {
    let text =
        if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    Ok(text? + "\n")
}

/// A rate with a metric prefix, four significant characters.
pub fn si(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0} "),
    }
}
