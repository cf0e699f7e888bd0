//! seccomp filters: lists of the system calls that a process and its threads may use.
//!
//! The lists come from traces of the netns suite, plus the calls that glibc and musl use instead.
//! An unlisted call fails with ENOSYS, so that a newer C library falls back to an older call. The
//! kernel's audit log names the call if auditing is enabled. The tests run with
//! `MQNET_SECCOMP=kill`, which ends the process instead.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use libc::*;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Environment variable. The value `kill` ends the process at an unlisted call.
pub const VARIABLE: &str = "MQNET_SECCOMP";

/// System calls of threads that move frames, serve peers or serve clients.
const THREAD: &[c_long] = &[
    // Memory.
    SYS_brk,
    SYS_get_mempolicy,
    SYS_madvise,
    SYS_mbind,
    SYS_membarrier,
    SYS_memfd_create,
    SYS_mincore,
    SYS_mlock,
    SYS_mmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_munlock,
    SYS_munmap,
    // Threads and time.
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_clone,
    SYS_clone3,
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_getcpu,
    SYS_getpid,
    SYS_gettid,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_setaffinity,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_tkill,
    // Restrictions of the thread.
    SYS_capget,
    SYS_capset,
    SYS_prctl,
    SYS_seccomp,
    // Descriptors.
    SYS_close,
    SYS_close_range,
    SYS_dup,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_fallocate,
    SYS_fcntl,
    SYS_fstat,
    SYS_fstatfs,
    SYS_ftruncate,
    SYS_ioctl,
    SYS_io_destroy,
    SYS_io_getevents,
    SYS_io_setup,
    SYS_io_submit,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_lseek,
    SYS_pipe2,
    SYS_ppoll,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_pselect6,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_read,
    SYS_readv,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_write,
    SYS_writev,
    // Sockets.
    SYS_accept4,
    SYS_bind,
    SYS_connect,
    SYS_getpeername,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_listen,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_socket,
    SYS_socketpair,
    // Files.
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_fdatasync,
    SYS_flock,
    SYS_fsync,
    SYS_getcwd,
    SYS_getdents64,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_openat,
    SYS_readlinkat,
    SYS_renameat2,
    SYS_statfs,
    SYS_statx,
    SYS_umask,
    SYS_unlinkat,
    // Process.
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getrandom,
    SYS_getrusage,
    SYS_getuid,
    SYS_prlimit64,
    SYS_sysinfo,
    SYS_uname,
];

/// Additional system calls of the control thread, which opens endpoints and starts the helper that
/// receives descriptors.
const CONTROL: &[c_long] = &[
    SYS_bpf,
    SYS_copy_file_range,
    SYS_execve,
    SYS_getpgid,
    SYS_getppid,
    SYS_io_uring_setup,
    SYS_kill,
    SYS_linkat,
    SYS_mount,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
    SYS_sendfile,
    SYS_setns,
    SYS_setpgid,
    SYS_setsid,
    SYS_signalfd4,
    SYS_symlinkat,
    SYS_umount2,
    SYS_unshare,
    SYS_wait4,
    SYS_waitid,
];

/// Older system calls that C libraries still use on x86-64.
#[cfg(target_arch = "x86_64")]
const THREAD_OLD: &[c_long] = &[
    SYS_accept,
    SYS_access,
    SYS_arch_prctl,
    SYS_chmod,
    SYS_chown,
    SYS_dup2,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_getdents,
    SYS_getrlimit,
    SYS_lchown,
    SYS_lstat,
    SYS_mkdir,
    SYS_open,
    SYS_pipe,
    SYS_poll,
    SYS_readlink,
    SYS_rename,
    SYS_renameat,
    SYS_rmdir,
    SYS_select,
    SYS_stat,
    SYS_time,
    SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const THREAD_OLD: &[c_long] = &[];

/// Older system calls of the control thread on x86-64.
#[cfg(target_arch = "x86_64")]
const CONTROL_OLD: &[c_long] = &[SYS_fork, SYS_getpgrp, SYS_signalfd, SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const CONTROL_OLD: &[c_long] = &[];

/// Compiled filters of this process.
#[derive(Debug)]
struct Filters {
    thread: BpfProgram,
}

static FILTERS: OnceLock<Filters> = OnceLock::new();

fn compile(lists: &[&[c_long]], refused: SeccompAction) -> io::Result<BpfProgram> {
    let calls = lists.iter().flat_map(|list| list.iter());
    let rules: BTreeMap<i64, Vec<_>> = calls.map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch);
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    // The crate's type and that of libc have the layout of the kernel's `struct sock_filter`.
    let program = sock_fprog { len, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel reads the program, which has `len` instructions, during the call.
    let done = unsafe {
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &raw const program)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts the calling thread, and all threads that it creates later, to the system calls of the
/// control thread. Afterwards [`restrict_thread`] restricts other threads further.
pub fn restrict_process() -> io::Result<()> {
    let control = compile(&[THREAD, THREAD_OLD, CONTROL, CONTROL_OLD], refused()?)?;
    let thread = compile(&[THREAD, THREAD_OLD], refused()?)?;
    install(&control)?;
    let _ = FILTERS.set(Filters { thread });
    Ok(())
}

/// Restricts the calling thread permanently. Has no effect in an unrestricted process.
pub fn restrict_thread() -> io::Result<()> {
    FILTERS.get().map_or(Ok(()), |filters| install(&filters.thread))
}

/// Restricts a child of a restricted process to the system calls of a thread.
pub fn restrict_like_thread() -> io::Result<()> {
    install(&compile(&[THREAD, THREAD_OLD], refused()?)?)
}

fn refused() -> io::Result<SeccompAction> {
    match std::env::var_os(VARIABLE) {
        None => Ok(SeccompAction::Errno(ENOSYS as u32)),
        Some(value) if value == "kill" => Ok(SeccompAction::KillProcess),
        Some(value) => {
            let why = format!("${VARIABLE} is {value:?}; allowed: kill");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// True if [`restrict_process`] has installed a filter.
pub fn is_restricted() -> bool {
    FILTERS.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unshare() -> i32 {
        // SAFETY: no flag is set, so the call does nothing.
        let done = unsafe { syscall(SYS_unshare, 0) };
        if done == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(-1) }
    }

    /// A call listed only for the control thread works with its filter and fails with ENOSYS on a
    /// restricted thread. An unlisted call fails on both.
    #[test]
    fn unlisted_calls_fail() {
        let refused = SeccompAction::Errno(ENOSYS as u32);
        let lists = [THREAD, THREAD_OLD, CONTROL, CONTROL_OLD];
        let [control, thread] = [&lists[..], &lists[..2]].map(|l| compile(l, refused.clone()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                install(&control.unwrap()).unwrap();
                assert_eq!(unshare(), 0);
                install(&thread.unwrap()).unwrap();
                assert_eq!(unshare(), ENOSYS);
                // SAFETY: the call only reads.
                let done = unsafe { syscall(SYS_personality, 0xffff_ffffu32) };
                assert_eq!((done, io::Error::last_os_error().raw_os_error()), (-1, Some(ENOSYS)));
                // Threads, memory and files still work.
                std::thread::spawn(|| vec![0u8; 1 << 22].len()).join().unwrap();
                std::fs::read("/proc/self/stat").unwrap();
            });
        });
        assert_eq!(unshare(), 0);
    }
}
