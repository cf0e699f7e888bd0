//! Flow rules, which select an RX queue with precedence over the indirection table.

/// Kind of frame that a rule matches. The kind determines the fields that the frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// Any Ethernet frame.
    Ether,
    /// Any IP packet of the given version.
    Ip {
        /// True for IPv6, false for IPv4.
        v6: bool,
    },
    /// TCP, UDP or SCTP over IP, given by protocol number; fragments never match.
    Transport {
        /// True for IPv6, false for IPv4.
        v6: bool,
        /// Protocol number: 6, 17 or 132.
        protocol: u8,
    },
}

/// Header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source MAC address, 6 bytes.
    EtherSource,
    /// Destination MAC address, 6 bytes.
    EtherDestination,
    /// EtherType, 2 bytes.
    EtherType,
    /// Source IP address, 4 or 16 bytes.
    Source,
    /// Destination IP address, 4 or 16 bytes.
    Destination,
    /// TOS or traffic class, 1 byte.
    TrafficClass,
    /// Protocol number in the IP header, 1 byte.
    Protocol,
    /// Source port, 2 bytes.
    SourcePort,
    /// Destination port, 2 bytes.
    DestinationPort,
}

impl FlowKind {
    /// Width in bytes of a field in frames of this kind; `None` if the kind has no such field.
    pub fn width(self, field: Field) -> Option<usize> {
        let address = match self {
            Self::Ip { v6 } | Self::Transport { v6, .. } => Some(if v6 { 16 } else { 4 }),
            Self::Ether => None,
        };
        match (field, self) {
            (Field::EtherSource | Field::EtherDestination, Self::Ether) => Some(6),
            (Field::EtherType, Self::Ether) => Some(2),
            (Field::Source | Field::Destination, _) => address,
            (Field::TrafficClass, Self::Ip { .. } | Self::Transport { .. }) => Some(1),
            (Field::Protocol, Self::Ip { .. }) => Some(1),
            (Field::SourcePort | Field::DestinationPort, Self::Transport { .. }) => Some(2),
            _ => None,
        }
    }
}

/// Condition on a field: the bits of the mask must equal those of the value. Value and mask must
/// have the width of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedField {
    /// Field to match.
    pub field: Field,
    /// Required value.
    pub value: Vec<u8>,
    /// Mask of the bits to compare.
    pub mask: Vec<u8>,
}

/// Flow rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteeringRule {
    /// Location of the rule; the matching rule with the lowest location applies.
    pub location: u32,
    /// Kind of the frames.
    pub kind: FlowKind,
    /// Conditions on fields; all of them must hold.
    pub matches: Vec<MaskedField>,
    /// RX queue of matching frames.
    pub queue: u16,
}

/// Maximum number of rules of a function, and one more than the largest location.
pub const RULES_MAX: u32 = 64;

impl SteeringRule {
    /// True if the location is below [`RULES_MAX`] and every field exists in the kind, with value
    /// and mask of the field's width.
    pub fn is_sound(&self) -> bool {
        let fits = |m: &MaskedField| {
            self.kind.width(m.field).is_some_and(|n| m.value.len() == n && m.mask.len() == n)
        };
        self.location < RULES_MAX && self.matches.iter().all(fits)
    }
}
