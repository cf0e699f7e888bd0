//! Flow rules, which select an RX queue with precedence over the indirection table.

/// Kind of frame that a rule matches. The kind determines the fields that the frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// Any Ethernet frame.
    Ether,
    /// Any IP packet of that version.
    Ip {
        /// IPv6.
        v6: bool,
    },
    /// TCP, UDP or SCTP over IP, by protocol number; never a fragment.
    Transport {
        /// IPv6.
        v6: bool,
        /// 6, 17 or 132.
        protocol: u8,
    },
}

/// Header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source of the Ethernet header, 6 bytes.
    EtherSource,
    /// Destination of the Ethernet header, 6 bytes.
    EtherDestination,
    /// The EtherType, 2 bytes.
    EtherType,
    /// Source of the IP header, 4 or 16 bytes.
    Source,
    /// Destination of the IP header, 4 or 16 bytes.
    Destination,
    /// TOS or traffic class, 1 byte.
    TrafficClass,
    /// Protocol in the IP header, 1 byte.
    Protocol,
    /// Source port, 2 bytes.
    SourcePort,
    /// Destination port, 2 bytes.
    DestinationPort,
}

impl FlowKind {
    /// Width of a field in frames of this kind, in bytes; `None` where the kind has no such field.
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

/// Field, with the value required where bits of the mask are set. Value and mask must have the
/// width of the field.
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
    /// Location of the rule: the lowest matching location takes precedence.
    pub location: u32,
    /// Kind of the frames.
    pub kind: FlowKind,
    /// Field matches; every match is required.
    pub matches: Vec<MaskedField>,
    /// RX queue of matching frames.
    pub queue: u16,
}

/// Maximum number of rules of a function, and one more than the largest location.
pub const RULES_MAX: u32 = 64;

impl SteeringRule {
    /// True if every field exists in the kind and has the right width.
    pub fn is_sound(&self) -> bool {
        let fits = |m: &MaskedField| {
            self.kind.width(m.field).is_some_and(|n| m.value.len() == n && m.mask.len() == n)
        };
        self.location < RULES_MAX && self.matches.iter().all(fits)
    }
}
