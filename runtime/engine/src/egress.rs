//! What leaves through a netdev: when its sink is full, and the disciplines attached to it.

/// What a lane does while its sink is full and nothing is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// It stops taking from its source: nothing is lost here.
    #[default]
    Stop,
    /// It goes on and drops (tail drop, as the kernel's noqueue).
    Drop,
}

/// The egress of one side of a link at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressConfig {
    /// Words of the discipline attached to every channel, such as `fq_codel limit 1000`; `None`:
    /// none.
    pub qdisc: Option<String>,
    /// What happens when the sink is full.
    pub full: Full,
}
