//! Description of the slot rings of a bridge.

/// Slot rings in memory windows, in one session of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRings {
    /// Bytes of a slot.
    pub slot: u32,
    /// Bytes of each memory window of this end, and of the peer's window with the same number.
    pub windows: Vec<(u32, u32)>,
    /// Number of interrupt vectors of the peer.
    pub vectors: u16,
    /// Queue pairs, in order.
    pub pairs: Vec<PairView>,
}

/// Rings of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairView {
    /// Number of the queue pair.
    pub pair: u16,
    /// True if the peer has opened the queue pair.
    pub is_open: bool,
    /// Number of slots in this end's window.
    pub rx_slots: u32,
    /// Number of slots with frames that are not received yet.
    pub rx_waiting: u32,
    /// Number of slots in the peer's window.
    pub tx_slots: u32,
    /// Number of slots with frames for which the peer has not returned credit.
    pub tx_in_use: u32,
    /// Frames received since the session began.
    pub received: u64,
    /// Number of slots that the peer returned since the session began.
    pub credits: u64,
}
