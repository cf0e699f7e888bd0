//! Rings of slots of a bridge, as they are shown.

/// Rings of slots in memory windows, in one session of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRings {
    /// Bytes of a slot.
    pub slot: u32,
    /// Bytes of each memory window of this end, and of the peer's window of the same number.
    pub windows: Vec<(u32, u32)>,
    /// Interrupt vectors of the peer.
    pub vectors: u16,
    /// Queue pairs, in order.
    pub pairs: Vec<PairView>,
}

/// One queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairView {
    /// Number of the queue pair.
    pub pair: u16,
    /// The peer has the queue pair open.
    pub is_open: bool,
    /// Slots of this end's window.
    pub rx_slots: u32,
    /// Slots with frames that are not received yet.
    pub rx_waiting: u32,
    /// Slots of the peer's window.
    pub tx_slots: u32,
    /// Slots with frames for which the peer has not returned credit.
    pub tx_in_use: u32,
    /// Frames received since the session began.
    pub received: u64,
    /// Slots that the peer returned since the session began.
    pub credits: u64,
}
