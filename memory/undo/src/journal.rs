//! Restore journal of this process, with one line of JSON for each change. A line is written before
//! the change, after it, and after its restoration.
//!
//! The journal is the file `PID-NETNS-N.changes` in the runtime directory, locked while this
//! process lives. An unlocked journal belongs to a process that was killed. The file exists only
//! while changes are active. Each line is appended by a single `write`, so that a kill leaves
//! complete lines. Nothing is synced, because the settings do not survive the end of the kernel
//! either.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mqnet_sysio::clock;
use mqnet_sysio::file_lock::FileLock;
use serde::{Deserialize, Serialize};

use crate::folder::is_safe;
use crate::place::{Inode, SettingNetns};
use crate::setting::{Setting, Value};

/// File extension of a journal.
pub(crate) const ENDING: &str = "changes";

/// Maximum number of name attempts. A process in another container may have the same process id.
const NAMES: u32 = 100;

/// Number of bytes since the last rewrite, above which a journal is rewritten with only the active
/// changes.
const LONG: u64 = 256 << 10;

/// Line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    /// First line: boot id of the kernel, and network namespace of the process.
    Of { boot: String, netns: Inode },
    /// Change that is about to be made (`ours` is unknown), or was made. The last line with the
    /// same id is valid.
    Change(Record),
    /// Restoration of the change with this id.
    Done(u64),
}

/// Recorded change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: u64,
    /// Time of the last record, in ns since the boot.
    pub(crate) at: u64,
    /// Interface index.
    pub(crate) device: Option<u32>,
    /// Network namespace of the setting, if it is not the namespace of this process.
    pub(crate) netns: Option<(PathBuf, Inode)>,
    pub(crate) setting: Setting,
    pub(crate) before: Value,
    pub(crate) ours: Option<Value>,
}

/// Boot id of the kernel. Changes of an earlier boot no longer exist.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Open journal.
struct Open {
    path: PathBuf,
    lock: FileLock,
    /// Active changes.
    due: BTreeMap<u64, Record>,
    len: u64,
    /// Length after the last rewrite.
    begun: u64,
}

/// Finds or creates the directory for journals.
type Folder = Box<dyn Fn() -> io::Result<PathBuf> + Send>;

struct Journal {
    /// Source of the directory, called for the first record.
    folder: Option<Folder>,
    open: Option<Open>,
    last: u64,
}

static JOURNAL: Mutex<Journal> = Mutex::new(Journal { folder: None, open: None, last: 0 });

fn journal() -> MutexGuard<'static, Journal> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables the journal, in the directory that `folder` finds or creates for the first change.
/// Without this call nothing is recorded.
pub fn keep_in(folder: impl Fn() -> io::Result<PathBuf> + Send + 'static) {
    journal().folder = Some(Box::new(folder));
}

fn open(folder: &Path) -> io::Result<Open> {
    let here = Inode::here()?;
    for n in 0..NAMES {
        // Processes in different containers may have the same id.
        let name = format!("{}-{here}-{n}.{ENDING}", std::process::id());
        let path = folder.join(name);
        // An existing journal is in use, or has changes that must be undone.
        let mut options = File::options();
        let file = match options.create_new(true).append(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        };
        if let Some(lock) = FileLock::of(file)?.filter(|lock| lock.is_at(&path)) {
            let mut open = Open { path, lock, due: BTreeMap::new(), len: 0, begun: 0 };
            open.write(&Line::Of { boot: boot(), netns: here }).inspect_err(|_| open.remove())?;
            return Ok(open);
        }
    }
    Err(io::Error::other("too many journals of killed processes"))
}

impl Open {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        append(&self.lock, line).map(|n| self.len += n)?;
        match line {
            Line::Of { .. } => {}
            Line::Change(record) => drop(self.due.insert(record.id, record.clone())),
            Line::Done(id) => drop(self.due.remove(id)),
        }
        Ok(())
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Rewrites the journal with the active changes only.
    fn rewrite(&self) -> io::Result<Self> {
        let mut rewritten = open(self.path.parent().unwrap_or(Path::new("/")))?;
        let mut all = self.due.values().cloned().map(Line::Change);
        // Remove a partial file: without a lock, it would be mistaken for the journal of a killed
        // process.
        all.try_for_each(|line| rewritten.write(&line)).inspect_err(|_| rewritten.remove())?;
        rewritten.begun = rewritten.len;
        Ok(rewritten)
    }
}

/// Appends a line, with a leading line break in case the previous line is incomplete. Returns the
/// number of bytes.
pub(crate) fn append(lock: &FileLock, line: &Line) -> io::Result<u64> {
    let text = format!("\n{}\n", serde_json::to_string(line)?);
    lock.file().write_all(text.as_bytes())?;
    Ok(text.len() as u64)
}

impl Journal {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        if let (None, Some(folder)) = (&self.open, &self.folder) {
            let folder = folder()?;
            if !is_safe(&folder) {
                let folder = folder.display();
                tracing::info!("{folder}: other users may write to it: its journals are ignored");
            }
            self.open = Some(open(&folder)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.len > open.begun + LONG {
            // The new file is complete before the old one is removed. For a moment both have the
            // same content.
            match open.rewrite() {
                Ok(rewritten) => {
                    open.remove();
                    *open = rewritten;
                }
                Err(_) => open.begun = open.len,
            }
        }
        open.write(line)
    }
}

/// Records a change, or updates the record `id`. Returns the id, or `None` if the journal is not
/// enabled.
pub(crate) fn note(
    id: Option<u64>,
    (place, device): (&SettingNetns, Option<u32>),
    setting: &Setting,
    before: &Value,
    ours: Option<&Value>,
) -> Option<u64> {
    let mut journal = journal();
    journal.folder.as_ref()?;
    let id = id.unwrap_or(journal.last + 1);
    journal.last = journal.last.max(id);
    let record = Record {
        id,
        at: clock::monotonic().as_nanos() as u64,
        device,
        netns: place.path().map(Path::to_owned).zip(place.inode()),
        setting: setting.clone(),
        before: before.clone(),
        ours: ours.cloned(),
    };
    if let Err(e) = journal.write(&Line::Change(record)) {
        tracing::warn!(
            "{setting}: cannot be written to the journal: {e}; a kill would leave it changed"
        );
    }
    Some(id)
}

/// Records that a change is no longer active.
pub(crate) fn forget(id: Option<u64>) {
    let Some(id) = id else { return };
    let mut journal = journal();
    if let Some(open) = &journal.open
        && open.due.keys().all(|due| *due == id)
    {
        open.remove();
        journal.open = None;
        return;
    }
    if journal.open.is_some() {
        let _ = journal.write(&Line::Done(id));
    }
}
