//! CPU affinity of the calling thread.

use std::io;
use std::marker::PhantomData;

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

/// Most CPUs that are [visited](visit_every_cpu): a visit waits for its CPU, and the wait for a
/// grace period does not grow with their number.
const VISITS_MAX: usize = 32;

/// Runs the calling thread on every CPU that is online, in turn. What the kernel was doing anywhere
/// with soft interrupts off, such as sending one frame, has ended when this returns: nobody else
/// can run on a CPU before.
///
/// Error: `Unsupported` where that proves nothing (some CPU is outside our cpuset, the kernel is
/// preemptible even there) or takes too long (more than 32 CPUs).
pub fn visit_every_cpu() -> io::Result<()> {
    let allowed = allowed_cpus()?;
    let realtime = std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|s| s.trim() == "1");
    if realtime || allowed.len() > VISITS_MAX || allowed != online_cpus()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let _urgent = Urgent::begin();
    let visited = allowed.iter().try_for_each(|&cpu| pin_current_thread(cpu));
    let mut home = CpuSet::new();
    allowed.iter().try_for_each(|&cpu| home.set(cpu))?;
    sched_setaffinity(Pid::from_raw(0), &home)?;
    visited
}

/// The calling thread goes before all ordinary ones (where we have the right to do that), and is
/// an ordinary one again at the end.
#[derive(Debug)]
pub struct Urgent {
    is_set: bool,
    /// It is of its thread.
    _thread: PhantomData<*const ()>,
}

impl Urgent {
    /// From now on; before all ordinary threads only as root.
    pub fn begin() -> Self {
        // SAFETY: asks for the policy of the calling thread.
        let ordinary = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        Self { is_set: ordinary && Self::set(libc::SCHED_FIFO, 1), _thread: PhantomData }
    }

    fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
        // SAFETY: all zeroes is a value of this plain structure (musl's has more fields).
        let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
        param.sched_priority = priority;
        // SAFETY: `param` outlives the call.
        unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.is_set {
            Self::set(libc::SCHED_OTHER, 0);
        }
    }
}

/// CPUs that are online.
fn online_cpus() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A list such as `0-3,8`.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
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

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: after a visit the thread may run where it could before, and as an ordinary one.
    #[test]
    fn a_visit_leaves_no_trace() {
        let before = allowed_cpus().unwrap();
        let visited = visit_every_cpu();
        if before == online_cpus().unwrap() {
            visited.unwrap();
        }
        assert_eq!(allowed_cpus().unwrap(), before);
        // SAFETY: asks for the policy of the calling thread.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }

    // Goal: a thread that cannot reach every CPU is told so.
    #[test]
    fn a_small_cpuset_is_no_proof() {
        let all = online_cpus().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_current_thread(all[0]).unwrap();
            (all.len(), visit_every_cpu())
        });
        let (cpus, visited) = pinned.join().unwrap();
        assert_eq!(visited.is_ok(), cpus == 1);
    }

    // Goal: the kernel's lists are read, with holes and without.
    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus("0-x"), None);
    }
}
