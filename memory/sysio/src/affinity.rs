//! CPU affinity of the calling thread.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// CPUs that the calling thread may run on (the process's cpuset on entry).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// Pins the calling thread to `cpu`. Error: `EINVAL` when the CPU is offline or outside the cpuset.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Number of the calling thread, as `/proc` has it.
pub fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}

/// Gives the CPU to another runnable thread, if there is one (0.6 us when there is none).
#[inline]
pub fn yield_now() {
    std::thread::yield_now();
}
