//! Commands of the control queue (virtio 1.3, 5.1.6.5): class, number, data. All numbers are
//! little-endian.

mod rules;
fn put_key(hasher: &Hasher, out: &mut Vec<u8>) {
    let len = usize::from(hasher.key_len).min(KEY_LEN);
    out.push(len as u8);
    out.extend(&hasher.key[..len]);
}

#[cfg(test)]
mod tests;

use crate::Features;
use crate::net::filter::Mac;
use crate::net::rss::{Hasher, IndirectionTable, KEY_LEN};

pub use rules::{Changed, Rules, Settings};

/// Acknowledgement of a successful command.
pub const OK: u8 = 0;
/// Acknowledgement of a failed command.
pub const ERR: u8 = 1;

/// Maximum length of a command in bytes; far above two full MAC address tables.
pub const LEN_MAX: usize = 64 << 10;

/// Receive modes, with the numbers of the specification. A mode admits or drops frames in addition
/// to the MAC address table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RxMode {
    /// Admit all frames.
    Promisc = 0,
    /// Admit all multicast frames.
    AllMulti = 1,
    /// Admit all unicast frames.
    AllUni = 2,
    /// Drop multicast frames.
    NoMulti = 3,
    /// Drop unicast frames.
    NoUni = 4,
    /// Drop broadcast frames.
    NoBcast = 5,
}

impl RxMode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Promisc, Self::AllMulti, Self::AllUni, Self::NoMulti, Self::NoUni, Self::NoBcast];
}

/// Command of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CtrlCommand {
    /// Sets or clears a receive mode.
    Rx(RxMode, bool),
    /// Sets the address table, in addition to the device's own address.
    MacTable {
        /// Unicast addresses.
        unicast: Vec<Mac>,
        /// Multicast addresses.
        multicast: Vec<Mac>,
    },
    /// Sets the device's own address.
    MacAddr(Mac),
    /// Adds a VLAN to the filter.
    VlanAdd(u16),
    /// Removes a VLAN from the filter.
    VlanDel(u16),
    /// Acknowledges the device's request to announce the driver's addresses.
    AnnounceAck,
    /// Sets the number of queue pairs in use.
    Pairs(u16),
    /// Sets queue pairs and RSS.
    Rss {
        /// Indirection table.
        spread: IndirectionTable,
        /// Hash configuration.
        hasher: Hasher,
        /// Number of transmit queues in use.
        pairs: u16,
    },
    /// Sets the configuration of reported hashes.
    Hash(Hasher),
    /// Sets the offloads that the driver performs from now on.
    GuestOffloads(Features),
}

/// Reason for an acknowledgement with [`ERR`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CtrlError {
    /// The command is too short for class and number.
    #[error("a command of {0} bytes has no class and number")]
    Short(usize),
    /// The command does not exist.
    #[error("command {number} of class {class} does not exist")]
    Unknown {
        /// Class of the command.
        class: u8,
        /// Number within the class.
        number: u8,
    },
    /// The data have the wrong length.
    #[error("command {class}.{number}: invalid data length {len}")]
    Len {
        /// Class of the command.
        class: u8,
        /// Number within the class.
        number: u8,
        /// Length of the data in bytes.
        len: usize,
    },
    /// The command was not negotiated, or has invalid values.
    #[error("{0}")]
    Rule(String),
}

/// Class and number of each command.
mod number {
    pub(super) const RX: u8 = 0;
    pub(super) const MAC_TABLE: (u8, u8) = (1, 0);
    pub(super) const MAC_ADDR: (u8, u8) = (1, 1);
    pub(super) const VLAN_ADD: (u8, u8) = (2, 0);
    pub(super) const VLAN_DEL: (u8, u8) = (2, 1);
    pub(super) const ANNOUNCE_ACK: (u8, u8) = (3, 0);
    pub(super) const PAIRS: (u8, u8) = (4, 0);
    pub(super) const RSS: (u8, u8) = (4, 1);
    pub(super) const HASH: (u8, u8) = (4, 2);
    pub(super) const GUEST_OFFLOADS: (u8, u8) = (5, 0);
}

/// Reader of the data of a command, from front to back. Each method returns `None` if too few bytes
/// remain.
struct Data<'a>(&'a [u8]);

impl Data<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn half(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn macs(&mut self) -> Option<Vec<Mac>> {
        let count = self.word()? as usize;
        // Check the count before the allocation, because the driver sets the count.
        if count > self.0.len() / size_of::<Mac>() {
            return None;
        }
        (0..count).map(|_| self.take()).collect()
    }

    /// Length and bytes of a key, padded with zeros; `None` also if the key is longer than
    /// [`KEY_LEN`].
    fn key(&mut self) -> Option<(u8, [u8; KEY_LEN])> {
        let [len] = self.take()?;
        let bytes = self.0.get(..usize::from(len))?;
        self.0 = &self.0[bytes.len()..];
        let mut key = [0; KEY_LEN];
        key.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some((len, key))
    }

    fn rss(&mut self) -> Option<CtrlCommand> {
        let (types, mask, unclassified) = (self.word()?, self.half()?, self.half()?);
        let entries = usize::from(mask) + 1;
        if entries > self.0.len() / 2 {
            return None;
        }
        let table = (0..entries).map(|_| self.half()).collect::<Option<_>>()?;
        let pairs = self.half()?;
        let (key_len, key) = self.key()?;
        let hasher = Hasher { types, key_len, key };
        Some(CtrlCommand::Rss { spread: IndirectionTable { table, unclassified }, hasher, pairs })
    }

    fn hash(&mut self) -> Option<CtrlCommand> {
        let types = self.word()?;
        let _reserved: [u8; 8] = self.take()?;
        let (key_len, key) = self.key()?;
        Some(CtrlCommand::Hash(Hasher { types, key_len, key }))
    }

    fn table(&mut self) -> Option<CtrlCommand> {
        let (unicast, multicast) = (self.macs()?, self.macs()?);
        Some(CtrlCommand::MacTable { unicast, multicast })
    }
}

impl CtrlCommand {
    /// Decodes a command from all its readable bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, CtrlError> {
        let [class, number, data @ ..] = bytes else { return Err(CtrlError::Short(bytes.len())) };
        let (class, number) = (*class, *number);
        let mut rest = Data(data);
        let command = match (class, number) {
            (number::RX, mode) => {
                let mode = RxMode::ALL.get(usize::from(mode));
                let mode = *mode.ok_or(CtrlError::Unknown { class, number })?;
                rest.take().map(|[on]| Self::Rx(mode, on != 0))
            }
            number::MAC_TABLE => rest.table(),
            number::MAC_ADDR => rest.take().map(Self::MacAddr),
            number::VLAN_ADD => rest.half().map(Self::VlanAdd),
            number::VLAN_DEL => rest.half().map(Self::VlanDel),
            number::ANNOUNCE_ACK => Some(Self::AnnounceAck),
            number::PAIRS => rest.half().map(Self::Pairs),
            number::RSS => rest.rss(),
            number::HASH => rest.hash(),
            number::GUEST_OFFLOADS => {
                rest.take().map(|bits| Self::GuestOffloads(Features(u64::from_le_bytes(bits))))
            }
            _ => return Err(CtrlError::Unknown { class, number }),
        };
        let whole = command.filter(|_| rest.0.is_empty());
        whole.ok_or(CtrlError::Len { class, number, len: data.len() })
    }

    /// Encodes the command.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (class, number) = self.number();
        let mut out = vec![class, number];
        match self {
            Self::Rx(_, on) => out.push(u8::from(*on)),
            Self::MacTable { unicast, multicast } => {
                for macs in [unicast, multicast] {
                    out.extend((macs.len() as u32).to_le_bytes());
                    out.extend(macs.iter().flatten());
                }
            }
            Self::MacAddr(mac) => out.extend(mac),
            Self::VlanAdd(n) | Self::VlanDel(n) | Self::Pairs(n) => out.extend(n.to_le_bytes()),
            Self::AnnounceAck => {}
            Self::Rss { spread, hasher, pairs } => {
                out.extend(hasher.types.to_le_bytes());
                out.extend((spread.table.len().wrapping_sub(1) as u16).to_le_bytes());
                out.extend(spread.unclassified.to_le_bytes());
                out.extend(spread.table.iter().flat_map(|queue| queue.to_le_bytes()));
                out.extend(pairs.to_le_bytes());
                put_key(hasher, &mut out);
            }
            Self::Hash(hasher) => {
                out.extend(hasher.types.to_le_bytes());
                out.extend([0; 8]);
                put_key(hasher, &mut out);
            }
            Self::GuestOffloads(features) => out.extend(features.0.to_le_bytes()),
        }
        out
    }

    fn number(&self) -> (u8, u8) {
        match self {
            Self::Rx(mode, _) => (number::RX, *mode as u8),
            Self::MacTable { .. } => number::MAC_TABLE,
            Self::MacAddr(_) => number::MAC_ADDR,
            Self::VlanAdd(_) => number::VLAN_ADD,
            Self::VlanDel(_) => number::VLAN_DEL,
            Self::AnnounceAck => number::ANNOUNCE_ACK,
            Self::Pairs(_) => number::PAIRS,
            Self::Rss { .. } => number::RSS,
            Self::Hash(_) => number::HASH,
            Self::GuestOffloads(_) => number::GUEST_OFFLOADS,
        }
    }
}
