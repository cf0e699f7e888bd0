//! A frame that waits in a discipline.

use mqnet_pktbuf::Frag;
use mqnet_wire::VnetHdr;

/// What filters and disciplines decide by and may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `skb->priority`: 0 to 15, or a class id. From the frame's DSCP or VLAN priority only where a
    /// filter says so; 0 otherwise.
    pub priority: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// The channel through which it leaves (`queue_mapping`).
    pub channel: u16,
}

/// A detached frame: its bytes lie in a fragment of the scheduler's page pool.
#[derive(Debug)]
#[must_use = "a packet that is neither sent nor freed is in flight for ever"]
pub struct Packet {
    /// Its bytes, from the fragment's start on.
    pub frag: Frag,
    /// Length in bytes, with its link-layer header.
    pub len: u32,
    /// What is unfinished about it.
    pub hdr: VnetHdr,
    /// What is decided about it.
    pub meta: Meta,
    /// Hash of its flow (symmetric, unseeded).
    pub hash: u32,
    /// Frames that it stands for: 1, or the segments of a large frame.
    pub segments: u16,
    /// Where its IP header begins, if it has one: there ECN bits are set.
    pub ip: Option<u16>,
    /// When it was enqueued, in nanoseconds since the scheduler's clock began.
    pub at: u64,
}
