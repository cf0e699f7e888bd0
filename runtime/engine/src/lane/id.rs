//! Identity of a lane.

/// Identity of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    /// Number of the link's set of channels. Every channel change creates a new set.
    pub set: u32,
    /// Channel of the lane.
    pub channel: u16,
    /// Direction of the lane.
    pub way: Direction,
}

/// Direction of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the link's first function to the second.
    AToB,
    /// From the link's second function to the first.
    BToA,
}
