//! How busy a worker's thread is.

/// Nanoseconds that a thread has run, from its line of scheduler statistics. None when it is not a
/// thread that we can see: of another PID namespace, or of a kernel without these statistics.
pub(super) fn cpu_ns(tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    // Goal: a thread that works gets more time; one that does not exist has none.
    #[test]
    fn our_own_thread() {
        let Some(before) = super::cpu_ns(std::process::id()) else { return };
        assert!(super::cpu_ns(std::process::id()) >= Some(before));
        assert_eq!(super::cpu_ns(u32::MAX), None);
    }
}
