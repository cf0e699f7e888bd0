//! CPU affinity of the calling thread.

use std::io;
use std::marker::PhantomData;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// CPUs on which the calling thread may run (initially the cpuset of the process).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// Pins the calling thread to `cpu`. Fails with `EINVAL` if the CPU is offline or outside the
/// cpuset.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Maximum number of CPUs for [`visit_every_cpu`], because each visit waits for its CPU. For more
/// CPUs, waiting for a grace period is faster.
const VISITS_MAX: usize = 32;

/// Runs the calling thread on every online CPU, one after the other. When the function returns,
/// work that the kernel did on any CPU with soft interrupts disabled has ended. (An example is
/// sending one frame.) No thread runs on a CPU during such work.
///
/// Fails with `Unsupported` if a CPU is outside the cpuset, or if a real-time kernel can preempt
/// such work: the visits would prove nothing. Also fails if there are more than 32 CPUs, which
/// would take too long.
pub fn visit_every_cpu() -> io::Result<()> {
    let allowed = allowed_cpus()?;
    let realtime = std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|s| s.trim() == "1");
    if realtime || allowed.len() > VISITS_MAX || allowed != online_cpus()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let _urgent = Urgent::begin();
    let visited = allowed.iter().try_for_each(|&cpu| pin_current_thread(cpu));
    let mut restored = CpuSet::new();
    allowed.iter().try_for_each(|&cpu| restored.set(cpu))?;
    sched_setaffinity(Pid::from_raw(0), &restored)?;
    visited
}

/// Real-time priority of the calling thread, if permitted. The former policy is restored at drop.
#[derive(Debug)]
pub struct Urgent {
    is_set: bool,
    /// Makes the type `!Send`: the policy belongs to the current thread.
    _thread: PhantomData<*const ()>,
}

impl Urgent {
    /// Raises the priority of the calling thread above all ordinary threads. Has no effect without
    /// the privilege.
    pub fn begin() -> Self {
        // SAFETY: only reads the policy of the calling thread.
        let ordinary = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        Self { is_set: ordinary && Self::set(libc::SCHED_FIFO, 1), _thread: PhantomData }
    }

    fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
        // SAFETY: all zeros is a value of this plain structure (musl's has more fields).
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

/// Online CPUs.
fn online_cpus() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses a CPU list such as `0-3,8`. Returns `None` for any other text.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

/// Thread id of the calling thread, as in `/proc`.
pub fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}

/// Yields the CPU to another runnable thread, if there is one.
#[inline]
pub fn yield_now() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a visit restores the thread's affinity and scheduling policy.
    #[test]
    fn visit_restores_affinity_and_policy() {
        let before = allowed_cpus().unwrap();
        let visited = visit_every_cpu();
        if before == online_cpus().unwrap() {
            visited.unwrap();
        }
        assert_eq!(allowed_cpus().unwrap(), before);
        // SAFETY: only reads the policy of the calling thread.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }

    // Goal: a thread that cannot reach every CPU gets an error.
    #[test]
    fn visit_fails_with_a_small_cpuset() {
        let all = online_cpus().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_current_thread(all[0]).unwrap();
            (all.len(), visit_every_cpu())
        });
        let (cpus, visited) = pinned.join().unwrap();
        assert_eq!(visited.is_ok(), cpus == 1);
    }

    // Goal: the kernel's CPU lists are parsed, with and without gaps.
    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(parse_cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus("0-x"), None);
    }
}
