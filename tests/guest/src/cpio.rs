//! Initramfs archive ("newc" format, initramfs documentation).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;
/// Alignment at which the kernel expects the next archive.
const ALIGNMENT: usize = 512;

/// Writer of an archive.
pub(crate) struct Archive<W> {
    to: W,
    written: usize,
    entries: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, written: 0, entries: 0, folders: BTreeSet::new() }
    }

    /// Adds a folder and its parents.
    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        if path.is_empty() || !self.folders.insert(path.to_owned()) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, FOLDER, &[])
    }

    /// Adds a file with the permissions `mode`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.parent(path)?;
        self.entry(path, FILE | mode, content)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parent(path)?;
        self.entry(path, LINK, target.as_bytes())
    }

    /// Adds a copy of a file; symbolic links are followed.
    pub(crate) fn copy(&mut self, path: &str, from: &Path) -> io::Result<()> {
        let told = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", from.display()));
        let mode = fs::metadata(from).map_err(told)?.permissions().mode() & 0o777;
        self.file(path, mode, &fs::read(from).map_err(told)?)
    }

    /// Adds the content of a folder of the host as the folder `path`.
    pub(crate) fn tree(&mut self, path: &str, from: &Path) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(from)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let inner = format!("{path}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.tree(&inner, &entry.path())?;
            } else {
                self.copy(&inner, &entry.path())?;
            }
        }
        Ok(())
    }

    /// Ends the archive with its trailer and padding. Returns the output; another archive may be
    /// appended to it.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.pad(ALIGNMENT)?;
        Ok(self.to)
    }

    fn parent(&mut self, path: &str) -> io::Result<()> {
        path.rsplit_once('/').map_or(Ok(()), |(folder, _)| self.folder(folder))
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{name}: 4 GiB and more")))?;
        self.entries += 1;
        // Fields: number, mode, owner, group, links, time, size, two device numbers, length of the
        // name.
        let name_size = name.len() as u32 + 1;
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad(4)?;
        self.put(content)?;
        self.pad(4)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.to.write_all(bytes)
    }

    fn pad(&mut self, to: usize) -> io::Result<()> {
        let missing = self.written.next_multiple_of(to) - self.written;
        self.put(&vec![0; missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: names and contents are at the offsets of the format. Folders precede their files and
    // occur once. The end is padded so that a second archive can follow.
    #[test]
    fn the_format_is_kept() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b/file", 0o755, b"hello").unwrap();
        archive.link("a/link", "b/file").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        let mut at = 0;
        let mut seen = Vec::new();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |i: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + i * 8..at + 14 + i * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap() as usize
            };
            let (mode, size, name) = (field(1), field(6), field(11));
            let name = String::from_utf8(bytes[at + 110..at + 110 + name - 1].to_vec()).unwrap();
            let content = (at + 110 + name.len() + 1).next_multiple_of(4);
            let text = String::from_utf8(bytes[content..content + size].to_vec()).unwrap();
            at = (content + size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                break;
            }
            seen.push((name, mode as u32, text));
        }
        let entry = |name: &str, mode, text: &str| (name.to_owned(), mode, text.to_owned());
        assert_eq!(
            seen,
            [
                entry("a", FOLDER, ""),
                entry("a/b", FOLDER, ""),
                entry("a/b/file", FILE | 0o755, "hello"),
                entry("a/link", LINK, "b/file"),
            ]
        );
    }
}
