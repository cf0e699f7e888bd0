//! Restoration of settings that killed processes have left changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_sysio::file_lock::FileLock;
use mqnet_sysio::{clock, poll};
use nix::unistd::geteuid;

use crate::Setting;
use crate::folder::{is_safe, is_writable_by_others};
use crate::journal::{ENDING, Line, Record, append, boot};
use crate::place::{Inode, SettingNetns};
use crate::setting::Outcome;

/// Lock file for access to journals. Without it, a process could find a journal locked during a
/// recovery. The process would conclude that the owner lives, and take the changed settings for the
/// original ones.
const GATE: &str = "changes.lock";
/// Maximum wait for another process.
const GATE_WAIT: Duration = Duration::from_secs(2);

/// Settings that a killed process has left changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Process id, according to the journal.
    pub pid: String,
    /// Changed settings with their original values, as text; the last change first.
    pub what: Vec<String>,
}

/// Journal of a killed process, locked by this process.
struct Found {
    path: PathBuf,
    lock: FileLock,
    pid: String,
    records: Vec<Record>,
}

fn gate(folder: &Path) -> io::Result<FileLock> {
    let mut options = File::options();
    // A process that can open the lock file can hold the lock.
    options.create(true).append(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    let begin = clock::monotonic();
    while clock::monotonic().saturating_sub(begin) < GATE_WAIT {
        if let Some(gate) = FileLock::of(options.open(folder.join(GATE))?)? {
            return Ok(gate);
        }
        poll::pause(Duration::from_millis(10));
    }
    Err(io::Error::other("another mqnet process has held its lock for too long"))
}

/// Parses the active changes. Returns `None` for a journal of another network namespace, with
/// interfaces that are not visible here, or if a boot id is unknown. A journal of another boot, or
/// without a first line, has no changes. Invalid lines are skipped.
fn due(text: &str, root: &Path) -> Option<Vec<Record>> {
    let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let Some(Line::Of { boot: then, netns }) = lines.next() else { return Some(Vec::new()) };
    let now = boot();
    if now.is_empty() || then.is_empty() {
        return None;
    }
    if then != now {
        return Some(Vec::new());
    }
    if Inode::here().ok() != Some(netns) {
        return None;
    }
    let mut due = BTreeMap::new();
    for line in lines {
        match line {
            Line::Change(record) if record.setting.is_managed(root) => {
                due.insert(record.id, record);
            }
            Line::Change(_) | Line::Of { .. } => {}
            Line::Done(id) => drop(due.remove(&id)),
        }
    }
    Some(due.into_values().collect())
}

fn open_unlocked(path: PathBuf, root: &Path) -> io::Result<Option<Found>> {
    // The checks use the open file that is read: the name may refer to another file later.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = File::options().read(true).append(true).custom_flags(flags).open(&path)?;
    let data = file.metadata()?;
    let is_ours = data.is_file() && data.uid() == geteuid().as_raw() && data.nlink() == 1;
    if !is_ours || is_writable_by_others(&data) {
        return Ok(None);
    }
    let Some(lock) = FileLock::of(file)?.filter(|lock| lock.is_at(&path)) else { return Ok(None) };
    let mut text = Vec::new();
    lock.file().read_to_end(&mut text)?;
    let Some(records) = due(&String::from_utf8_lossy(&text), root) else { return Ok(None) };
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let pid = name.as_deref().and_then(|name| name.split('-').next()).unwrap_or("?").to_owned();
    Ok(Some(Found { path, lock, pid, records }))
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == ENDING)).collect()
}

/// Finds journals of killed processes. The returned lock excludes other processes from these
/// journals; `None` if there are no journals, or if the folder is not safe.
fn find(folder: &Path, root: &Path) -> io::Result<(Option<FileLock>, Vec<Found>)> {
    if journals(folder).is_empty() || !is_safe(folder) {
        return Ok((None, Vec::new()));
    }
    let gate = gate(folder)?;
    let all = journals(folder).into_iter();
    Ok((Some(gate), all.filter_map(|path| open_unlocked(path, root).ok().flatten()).collect()))
}

/// Settings left by killed processes with journals in `folder`. Nothing is changed.
pub fn left_behind(folder: &Path) -> Vec<Left> {
    let Ok((_gate, found)) = find(folder, Path::new("/")) else { return Vec::new() };
    let words = |record: &Record| format!("{} (was {})", record.setting, record.before);
    let all = found.iter().filter(|found| !found.records.is_empty());
    all.map(|Found { pid, records, .. }| Left {
        pid: pid.clone(),
        what: records.iter().rev().map(words).collect(),
    })
    .collect()
}

/// Restores the settings left by killed processes, the last change first. Returns messages about
/// restored settings and failures. A setting that another program has changed since is kept.
/// Settings that could not be restored stay in their journal; other journals are removed.
/// `patience` is the total time limit for busy queues.
pub fn recover(folder: &Path, patience: Duration) -> Vec<String> {
    recover_below(folder, Path::new("/"), patience)
}

pub(crate) fn recover_below(folder: &Path, root: &Path, patience: Duration) -> Vec<String> {
    let (_gate, found) = match find(folder, root) {
        Ok(found) => found,
        Err(e) => return vec![format!("{}: {e}", folder.join(GATE).display())],
    };
    let until = clock::monotonic() + patience;
    let mut due: Vec<Due<'_>> = found
        .iter()
        .flat_map(|journal| journal.records.iter().map(move |record| Due { journal, record }))
        .collect();
    due.sort_by_key(|due| Reverse((due.record.at, due.record.id)));
    let (mut messages, mut kept) = (Vec::new(), BTreeSet::new());
    // Grouped by namespace, because entering one is expensive. A setting belongs to one namespace.
    while let Some(netns) = due.first().map(|due| due.record.netns.clone()) {
        let (part, rest): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|due| due.record.netns == netns);
        due = rest;
        for (Due { journal, record }, outcome) in part.iter().zip(put_back(&part, until)) {
            let Record { setting, before, .. } = record;
            match &outcome {
                Outcome::Failed(_) => drop(kept.insert(journal.path.clone())),
                _ => drop(append(&journal.lock, &Line::Done(record.id))),
            }
            let words = match outcome == Outcome::Restored {
                true => Some(format!("{setting}: {before} again")),
                false => outcome.problem(setting),
            };
            messages.extend(words.map(|what| format!("killed mqnet {}: {what}", journal.pid)));
        }
    }
    for journal in found.iter().filter(|journal| !kept.contains(&journal.path)) {
        if let Err(e) = fs::remove_file(&journal.path) {
            messages.push(format!("{}: {e}", journal.path.display()));
        }
    }
    messages
}

/// Change to be restored.
struct Due<'a> {
    journal: &'a Found,
    record: &'a Record,
}

/// Restores the changes of one namespace.
fn put_back(part: &[Due<'_>], until: Duration) -> Vec<Outcome> {
    let all = |outcome: Outcome| vec![outcome; part.len()];
    let Some(Due { record: first, .. }) = part.first() else { return Vec::new() };
    let files = |due: &Due<'_>| matches!(due.record.setting, Setting::File(_));
    let with_sys = part.iter().any(files);
    let path = first.netns.as_ref().map(|(path, _)| path.as_path());
    let place = match SettingNetns::open(path) {
        // Another namespace has the name. The settings of the recorded namespace are gone with that
        // namespace.
        Ok(place) if place.inode() != first.netns.as_ref().map(|(_, inode)| *inode) => {
            return all(Outcome::Gone);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return all(Outcome::Gone),
        Ok(place) => place,
        Err(e) => return all(Outcome::Failed(format!("{}: {e}", first.setting))),
    };
    let done = place.enter(with_sys, || {
        let one = |Record { setting, before, ours, device, .. }: &Record| {
            setting.put_back(*device, before, ours.as_ref(), until)
        };
        part.iter().map(|due| one(due.record)).collect()
    });
    done.unwrap_or_else(|e| all(Outcome::Failed(format!("{}: {e}", first.setting))))
}
