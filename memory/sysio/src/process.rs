//! Processes: identity, signals, limits, capabilities.

use std::io;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// True if the effective user is root (of its user namespace).
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn send(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(kill(Pid::from_raw(pid as i32), signal)?)
}

/// Kills a process immediately, without cleanup (SIGKILL).
pub fn kill_hard(pid: u32) -> io::Result<()> {
    send(pid, Signal::SIGKILL)
}

/// Requests the end of a process (SIGTERM).
pub fn terminate(pid: u32) -> io::Result<()> {
    send(pid, Signal::SIGTERM)
}

/// Makes a daemon reload its configuration (SIGHUP).
pub fn hang_up(pid: u32) -> io::Result<()> {
    send(pid, Signal::SIGHUP)
}

/// Freezes a process (SIGSTOP).
pub fn freeze(pid: u32) -> io::Result<()> {
    send(pid, Signal::SIGSTOP)
}

/// Waits until a frozen child has stopped. SIGSTOP takes effect with a delay: a running thread must
/// be interrupted, and a sleeping one must get a CPU first. Also returns for a child that has
/// exited and has not been waited for. Fails with ECHILD for other processes.
pub fn wait_until_frozen(pid: u32) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let what = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(Pid::from_raw(pid as i32)), what) {
            Err(Errno::EINTR) => {}
            done => return Ok(done.map(drop)?),
        }
    }
}

/// Resumes a frozen process (SIGCONT).
pub fn thaw(pid: u32) -> io::Result<()> {
    send(pid, Signal::SIGCONT)
}

/// Makes the kernel end this process with SIGTERM when its parent thread ends. Helpers then do not
/// outlive the program that started them.
pub fn die_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?)
}

/// Initial size of the descriptor table.
const ROOM: u64 = 2048;

/// Raises the soft limit of open descriptors to the hard limit (64 channels need about 260), and
/// extends the descriptor table. Must be called while the process has a single thread. With several
/// threads the kernel waits for a grace period when it extends the table (`expand_files`), which
/// would delay a channel change.
///
/// Returns the new limit.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let last = hard.min(ROOM).saturating_sub(1) as i32;
    if let Ok(last) = fcntl(io::stdin(), FcntlArg::F_DUPFD_CLOEXEC(last)) {
        nix::unistd::close(last)?;
    }
    Ok(hard)
}

/// Capability sets of a thread in the format of `capset(2)` (`_LINUX_CAPABILITY_VERSION_3`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const _: () = assert!(size_of::<CapabilityData>() == 12);

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Capabilities that mqnet can use (`capabilities(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Capability {
    /// CAP_CHOWN.
    Chown = 0,
    /// CAP_DAC_OVERRIDE: files and folders of other users.
    DacOverride = 1,
    /// CAP_FOWNER: sockets of other users in folders with the sticky bit.
    FileOwner = 3,
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    NetBindService = 10,
    /// CAP_NET_ADMIN.
    NetAdmin = 12,
    /// CAP_NET_RAW.
    NetRaw = 13,
    /// CAP_IPC_LOCK: locked memory beyond RLIMIT_MEMLOCK.
    IpcLock = 14,
    /// CAP_SYS_RAWIO.
    SysRawIo = 17,
    /// CAP_SYS_CHROOT: mount namespaces.
    SysChroot = 18,
    /// CAP_SYS_ADMIN: namespaces, and configuration space of PCI functions.
    SysAdmin = 21,
    /// CAP_BPF.
    Bpf = 39,
}

/// Drops the capabilities of the calling thread permanently, except those in `keep` that it has.
/// Other threads keep theirs. A thread that serves a peer works mostly through open descriptors.
pub fn drop_capabilities(keep: &[Capability]) -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    let header: [u32; 2] = [CAPABILITY_VERSION_3, 0];
    let mut sets = [CapabilityData::default(); 2];
    // SAFETY: the kernel reads one header and, for this version, writes two blocks of data.
    let read = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    for (at, set) in sets.iter_mut().enumerate() {
        let of_block = keep.iter().map(|&c| c as u32).filter(|&bit| bit as usize / 32 == at);
        let kept = of_block.fold(0, |mask, bit| mask | 1 << (bit % 32));
        let permitted = set.permitted & kept;
        *set = CapabilityData { effective: permitted, permitted, inheritable: 0 };
    }
    // SAFETY: the kernel reads one header and, for this version, two blocks of data.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts the calling thread permanently to the capabilities in `keep`. If the process has a
/// seccomp filter, the thread is also restricted to the system calls allowed for threads.
pub fn restrict_thread(keep: &[Capability]) -> io::Result<()> {
    drop_capabilities(keep)?;
    crate::seccomp::restrict_thread()
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Takes ownership of a descriptor that was inherited from the parent process, by its number, and
/// sets close-on-exec. Each number can be taken only once per process.
pub fn take_inherited(number: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::Mutex;
    static TAKEN: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if number <= 2 || taken.contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: F_SETFD only changes a flag of the descriptor, and fails if there is none.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    taken.push(number);
    // SAFETY: the descriptor is open and was not opened here, because callers run this before they
    // open anything (see `main`). The list above ensures a single owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sets the name of the calling thread. The main thread's name is that of the process.
pub fn set_name(name: &std::ffi::CStr) -> io::Result<()> {
    Ok(nix::sys::prctl::set_name(name)?)
}

/// Starts a new session, so that the end of the terminal's session does not end this process.
pub fn leave_session() -> io::Result<()> {
    Ok(nix::unistd::setsid().map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the wait for a frozen child ends when all its threads have stopped, each time. The wait
    // does not hang for a child that has exited.
    #[test]
    fn wait_ends_when_the_child_is_frozen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit(')').next().unwrap().trim_start().chars().next().unwrap()
        };
        for _ in 0..50 {
            freeze(child.id()).unwrap();
            wait_until_frozen(child.id()).unwrap();
            assert_eq!(state(), 'T');
            thaw(child.id()).unwrap();
            assert_ne!(state(), 'T');
        }
        kill_hard(child.id()).unwrap();
        wait_until_frozen(child.id()).unwrap();
        child.wait().unwrap();
        assert!(wait_until_frozen(child.id()).is_err());
    }

    /// A thread drops its capabilities except one that it keeps; other threads keep theirs.
    #[test]
    fn capabilities_are_dropped_per_thread() {
        let effective = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let before = effective();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop_capabilities(&[Capability::DacOverride]).unwrap();
                assert_eq!(effective(), before & 1 << Capability::DacOverride as u32);
                drop_capabilities(&[]).unwrap();
                assert_eq!(effective(), 0);
                drop_capabilities(&[Capability::DacOverride]).unwrap();
                assert_eq!(effective(), 0);
            });
        });
        assert_eq!(effective(), before);
    }

    // Goal: the descriptor table is large afterwards, and the descriptor that extended it is
    // closed.
    #[test]
    fn descriptor_table_is_extended() {
        raise_descriptor_limit().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        let size: u64 = size.trim().parse().unwrap();
        let hard = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        assert!(size >= ROOM.min(hard.unwrap().1), "{size}");
        assert!(!std::path::Path::new("/proc/self/fd/2047").exists());
    }
}
