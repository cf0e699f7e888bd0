//! Console of a guest: its first serial port, read while the guest runs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Markers written by `init.sh`.
const BOOTED: &str = "mqnet-guest: booted ";
const BEGIN: &str = "mqnet-guest: begin ";
const END: &str = "mqnet-guest: end ";

/// Console lines shown after a failure of a guest.
const SHOWN_LINES: usize = 100;

/// Console log: the file, and the text read so far.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) path: PathBuf,
    file: Option<File>,
    text: Vec<u8>,
    /// Number of bytes of `text` that were searched for lines to print.
    seen: usize,
    inside: bool,
}

impl Console {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, text: Vec::new(), seen: 0, inside: false }
    }

    /// Appends new output to `text`. A file that does not exist yet is no error.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read_to_end(&mut self.text).map(|_| ())
    }

    /// True if the log contains `words`.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.text.windows(words.len()).any(|window| window == words.as_bytes())
    }

    /// Release of the kernel and its uptime in seconds; `None` before the guest has booted.
    pub(crate) fn booted(&self) -> Option<(String, f64)> {
        let text = String::from_utf8_lossy(&self.text);
        // Kernel messages cannot split the line, because the kernel is booted with `quiet`.
        let line = text.lines().find_map(|line| line.trim_end().split_once(BOOTED))?.1;
        let (release, rest) = line.split_once(" after ")?;
        Some((release.to_owned(), rest.strip_suffix(" s")?.parse().ok()?))
    }

    /// Rest of the last line that begins with `words`.
    pub(crate) fn after(&self, words: &str) -> Option<String> {
        let text = self.text();
        text.lines().rev().find_map(|line| line.strip_prefix(words)).map(str::to_owned)
    }

    /// Whole text, with the line ends of a file.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).replace('\r', "")
    }

    /// Writes new complete lines that scripts have printed.
    pub(crate) fn print(&mut self, to: &mut impl Write) -> io::Result<()> {
        while let Some(length) = self.text[self.seen..].iter().position(|&byte| byte == b'\n') {
            let line = &self.text[self.seen..self.seen + length];
            self.seen += length + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.starts_with(END.as_bytes()) {
                self.inside = false;
            } else if line.starts_with(BEGIN.as_bytes()) {
                self.inside = true;
            } else if self.inside {
                to.write_all(line)?;
                to.write_all(b"\n")?;
            }
        }
        to.flush()
    }

    /// Last lines of the log.
    pub(crate) fn tail(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        lines[from..].join("\n")
    }
}

/// Error with the end of the console log and its path.
pub(crate) fn failure(what: &str, console: &Console) -> String {
    format!("{what}\n{}\nthe whole console: {}", console.tail(), show(&console.path))
}

fn show(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the boot line is found among other lines, and only complete lines printed by scripts
    // are shown.
    #[test]
    fn a_console_is_read() {
        let mut console = Console::new(PathBuf::new());
        assert!(console.booted().is_none());
        console.text = b"SeaBIOS\r\n[ 1.0] x\r\nmqnet-guest: booted 7.3.4 after 2.50 s\r\n\
                         mqnet-guest: begin a\r\nhello\r\nwor"
            .to_vec();
        assert_eq!(console.booted(), Some(("7.3.4".to_owned(), 2.5)));
        let mut shown = Vec::new();
        console.print(&mut shown).unwrap();
        assert_eq!(shown, b"hello\n");
        console.text.extend(b"ld\r\nmqnet-guest: end a 0\r\nnot this\r\n");
        console.print(&mut shown).unwrap();
        assert_eq!(shown, b"hello\nworld\n");
        assert!(failure("broken", &console).starts_with("broken\nSeaBIOS\n"));
    }
}
