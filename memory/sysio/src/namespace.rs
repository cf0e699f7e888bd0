//! User and network namespaces. The `unshare` calls need a single-threaded process; they are made
//! first thing in `main` of the helper processes that use them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::descriptors::explained;

/// Enters a new user namespace in which the caller is root, and a new network namespace that it
/// owns. Needs no privilege where unprivileged user namespaces are enabled.
pub fn enter_new_user_and_net() -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    // A process without CAP_SETGID may map its group only after giving up setgroups.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Runs `f` on a new thread inside the network namespace at `path` (for example
/// `/run/netns/NAME` or `/proc/PID/ns/net`); the calling thread stays where it is.
pub fn run_in_net<T: Send>(path: &Path, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(path).map_err(explained)?;
    std::thread::scope(|scope| {
        // Not `scope.spawn`, which panics where there is no thread to be had.
        let inside =
            std::thread::Builder::new().spawn_scoped(scope, move || -> io::Result<T> {
                setns(&file, CloneFlags::CLONE_NEWNET)?;
                Ok(f())
            })?;
        inside.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    })
}

/// The same, with a `/sys` that shows the devices of that namespace; `None` is the caller's own,
/// where `f` simply runs. Needs CAP_SYS_ADMIN, as `ip netns exec` does.
pub fn run_in_sysfs<T: Send>(path: Option<&Path>, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(path) = path else { return Ok(f()) };
    run_in_net(path, || {
        // Of this thread alone, and gone with it: nobody else sees what is mounted here.
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        // What a sysfs shows was settled when it was mounted. Where there is none yet, all is well.
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("mqnet"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
        Ok(f())
    })?
}

/// True for the network namespace of the calling thread.
pub fn is_current_net(namespace: &impl AsFd) -> io::Result<bool> {
    let there = File::from(namespace.as_fd().try_clone_to_owned()?).metadata()?;
    let here = fs::metadata("/proc/thread-self/ns/net")?;
    Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
}

/// Moves the calling thread, and it alone, into a new network namespace. Needs CAP_SYS_ADMIN.
/// Devices that the thread makes there vanish with it.
pub fn enter_new_net() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}
