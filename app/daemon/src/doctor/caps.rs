//! What this process may do.

use super::Root;

/// The effective capabilities.
pub(super) struct Caps(u64);

pub(super) const NET_ADMIN: u32 = 12;
pub(super) const NET_RAW: u32 = 13;
pub(super) const SYS_ADMIN: u32 = 21;
pub(super) const BPF: u32 = 39;

impl Caps {
    pub(super) fn read(root: &Root<'_>) -> Self {
        let text = root.text("proc/self/status").unwrap_or_default();
        let bits = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0))
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }
}
