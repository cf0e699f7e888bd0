//! Configuration of an interface.

use std::path::PathBuf;
use std::time::Duration;

/// XDP mode of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedMode {
    /// Native mode if the driver supports it, otherwise generic mode.
    #[default]
    Auto,
    /// Native mode: in the driver.
    Native,
    /// Generic mode: in the network stack (SKB mode).
    Generic,
}

/// Use of zero copy, in which the device reads and writes the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Zero copy if the driver supports it.
    #[default]
    Auto,
    /// Zero copy is required.
    On,
    /// Zero copy is disabled.
    Off,
}

/// Configuration of an interface that the function takes over.
#[derive(Clone, Debug, Default)]
pub struct AfXdpConfig {
    /// Name of the interface.
    pub interface: String,
    /// File of the interface's network namespace.
    pub netns: Option<PathBuf>,
    /// XDP mode of the program.
    pub mode: RequestedMode,
    /// Use of zero copy.
    pub zero_copy: ZeroCopy,
    /// Number of queues to set; by default the interface keeps its number.
    pub queues: Option<u16>,
    /// Number of frames per ring, a power of two; by default derived from the number of queues.
    pub ring: Option<u16>,
    /// MTU of the link; by default that of the interface.
    pub mtu: Option<u32>,
    /// True to keep the address filter: no promiscuous mode.
    pub keep_filter: bool,
    /// Time for which the first attempt waits for queues that other sockets have bound (default
    /// 100 ms). The kernel releases a queue some time after its socket was closed
    /// (`xp_put_pool`). Without this wait, an attempt right after the end of another program
    /// would fail.
    pub patience: Option<Duration>,
}

impl AfXdpConfig {
    /// Number of frames per ring, for this number of queues. By default the locked memory of all
    /// queues stays within 128 MiB.
    pub(crate) fn ring_for(&self, queues: u16) -> u16 {
        self.ring.unwrap_or(match queues {
            0..=8 => 2048,
            9..=16 => 1024,
            17..=32 => 512,
            _ => 256,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: for any number of queues, the default ring size is valid, and its locked memory stays
    // within the limit.
    #[test]
    fn memory_is_bounded() {
        for queues in 1..=64u16 {
            let ring = AfXdpConfig::default().ring_for(queues);
            assert!(ring.is_power_of_two() && (64..=8192).contains(&ring));
            assert!(usize::from(queues) * usize::from(ring) * 2 * 4096 <= 128 << 20, "{queues}");
        }
        let asked = AfXdpConfig { ring: Some(64), ..AfXdpConfig::default() };
        assert_eq!(asked.ring_for(1), 64);
    }
}
