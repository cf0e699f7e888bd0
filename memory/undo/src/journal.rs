//! The journal of this process: one line of JSON for each change, before it is made, when it has
//! been made, and when it has been put back.
//!
//! It lies in the runtime directory as `PID-NETNS-N.changes`, locked as long as this process
//! lives: one that nobody has locked is that of a process that was killed. It is there only while
//! something is changed. Lines are appended, each by one `write`, so that a kill leaves whole ones;
//! nothing is synced, since what they tell of does not outlive the kernel either.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mqnet_sysio::clock;
use mqnet_sysio::socket::FileLock;
use serde::{Deserialize, Serialize};

use crate::place::{Inode, Place};
use crate::recover::is_safe;
use crate::setting::{Setting, Value};

/// How the name of a journal ends.
pub(crate) const ENDING: &str = "changes";

/// Names that are tried: another container's process may have our number.
const NAMES: u32 = 100;

/// A journal that is longer is written anew, with what is still due.
const LONG: u64 = 256 << 10;

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The first: the kernel's boot, and the network namespace of the process.
    Of { boot: String, netns: Inode },
    /// A change that is about to be made (`ours` is not known yet), or was made. The last one of a
    /// number counts.
    Change(Record),
    /// It was put back.
    Done(u64),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: u64,
    /// When it was noted last, in ns since the boot.
    pub(crate) at: u64,
    /// The number of its interface.
    pub(crate) device: Option<u32>,
    /// The other network namespace that it is in.
    pub(crate) netns: Option<(PathBuf, Inode)>,
    pub(crate) setting: Setting,
    pub(crate) before: Value,
    pub(crate) ours: Option<Value>,
}

/// The kernel's boot: what was changed before it is as it was.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// A journal and where it lies.
struct Open {
    path: PathBuf,
    lock: FileLock,
    /// Changes that are not put back.
    due: BTreeMap<u64, Record>,
    len: u64,
    /// Its length when it was begun.
    begun: u64,
}

/// Finds, or makes, a directory for journals.
type Folder = Box<dyn Fn() -> io::Result<PathBuf> + Send>;

struct Journal {
    /// Where it is to lie, asked when there is something to write.
    folder: Option<Folder>,
    open: Option<Open>,
    last: u64,
}

static JOURNAL: Mutex<Journal> = Mutex::new(Journal { folder: None, open: None, last: 0 });

fn journal() -> MutexGuard<'static, Journal> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on changes are written down in the directory that `folder` finds or makes when the
/// first one comes. Until then nothing is written down.
pub fn keep_in(folder: impl Fn() -> io::Result<PathBuf> + Send + 'static) {
    journal().folder = Some(Box::new(folder));
}

fn open(folder: &Path) -> io::Result<Open> {
    let here = Inode::here()?;
    for n in 0..NAMES {
        // Containers have processes of one number.
        let name = format!("{}-{here}-{n}.{ENDING}", std::process::id());
        let path = folder.join(name);
        // One that is there is somebody's, or waits to be put back.
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

    /// The same, shorter.
    fn anew(&self) -> io::Result<Self> {
        let mut anew = open(self.path.parent().unwrap_or(Path::new("/")))?;
        let mut all = self.due.values().cloned().map(Line::Change);
        // Half of it, without a lock, would look like that of a killed process.
        all.try_for_each(|line| anew.write(&line)).inspect_err(|_| anew.remove())?;
        anew.begun = anew.len;
        Ok(anew)
    }
}

/// Appends a line; after one that did not fit there is an end of it first.
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
                tracing::info!("{folder}: others may write there: its journals are not believed");
            }
            self.open = Some(open(&folder)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.len > open.begun + LONG {
            // The new one first: there are two for a moment, which say the same.
            match open.anew() {
                Ok(anew) => {
                    open.remove();
                    *open = anew;
                }
                Err(_) => open.begun = open.len,
            }
        }
        open.write(line)
    }
}

/// Notes a change, anew with its number if it has one; returns the number.
pub(crate) fn note(
    id: Option<u64>,
    (place, device): (&Place, Option<u32>),
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
        tracing::warn!("a kill would leave {setting} changed: it cannot be written down: {e}");
    }
    Some(id)
}

/// Notes that a change is none any more.
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
