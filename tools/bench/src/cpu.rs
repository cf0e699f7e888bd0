//! CPU time of other processes and of the machine.

use std::fs;

/// Ticks of `/proc/stat` per second: the kernel uses this unit on every machine.
const USER_HZ: f64 = 100.0;

/// Busy seconds of all CPUs since boot; time stolen by the hypervisor is excluded.
pub(super) fn machine() -> Option<f64> {
    busy(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks as f64 / USER_HZ)
}

fn busy(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // Fields: user nice system idle iowait irq softirq steal. Guest time is part of user time.
    Some(ticks.get(..3)?.iter().chain(ticks.get(5..7)?).sum())
}

/// Run time of all threads of these processes, in seconds; `None` if a process does not exist.
pub(super) fn of(pids: &[u32]) -> Option<f64> {
    let mut sum = 0.0;
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            // A thread that has ended in the meantime adds nothing.
            sum += task.file_name().to_str().and_then(|tid| thread(*pid, tid)).unwrap_or_default();
        }
    }
    Some(sum)
}

/// Run time of one thread, in seconds; none if the kernel does not report it.
pub(super) fn thread(pid: u32, tid: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let ns: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: run time counts; waiting time and stolen time do not.
    #[test]
    fn stolen_time_is_not_ours() {
        assert_eq!(busy("cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1"), Some(1 + 2 + 4 + 32 + 64));
        assert_eq!(busy("cpu  1 2"), None);
        assert_eq!(busy("intr 1 2 3 4 5 6 7 8"), None);
    }

    // Goal: CPU time used by a thread is included in the times of the thread, of its process and of
    // the machine.
    #[test]
    fn burnt_time_is_seen() {
        let pid = std::process::id();
        let own = fs::read_link("/proc/thread-self").unwrap();
        let tid = own.file_name().unwrap().to_str().unwrap();
        let (before, machine_before) = (thread(pid, tid).unwrap(), machine().unwrap());
        while thread(pid, tid).unwrap() < before + 0.02 {}
        assert!(of(&[pid]).unwrap() >= before + 0.02);
        assert!(machine().unwrap() >= machine_before);
        assert_eq!(thread(pid, "0"), None);
    }
}
