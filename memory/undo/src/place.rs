//! Network namespace of a setting.

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

/// Device and inode, which identify a namespace independent of its name.
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

    /// Identity of this process's namespace.
    pub(crate) fn here() -> io::Result<Self> {
        Self::of(Path::new("/proc/self/ns/net"))
    }
}

/// Namespace kept open by its file, because its name may be reused.
#[derive(Debug)]
struct Namespace {
    path: PathBuf,
    file: File,
    inode: Inode,
}

/// Network namespace of a setting.
#[derive(Clone, Debug, Default)]
pub struct SettingNetns(Option<Arc<Namespace>>);

impl PartialEq for SettingNetns {
    fn eq(&self, other: &Self) -> bool {
        self.inode() == other.inode()
    }
}

impl SettingNetns {
    /// Network namespace of this process.
    pub fn here() -> Self {
        Self(None)
    }

    /// Network namespace of a file such as `/run/netns/NAME`, or that of this process for `None`.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::here()) };
        let file = namespace::open_file(path)?;
        let inode = file.metadata().map(|data| Inode(data.dev(), data.ino()))?;
        Ok(Self(Some(Arc::new(Namespace { path: path.to_owned(), file, inode }))))
    }

    pub(crate) fn inode(&self) -> Option<Inode> {
        self.0.as_ref().map(|namespace| namespace.inode)
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_ref().map(|namespace| namespace.path.as_path())
    }

    /// Runs `f` inside the namespace. For files this uses a thread with a `/sys` of that namespace,
    /// which needs CAP_SYS_ADMIN. In the namespace of this process `f` is called directly.
    pub fn run<T: Send>(&self, setting: &Setting, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.enter(matches!(setting, Setting::File(_)), f)
    }

    /// Runs `f` as [`run`](Self::run) does, with an explicit choice of a `/sys`.
    pub fn enter<T: Send>(&self, with_sys: bool, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Some(namespace) = &self.0 else { return Ok(f()) };
        let path = PathBuf::from(format!("/proc/self/fd/{}", namespace.file.as_raw_fd()));
        if with_sys { run_in_sysfs(Some(&path), f) } else { run_in_net(&path, f) }
    }
}
