//! CPU load of other processes, because a benchmark on a busy machine measures the scheduler.

use std::time::Duration;

/// Time of a measurement, long enough for a result in the kernel's clock ticks (4 ms on two CPUs).
const WINDOW: Duration = Duration::from_millis(300);
/// Load above which a note is added.
const QUIET: f64 = 0.05;

/// Share of all CPU time that is used while this thread sleeps; `None` if the kernel does not
/// report it.
pub(super) fn share() -> Option<f64> {
    let before = look()?;
    std::thread::sleep(WINDOW);
    share_of(before, look()?)
}

/// Current idle ticks and total ticks.
pub(super) fn look() -> Option<[u64; 2]> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Share of CPU time used between two snapshots; none if no tick has passed.
pub(super) fn share_of(before: [u64; 2], after: [u64; 2]) -> Option<f64> {
    let [idle, all] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
    (all > 0).then(|| 1.0 - idle as f64 / all as f64)
}

/// Idle ticks and total ticks of all CPUs.
fn parse(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // Fields: user nice system idle iowait irq softirq steal. Guest time is part of user time.
    let all = ticks.iter().take(8).sum();
    Some([ticks.get(3)? + ticks.get(4)?, all])
}

/// Note about the load, if it exceeds [`QUIET`] before or after the run.
pub(super) fn note(before: Option<f64>, after: Option<f64>) -> Option<String> {
    let percent = |share: Option<f64>| {
        share.map_or("?".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    let busy = [before, after].into_iter().flatten().any(|share| share > QUIET);
    busy.then(|| {
        let (before, after) = (percent(before), percent(after));
        format!(
            "NOT QUIET: others used {before} of the CPUs before and {after} after the run; \
             repeat it on an idle machine"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the share is the time that is not idle. Waiting for a disk counts as idle. Guest time,
    // which the kernel reports twice, counts once.
    #[test]
    fn the_share_is_what_is_not_idle() {
        let before = parse("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 2 3\n").unwrap();
        let after = parse("cpu  120 5 105 850 20 0 0 0 70 0\n").unwrap();
        assert_eq!((before, after), ([800, 1000], [870, 1100]));
        let share = share_of(before, after).unwrap();
        assert!((share - 0.3).abs() < 1e-9);
        assert_eq!(share_of(after, after), None);
    }

    // Goal: a quiet machine gives no note; a busy machine gives one.
    #[test]
    fn only_noise_is_noted() {
        assert_eq!(note(Some(0.01), Some(0.02)), None);
        assert!(note(Some(0.01), Some(0.4)).unwrap().contains("40 %"));
    }
}
