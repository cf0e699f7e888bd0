//! Rules that send flows to RX queues, before the table of queues is asked.

/// What a rule is about: the kind of frame, by which it is known which fields it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// Any Ethernet frame.
    Ether,
    /// Any IP packet of that version.
    Ip {
        /// IPv6.
        v6: bool,
    },
    /// TCP, UDP or SCTP over IP of that version, by its protocol number; no fragment is one.
    Transport {
        /// IPv6.
        v6: bool,
        /// 6, 17 or 132.
        protocol: u8,
    },
}

/// A part of the headers.
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
    /// How many bytes a field has in such frames; `None` where there is none.
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

/// A field and what it has to be where the bits of the mask are set. Both have the width of the
/// field; others are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// Which field.
    pub field: Field,
    /// What it has to be.
    pub value: Vec<u8>,
    /// Which bits count.
    pub mask: Vec<u8>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// Its place: of several that match, the lowest counts.
    pub location: u32,
    /// Which frames have the fields.
    pub kind: FlowKind,
    /// All of them must match.
    pub matches: Vec<FieldMatch>,
    /// Where such frames go.
    pub queue: u16,
}

/// Most rules of a function, and one more than the largest location.
pub const RULES_MAX: u32 = 64;

impl FlowRule {
    /// True when every field is one of its kind, as wide as it has to be.
    pub fn is_sound(&self) -> bool {
        let fits = |m: &FieldMatch| {
            self.kind.width(m.field).is_some_and(|n| m.value.len() == n && m.mask.len() == n)
        };
        self.location < RULES_MAX && self.matches.iter().all(fits)
    }
}
