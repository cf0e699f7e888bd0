//! The network namespace that a setting is in.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqnet_sysio::namespace::{self, run_in_net, run_in_sysfs};
use serde::{Deserialize, Serialize};

use crate::setting::Setting;

/// Device and inode: what a namespace is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode(u64, u64);

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.1)
    }
}

impl Inode {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        namespace::id_of(path).map(|(device, inode)| Self(device, inode))
    }

    /// Of the namespace of this process.
    pub(crate) fn here() -> io::Result<Self> {
        Self::of(Path::new("/proc/self/ns/net"))
    }
}

/// A namespace by its file, which keeps it while we need it: its name may become another's.
#[derive(Debug)]
struct Elsewhere {
    path: PathBuf,
    file: File,
    inode: Inode,
}

/// The network namespace that a setting is in.
#[derive(Clone, Debug, Default)]
pub struct Place(Option<Arc<Elsewhere>>);

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.inode() == other.inode()
    }
}

impl Place {
    /// That of this process.
    pub fn here() -> Self {
        Self(None)
    }

    /// That of a file such as `/run/netns/NAME`; without one, that of this process.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::here()) };
        let file = namespace::open_file(path)?;
        let inode = file.metadata().map(|data| Inode(data.dev(), data.ino()))?;
        Ok(Self(Some(Arc::new(Elsewhere { path: path.to_owned(), file, inode }))))
    }

    pub(crate) fn inode(&self) -> Option<Inode> {
        self.0.as_ref().map(|elsewhere| elsewhere.inode)
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_ref().map(|elsewhere| elsewhere.path.as_path())
    }

    /// Runs `f` there. For files it is a thread with a `/sys` of that namespace, which takes
    /// CAP_SYS_ADMIN; in our own namespace `f` simply runs.
    pub fn run<T: Send>(&self, setting: &Setting, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.enter(matches!(setting, Setting::File(_)), f)
    }

    /// The same, with or without a `/sys`.
    pub fn enter<T: Send>(&self, with_sys: bool, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Some(elsewhere) = &self.0 else { return Ok(f()) };
        let path = PathBuf::from(format!("/proc/self/fd/{}", elsewhere.file.as_raw_fd()));
        if with_sys { run_in_sysfs(Some(&path), f) } else { run_in_net(&path, f) }
    }
}
