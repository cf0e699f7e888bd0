//! Offers of the two ends, and the agreement computed from them.

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX, MTU_MIN, frame_of_mtu};
use mqnet_netdev::{Caps, GroupMembership, Incompatible, Offloads, Plan, RequestedRings};
use mqnet_wire::Layer;

use crate::layout::{
    Geometry, MAGIC, PADS, VERSION_MAX, VERSION_MIN, decode_membership, encode_membership, pad,
};

/// Offer of one end, sent once per session of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Lowest and highest supported version.
    pub versions: (u16, u16),
    /// Random number of the session; not 0.
    pub generation: u32,
    /// Bytes of the end's own window.
    pub window: u32,
    /// Capabilities: frames sent and accepted, number of queue pairs, MTU.
    pub caps: Caps,
    /// Ring sizes that the end's user requests. Scratchpads do not carry them; control messages for
    /// channel changes do.
    pub rings: RequestedRings,
    /// Membership of the end in a group; `None` outside a group.
    pub membership: Option<GroupMembership>,
}

/// Agreement that both ends compute from the two offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Generation of the session; the same at both ends, not 0.
    pub generation: u32,
    /// Number of the change that made the agreement; 0 for the handshake.
    pub change: u32,
    /// Queue pairs, MTU, largest frame and offloads, as seen by this end.
    pub plan: Plan,
    /// Layout of this end's window.
    pub inbound: Geometry,
    /// Layout of the peer's window.
    pub outbound: Geometry,
}

/// Reason for a refused offer. If a variant has one value of each end, the first is that of the
/// refusing end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferError {
    /// The version ranges have no common version (each: highest << 16 | lowest).
    Version(u32, u32),
    /// The ends are configured with different MTUs.
    Mtu(u32, u32),
    /// The requested MTU exceeds the largest MTU of one end (second value).
    MtuTooLarge(u32, u32),
    /// A frame of the MTU does not fit a ring. Values: bytes of the smaller window; queue pairs <<
    /// 20 | MTU.
    Window(u32, u32),
    /// A scratchpad has an invalid value. Values: number of the scratchpad, and its value.
    Nonsense(u32, u32),
    /// The ends differ in their member number or in the size of their group (each: members << 4 |
    /// number).
    Seat(u32, u32),
}

impl OfferError {
    /// Code and the two values, as written to the scratchpads.
    pub fn encode(self) -> (u32, u32, u32) {
        match self {
            Self::Version(a, b) => (1, a, b),
            Self::Mtu(a, b) => (2, a, b),
            Self::MtuTooLarge(a, b) => (3, a, b),
            Self::Window(a, b) => (4, a, b),
            Self::Nonsense(a, b) => (5, a, b),
            Self::Seat(a, b) => (6, a, b),
        }
    }

    /// Text of a refusal, for the refusing end if `here`, otherwise for its peer. Unknown codes
    /// have a text too, because a peer writes the code.
    pub fn text(code: u32, a: u32, b: u32, here: bool) -> String {
        let (ours, theirs) = if here { (a, b) } else { (b, a) };
        let range = |v: u32| format!("{} to {}", v & 0xffff, v >> 16);
        match code {
            1 => format!(
                "no common version of the NTB layout: here {}, at the peer {}: update one end",
                range(ours),
                range(theirs)
            ),
            2 => format!("mtu {ours} here and {theirs} at the peer: give both ends the same mtu="),
            3 => format!("mtu {a}: one end carries at most {b}: lower mtu="),
            4 => window_text(a, (b >> 20) as u16, b & 0xf_ffff),
            5 => {
                let writer = if here { "the peer" } else { "this end (reported by the peer)" };
                format!("{writer} wrote the invalid value {b:#x} into scratchpad {a}")
            }
            6 => format!(
                "{} here, {} at the peer: list the same windows in the same order at both ends",
                membership_text(ours),
                membership_text(theirs)
            ),
            _ => format!("the peer refuses with the unknown code {code} ({a}, {b})"),
        }
    }
}

fn membership_text(membership: u32) -> String {
    match membership >> 4 {
        0 => "not a member of a group".to_owned(),
        of => format!("member {} of a group of {of}", membership & 15),
    }
}

/// Text of [`OfferError::Window`], with the values that would be accepted.
fn window_text(window: u32, queue_pairs: u16, mtu: u32) -> String {
    let frame = frame_of_mtu(mtu);
    let ring = Geometry::ring_max(window, queue_pairs);
    let need = Geometry::window_for(queue_pairs, frame);
    let most = Geometry::queue_pairs_for(window, frame);
    if most >= queue_pairs {
        return format!(
            "rings too small for a frame of mtu {mtu}: use larger rings (ethtool -G), or a smaller \
             mtu="
        );
    }
    let fewer = match most {
        0 => String::new(),
        n => format!(", or at most {n} channels"),
    };
    format!(
        "a window of {window} bytes gives {queue_pairs} queue pairs rings of {ring} bytes, in \
         which no frame of mtu {mtu} fits: use window={need} or more{fewer}, or a smaller mtu="
    )
}

impl Offer {
    /// Encodes the scratchpads of this offer, without the phase.
    pub fn encode(&self) -> [u32; PADS] {
        let mut pads = [0; PADS];
        pads[pad::MAGIC] = MAGIC;
        pads[pad::VERSION] = pack_versions(self.versions);
        pads[pad::GENERATION] = self.generation;
        pads[pad::QUEUE_PAIRS] = u32::from(self.caps.channels);
        pads[pad::WINDOW] = self.window;
        pads[pad::MTU] = self.caps.mtu_word();
        pads[pad::MTU_MAX] = self.caps.mtu_max;
        pads[pad::FRAME_MAX] = self.caps.frame_max;
        pads[pad::RX_OFFLOADS] = self.caps.rx_offloads.bits();
        pads[pad::TX_OFFLOADS] = self.caps.tx_offloads.bits();
        pads[pad::WANTED] = u32::from(self.caps.wanted.unwrap_or(0));
        pads[pad::MEMBERSHIP] = encode_membership(self.membership);
        pads
    }

    /// Decodes the scratchpads that a peer wrote; `Err` if a value is invalid or no version is
    /// common. `window` is the actual size of the peer's window.
    pub fn decode(pads: &[u32; PADS], window: u32) -> Result<Self, OfferError> {
        let check = |at: usize, good: bool| {
            if good { Ok(pads[at]) } else { Err(OfferError::Nonsense(at as u32, pads[at])) }
        };
        check(pad::MAGIC, pads[pad::MAGIC] == MAGIC)?;
        let version = pads[pad::VERSION];
        let versions = (version as u16, (version >> 16) as u16);
        check(pad::VERSION, versions.0 >= 1 && versions.0 <= versions.1)?;
        let ours = (VERSION_MIN, VERSION_MAX);
        if versions.0 > ours.1 || versions.1 < ours.0 {
            // Check the version before the other fields, which may have another meaning in
            // another version.
            return Err(OfferError::Version(pack_versions(ours), version));
        }
        let qps = pads[pad::QUEUE_PAIRS];
        check(pad::QUEUE_PAIRS, (1..=u32::from(CHANNELS_MAX)).contains(&qps))?;
        let wanted = pads[pad::WANTED];
        check(pad::WANTED, wanted <= u32::from(CHANNELS_MAX))?;
        let mtus = MTU_MIN..=MTU_MAX;
        let word = pads[pad::MTU];
        let [mtu, mtu_found] =
            Caps::read_mtu_word(word).ok_or(OfferError::Nonsense(pad::MTU as u32, word))?;
        let caps = Caps {
            // The only layer of this version of the layout.
            layer: Layer::Ethernet,
            channels: qps as u16,
            wanted: Some(wanted as u16).filter(|&n| n > 0),
            mtu,
            mtu_found,
            mtu_max: check(pad::MTU_MAX, mtus.contains(&pads[pad::MTU_MAX]))?,
            frame_max: check(pad::FRAME_MAX, pads[pad::FRAME_MAX] <= FRAME_MAX)?,
            rx_offloads: Offloads::from_bits(pads[pad::RX_OFFLOADS]),
            tx_offloads: Offloads::from_bits(pads[pad::TX_OFFLOADS]),
            rx_fixed: Offloads::NONE,
        };
        Ok(Self {
            versions,
            generation: check(pad::GENERATION, pads[pad::GENERATION] != 0)?,
            window: check(pad::WINDOW, pads[pad::WINDOW] == window)?,
            caps,
            rings: RequestedRings::default(),
            membership: decode_membership(pads[pad::MEMBERSHIP])
                .ok_or(OfferError::Nonsense(pad::MEMBERSHIP as u32, pads[pad::MEMBERSHIP]))?,
        })
    }
}

fn pack_versions((low, high): (u16, u16)) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

impl Agreement {
    /// Generation in every index word of these queue pairs; not 0.
    pub fn words_generation(&self) -> u32 {
        (self.generation ^ self.change.wrapping_mul(0x9e37_79b9)).max(1)
    }

    /// True if the plans and the ring depths of both agreements are equal.
    pub fn is_like(&self, other: &Self) -> bool {
        let depths = |a: &Self| (a.inbound.depth, a.outbound.depth);
        self.plan == other.plan && depths(self) == depths(other)
    }
}

/// Agreement on two offers, with change number `change`; `Err` if they do not fit each other. Both
/// ends compute the same agreement, each from its own side.
pub fn agree(ours: &Offer, theirs: &Offer, change: u32) -> Result<Agreement, OfferError> {
    let [here, there] = [ours, theirs].map(|offer| encode_membership(offer.membership) & 0xff);
    if here != there {
        return Err(OfferError::Seat(here, there));
    }
    // Join the limits of both ends directly: the bridge itself carries every frame, and the
    // offers already include the partner functions.
    let queue_pairs = ours.caps.channels_with(&theirs.caps);
    let ring = |a: Option<u32>, b: Option<u32>| match (a, b) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b).unwrap_or(Geometry::depth_default(queue_pairs)),
    };
    let (rx, tx) = (ring(ours.rings.rx, theirs.rings.tx), ring(ours.rings.tx, theirs.rings.rx));
    let inbound = Geometry::divide(ours.window, queue_pairs, change, rx);
    let outbound = Geometry::divide(theirs.window, queue_pairs, change, tx);
    let fits = inbound.frame_max().min(outbound.frame_max());
    let bounded = |caps: &Caps| Caps { frame_max: caps.frame_max.min(fits), ..caps.clone() };
    let plan = Plan::join(&bounded(&ours.caps), &bounded(&theirs.caps)).map_err(|e| match e {
        // Unreachable: `decode` sets the same layer in every offer.
        Incompatible::Layer => OfferError::Nonsense(pad::MAGIC as u32, MAGIC),
        Incompatible::Mtu { here, there } => OfferError::Mtu(here, there),
        Incompatible::MtuTooLarge { wanted, max } => OfferError::MtuTooLarge(wanted, max),
        Incompatible::Frame { mtu, need, max } if max == fits && fits < need => {
            OfferError::Window(ours.window.min(theirs.window), u32::from(queue_pairs) << 20 | mtu)
        }
        Incompatible::Frame { mtu, max, .. } => OfferError::MtuTooLarge(mtu, max),
    })?;
    let generation = match ours.generation ^ theirs.generation {
        0 => ours.generation,
        g => g,
    };
    Ok(Agreement { generation, change, plan, inbound, outbound })
}

#[cfg(test)]
mod tests;
