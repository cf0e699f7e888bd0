//! CPU use of a worker's thread.

/// Nanoseconds that a thread has run, from its scheduler statistics. None if the thread is not
/// visible: it belongs to another PID namespace, or the kernel lacks these statistics.
pub(super) fn cpu_ns(tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    // Goal: the run time of a thread never decreases; a thread that does not exist has no run time.
    #[test]
    fn our_own_thread() {
        let Some(before) = super::cpu_ns(std::process::id()) else { return };
        assert!(super::cpu_ns(std::process::id()) >= Some(before));
        assert_eq!(super::cpu_ns(u32::MAX), None);
    }
}
