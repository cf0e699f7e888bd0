//! User and network namespaces. The `unshare` calls need a single-threaded process, so helper
//! processes make them at the start of `main`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::bounded;
use crate::descriptors::explained;

/// Enters a new user namespace, with the caller as root, and a new network namespace owned by that
/// user namespace. Needs no privilege if unprivileged user namespaces are enabled.
pub fn enter_new_user_and_net() -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    // A process without CAP_SETGID may map its group only after it has disabled setgroups.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Limit for opening the file of a namespace. The path may lead to any file.
const OPEN_LIMIT: Duration = Duration::from_millis(500);

/// Text of an error for the namespace at `path`, with a remedy if the path does not exist.
pub fn failure(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => ": `ip netns list` prints the names, `ip netns add` creates one",
        _ => "",
    };
    format!("network namespace {}: {error}{remedy}", path.display())
}

/// Opens the file of a namespace. Fails for other files. A pipe or an unresponsive file system
/// delays the caller by at most `OPEN_LIMIT`.
pub fn open_file(path: &Path) -> io::Result<File> {
    let path = path.to_owned();
    let open = move || {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(explained)?;
        match fstatfs(&file)?.filesystem_type() {
            NSFS_MAGIC => Ok(file),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")),
        }
    };
    bounded::run(OPEN_LIMIT, open)?
}

/// Runs `f` on a new thread inside the network namespace at `path` (for example `/run/netns/NAME`
/// or `/proc/PID/ns/net`). The calling thread does not change its namespace.
pub fn run_in_net<T: Send>(path: &Path, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    run_in(&open_file(path)?, f)
}

fn run_in<T: Send>(file: &File, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        // Not `scope.spawn`, which panics if no thread can be created.
        let inside =
            std::thread::Builder::new().spawn_scoped(scope, move || -> io::Result<T> {
                setns(file, CloneFlags::CLONE_NEWNET)?;
                Ok(f())
            })?;
        inside.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    })
}

/// Runs `f` as [`run_in_net`] does, with a `/sys` that shows the devices of that namespace. For
/// `None` (the namespace of the caller) `f` is called directly. Needs CAP_SYS_ADMIN, like `ip netns
/// exec`.
pub fn run_in_sysfs<T: Send>(path: Option<&Path>, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(path) = path else { return Ok(f()) };
    run_in_net(path, || {
        // The mount namespace belongs to this thread only and ends with it, so the mounts are
        // private.
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        // A sysfs shows the namespace in which it was mounted. A missing mount is no error.
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("mqnet"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
        Ok(f())
    })?
}

/// True if the file is the network namespace of the calling thread.
pub fn is_current_net(namespace: &impl AsFd) -> io::Result<bool> {
    let there = File::from(namespace.as_fd().try_clone_to_owned()?).metadata()?;
    let here = fs::metadata("/proc/thread-self/ns/net")?;
    Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
}

/// Moves only the calling thread into a new network namespace. Needs CAP_SYS_ADMIN. Devices that
/// the thread creates there are removed when the thread ends.
pub fn enter_new_net() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

/// Device and inode of a namespace's file.
pub type Id = (u64, u64);

/// Returns device and inode of a namespace's file. An unresponsive file system delays the caller by
/// at most `OPEN_LIMIT`.
pub fn id_of(path: &Path) -> io::Result<Id> {
    let identify = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
    if path.starts_with("/proc") {
        return identify(path);
    }
    let path = path.to_owned();
    bounded::run(OPEN_LIMIT, move || identify(&path))?
}

/// Inode of the calling thread's network namespace.
pub fn own_inode() -> io::Result<u64> {
    id_of(Path::new("/proc/thread-self/ns/net")).map(|(_, inode)| inode)
}

/// Holder of a network namespace, other than descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A mount of its file, such as that of `ip netns add`.
    Mount,
    /// A process inside the namespace.
    Process(u32),
}

/// Network namespace. The descriptor preserves the namespace after its name and its processes are
/// gone: see [`is_gone`](Self::is_gone).
#[derive(Debug)]
pub struct NetNs {
    file: File,
    id: Id,
    path: Option<PathBuf>,
    holder: Option<Holder>,
}

impl NetNs {
    /// Opens the namespace of a file such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(open_file(path)?, Some(path.to_owned()))
    }

    /// Returns the namespace of a descriptor, or `None` if it is the namespace of the calling
    /// thread.
    pub fn of(fd: OwnedFd) -> io::Result<Option<Self>> {
        let netns = Self::new(File::from(fd), None)?;
        Ok((!netns.is_own()).then_some(netns))
    }

    fn new(file: File, path: Option<PathBuf>) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self { file, id: (data.dev(), data.ino()), path, holder: None })
    }

    /// Duplicates the descriptor of the namespace.
    pub fn try_clone(&self) -> io::Result<Self> {
        Self::new(self.file.try_clone()?, self.path.clone())
    }

    /// True if this is the namespace of the calling thread.
    pub fn is_own(&self) -> bool {
        own_inode().is_ok_and(|own| own == self.inode())
    }

    /// Inode of the namespace's file, which identifies the namespace.
    pub fn inode(&self) -> u64 {
        self.id.1
    }

    /// Path by which the namespace was opened.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Runs `f` on a new thread inside the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        run_in(&self.file, f)
    }

    /// True if the namespace has no name, no process and no mount, so that only descriptors
    /// preserve it. A namespace without a path is gone if a process or a mount held it before.
    /// Descriptors of other processes are not searched.
    pub fn is_gone(&mut self) -> bool {
        let is_named = |path: &PathBuf| id_of(path).is_ok_and(|id| id == self.id);
        if self.path.as_ref().is_some_and(is_named) {
            return false;
        }
        let before = self.holder;
        if before.is_none_or(|holder| !self.is_held_by(holder)) {
            self.holder = self.find_holder();
        }
        self.holder.is_none() && (self.path.is_some() || before.is_some())
    }

    fn is_held_by(&self, holder: Holder) -> bool {
        match holder {
            Holder::Mount => {
                let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
                let root = format!("net:[{}]", self.id.1);
                mounts.lines().any(|line| line.split(' ').nth(3) == Some(&root[..]))
            }
            Holder::Process(pid) => {
                id_of(&PathBuf::from(format!("/proc/{pid}/ns/net"))).is_ok_and(|id| id == self.id)
            }
        }
    }

    fn find_holder(&self) -> Option<Holder> {
        let own = std::process::id();
        let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(pid);
        let processes = processes.filter(|&pid| pid != own).map(Holder::Process);
        std::iter::once(Holder::Mount).chain(processes).find(|&holder| self.is_held_by(holder))
    }
}
