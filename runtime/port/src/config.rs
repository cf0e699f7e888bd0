//! Configuration of a port.

use mqnet_wire::Layer;

/// Configuration of a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Name of the port in messages.
    pub name: String,
    /// Largest number of channels, 1..=64. A running link may use fewer.
    pub channels: u16,
    /// Layer of the frames: Ethernet frames or IP packets.
    pub layer: Layer,
    /// Initial MTU in bytes, 68..=`mtu_max`.
    pub mtu: u32,
    /// Largest possible MTU of the link in bytes: at most 65,521 for Ethernet frames, 65,535 for IP
    /// packets. Every slot has space for a frame of this MTU.
    pub mtu_max: u32,
    /// Capacity of a queue in frames for each direction, 2..=16384.
    pub depth: u32,
}
