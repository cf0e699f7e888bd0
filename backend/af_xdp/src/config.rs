//! What the user asked for.

use std::path::PathBuf;
use std::time::Duration;

/// Where in the kernel frames are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeWish {
    /// In the driver if it can, else in the stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the stack.
    Generic,
}

/// Whether the device itself moves frames into and out of our memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If it can.
    #[default]
    Auto,
    /// It must.
    On,
    /// It must not.
    Off,
}

/// Which interface to take over, and how.
#[derive(Clone, Debug, Default)]
pub struct AfXdpConfig {
    /// Its name.
    pub interface: String,
    /// File of its network namespace.
    pub netns: Option<PathBuf>,
    /// Where frames are taken.
    pub mode: ModeWish,
    /// Who moves them.
    pub zero_copy: ZeroCopy,
    /// Number of its queues to set; otherwise what it has is followed.
    pub queues: Option<u16>,
    /// Frames that each of its rings holds, a power of two; otherwise by the number of queues.
    pub ring: Option<u16>,
    /// MTU of the link; otherwise that of the interface.
    pub mtu: Option<u32>,
    /// Leave its address filter alone.
    pub keep_filter: bool,
    /// How long the first attempt waits for queues that other sockets have (100 ms): the kernel
    /// lets go of a queue some time after its socket was closed (`xp_put_pool`), and who takes an
    /// interface over again right after that would be told of a program that is gone.
    pub patience: Option<Duration>,
}

impl AfXdpConfig {
    /// Frames in each ring, with so many queues: the memory of all, which is locked, stays within
    /// 128 MiB unless somebody asks for more.
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

    // Goal: whatever the number of queues, the memory that is locked by default stays within its
    // bound, and a ring is one that the kernel takes.
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
