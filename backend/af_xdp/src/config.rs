//! Configuration of an interface.

use std::path::PathBuf;
use std::time::Duration;

/// XDP mode of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeWish {
    /// Native if the driver supports it, else generic.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the network stack (SKB mode).
    Generic,
}

/// Use of zero copy, in which the device reads and writes the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver supports it.
    #[default]
    Auto,
    /// Required.
    On,
    /// Disabled.
    Off,
}

/// Interface to take over, and its options.
#[derive(Clone, Debug, Default)]
pub struct AfXdpConfig {
    /// Name of the interface.
    pub interface: String,
    /// File of its network namespace.
    pub netns: Option<PathBuf>,
    /// XDP mode of the program.
    pub mode: ModeWish,
    /// Use of zero copy.
    pub zero_copy: ZeroCopy,
    /// Number of queues to set; by default, the interface's own number is followed.
    pub queues: Option<u16>,
    /// Frames per ring, a power of two; by default, derived from the number of queues.
    pub ring: Option<u16>,
    /// MTU of the link; by default, that of the interface.
    pub mtu: Option<u32>,
    /// Keep the address filter: no promiscuous mode.
    pub keep_filter: bool,
    /// Time for which the first attempt waits for queues bound by other sockets (default 100 ms).
    /// The kernel releases a queue some time after its socket was closed (`xp_put_pool`). An
    /// immediate takeover would otherwise fail because of a program that has ended.
    pub patience: Option<Duration>,
}

impl AfXdpConfig {
    /// Frames per ring for this number of queues. By default the locked memory of all queues stays
    /// within 128 MiB.
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

    // Goal: for any number of queues, the default locked memory stays within its limit, and the
    // ring size is valid.
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
