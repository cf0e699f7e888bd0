//! State of a TUN/TAP device in the TUN driver that outlives its queues.
//!
//! The kernel keeps the size of the `virtio_net_hdr`, the offloads and the steering program of a
//! persistent device for the next program, which may not expect them. Only a queue can set this
//! state, so [`TunState::put_back`] attaches a queue temporarily.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mqnet_sysio::nic::Nics;
use mqnet_sysio::tap::{self as sys, flag, offload};
use netlink_packet_core::Nla;
use netlink_packet_route::link::{InfoData, InfoTun, LinkInfo};
use serde::{Deserialize, Serialize};

/// Attributes of `IFLA_INFO_DATA` (`linux/if_link.h`) that the netlink library does not name.
mod attribute {
    pub(super) const TYPE: u16 = 3;
    pub(super) const PACKET_INFORMATION: u16 = 4;
    pub(super) const VNET_HDR: u16 = 5;
    pub(super) const MULTI_QUEUE: u16 = 7;
    pub(super) const NUM_QUEUES: u16 = 8;
    pub(super) const NUM_DISABLED_QUEUES: u16 = 9;
}

/// Offloads of `TUNSETOFFLOAD`, by the names of their features.
const OFFLOADS: [(&str, u32); 5] = [
    ("tx-checksum-ip-generic", offload::CSUM),
    ("tx-tcp-segmentation", offload::TSO4),
    ("tx-tcp6-segmentation", offload::TSO6),
    ("tx-tcp-ecn-segmentation", offload::TSO_ECN),
    ("tx-udp-segmentation", offload::USO4 | offload::USO6),
];

/// TUN or TAP device, as reported by rtnetlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunInfo {
    /// Flags of `TUNSETIFF`: the type, and flags for packet information, a `virtio_net_hdr`, and
    /// several queues.
    pub flags: u32,
    /// Number of attached queues.
    pub attached: u32,
    /// Number of queues that programs have open but detached.
    pub detached: u32,
}

impl TunInfo {
    /// Parses the attributes of a link. Returns `None` for a device of another kind.
    pub fn find(kind: &[LinkInfo]) -> Option<Self> {
        let data = kind.iter().find_map(|part| match part {
            LinkInfo::Data(InfoData::Tun(data)) => Some(data),
            _ => None,
        })?;
        let mut info = Self { flags: flag::NO_PI, ..Self::default() };
        for part in data {
            let value = value(part);
            let mut set = |flag: u32, on: bool| match on {
                true => info.flags |= flag,
                false => info.flags &= !flag,
            };
            match part.kind() {
                attribute::TYPE => set(value & (flag::TUN | flag::TAP), true),
                attribute::PACKET_INFORMATION => set(flag::NO_PI, value == 0),
                attribute::VNET_HDR => set(flag::VNET_HDR, value != 0),
                attribute::MULTI_QUEUE => set(flag::MULTI_QUEUE, value != 0),
                attribute::NUM_QUEUES => info.attached = value,
                attribute::NUM_DISABLED_QUEUES => info.detached = value,
                _ => {}
            }
        }
        Some(info)
    }
}

/// Value of one or four bytes.
fn value(part: &InfoTun) -> u32 {
    let mut bytes = [0; 4];
    match part.value_len() {
        1 => {
            part.emit_value(&mut bytes[..1]);
            bytes[0].into()
        }
        4 => {
            part.emit_value(&mut bytes);
            u32::from_ne_bytes(bytes)
        }
        _ => 0,
    }
}

/// State of a device in the TUN driver, set by its programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunState {
    /// Flags of `TUNSETIFF`.
    pub flags: u32,
    /// Size of the `virtio_net_hdr`.
    pub header: u32,
    /// True if the fields of the `virtio_net_hdr` are little-endian on every host (`TUNSETVNETLE`).
    /// `TUNSETVNETBE` is not recorded: mqnet never sets it, and the kernel preserves it.
    pub is_little_endian: bool,
    /// Offloads that the reader supports (`TUNSETOFFLOAD`).
    pub offloads: u32,
    /// True if the carrier is on.
    pub carrier: bool,
}

impl fmt::Display for TunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, offloads, flags, .. } = self;
        let vnet = if flags & flag::VNET_HDR != 0 { "on" } else { "off" };
        write!(f, "vnet_hdr {vnet} of {header} B, offloads ")?;
        let mut names = OFFLOADS.iter().filter(|(_, bits)| offloads & bits != 0);
        match names.next() {
            None => f.write_str("none"),
            Some((first, _)) => {
                f.write_str(first)?;
                names.try_for_each(|(name, _)| write!(f, " {name}"))
            }
        }
    }
}

impl TunState {
    /// Reads the state of the device `name`, which had `flags` and `carrier`. `fd` is a queue of
    /// the device that has not changed anything. Must be called in the device's network namespace.
    pub fn read(fd: BorrowedFd<'_>, name: &str, flags: u32, carrier: bool) -> io::Result<Self> {
        let (header, is_little_endian) = sys::vnet_header(fd)?;
        let features = Nics::open()?.features(name)?;
        let is_active = |name: &str| features.iter().any(|f| f.is_active && f.name == name);
        let active = OFFLOADS.iter().filter(|(name, _)| is_active(name));
        let offloads = active.map(|(_, bits)| bits).sum();
        Ok(Self { flags, header, is_little_endian, offloads, carrier })
    }

    /// Sets the state through a queue of the device, except the flags. Steering program and filter
    /// are removed, because the kernel does not report the previous ones.
    pub fn restore(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sys::restore_vnet_header(fd, (self.header, self.is_little_endian))?;
        sys::set_offload(fd, self.offloads)?;
        // Kernels before 4.16 have no steering program, and a TUN device has no filter.
        let _ = sys::set_steering(fd, None);
        let _ = sys::set_filter(fd, false);
        let _ = sys::set_carrier(fd, self.carrier);
        Ok(())
    }

    /// Attaches a queue to the device of this name and index, with the flags of the state, and sets
    /// the state. Returns false if another device has the name.
    pub(crate) fn put_back(&self, name: &str, index: u32) -> io::Result<bool> {
        let fd = sys::open_clone_device()?;
        let known = sys::features(fd.as_fd())? & flag::NO_CARRIER;
        sys::attach(fd.as_fd(), name, self.flags | known)?;
        // If the device was removed before `attach`, `attach` has created a new device, which
        // vanishes when the descriptor is closed.
        if Nics::open()?.interface_state(name)?.index != index {
            return Ok(false);
        }
        self.restore(fd.as_fd()).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the text shows the state of a device.
    #[test]
    fn state_is_formatted() {
        let plain = TunState {
            flags: flag::TAP | flag::NO_PI,
            header: 10,
            is_little_endian: false,
            offloads: 0,
            carrier: false,
        };
        assert_eq!(plain.to_string(), "vnet_hdr off of 10 B, offloads none");
        let flags = plain.flags | flag::VNET_HDR;
        let offloads = offload::CSUM | offload::TSO4;
        let full = TunState { flags, header: 12, offloads, ..plain };
        let text = "vnet_hdr on of 12 B, offloads tx-checksum-ip-generic tx-tcp-segmentation";
        assert_eq!(full.to_string(), text);
    }
}
