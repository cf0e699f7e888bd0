//! Configuration of a port.

use mqnet_wire::Layer;

/// Configuration of a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Name of the port in messages.
    pub name: String,
    /// Largest number of channels, 1..=64. A running link can use fewer.
    pub channels: u16,
    /// First header of the frames.
    pub layer: Layer,
    /// MTU at the start in bytes, 68..=`mtu_max`.
    pub mtu: u32,
    /// Largest MTU that a running link can have, in bytes: up to 65,521, or 65,535 for IP packets.
    /// Every slot has room for a frame of this MTU.
    pub mtu_max: u32,
    /// Capacity of a queue in frames, in each direction: 2..=16384.
    pub depth: u32,
}
