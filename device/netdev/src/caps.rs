//! Capabilities of a function, and the plan that two functions agree on.

use std::fmt;

use mqnet_wire::{GsoKind, Layer, VnetHdr};

use crate::limits;

/// Set of offloads. For RX, the set has the offloads that received frames may need; for TX, the
/// offloads that the queue performs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads(u32);

impl Offloads {
    /// Checksum offload: frames may have a partial checksum.
    pub const CSUM: Self = Self(1);
    /// TCP segmentation over IPv4.
    pub const TSO4: Self = Self(2);
    /// TCP segmentation over IPv6.
    pub const TSO6: Self = Self(4);
    /// Segmentation of TCP frames with ECN bits (`VIRTIO_NET_HDR_GSO_ECN`).
    pub const TSO_ECN: Self = Self(8);
    /// UDP segmentation over IPv4.
    pub const USO4: Self = Self(16);
    /// UDP segmentation over IPv6.
    pub const USO6: Self = Self(32);
    /// All offloads.
    pub const ALL: Self = Self(63);
    /// No offload: every frame has a complete checksum and fits the MTU.
    pub const NONE: Self = Self(0);
    /// All segmentation offloads, without the ECN offload.
    pub const LARGE: Self = Self(2 | 4 | 16 | 32);
    const NAMES: [(Self, &str); 6] = [
        (Self::CSUM, "csum"),
        (Self::TSO4, "tso4"),
        (Self::TSO6, "tso6"),
        (Self::TSO_ECN, "tso-ecn"),
        (Self::USO4, "uso4"),
        (Self::USO6, "uso6"),
    ];

    /// Set with the bits `bits`; unknown bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Bits of the set.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Intersection.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Union.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Offloads of this set that are not in `other`.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Offloads of this set that are not in `other`, reduced to a set that the kernel accepts.
    pub fn without(self, other: Self) -> Self {
        self.minus(other).consistent()
    }

    /// True if this set includes all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if the set includes all offloads that a frame with this header needs; false for an
    /// unknown GSO type.
    pub fn covers(self, hdr: VnetHdr) -> bool {
        if hdr.needs_checksum() && !self.has(Self::CSUM) {
            return false;
        }
        let kind = match hdr.gso() {
            Some(GsoKind::None) => return true,
            Some(GsoKind::Tcp4) => Self::TSO4,
            Some(GsoKind::Tcp6) => Self::TSO6,
            Some(GsoKind::Udp) => Self::USO4.or(Self::USO6),
            None => return false,
        };
        let ecn = if hdr.has_ecn() { Self::TSO_ECN } else { Self::NONE };
        self.has(kind.or(ecn))
    }

    /// True if the set has a segmentation offload: frames may be larger than the MTU.
    pub fn any_large(self) -> bool {
        self.0 & Self::LARGE.0 != 0
    }

    /// Largest subset that the kernel accepts. Segmentation needs the checksum offload, ECN needs
    /// TCP segmentation, and USO covers both IP versions or none.
    pub fn consistent(self) -> Self {
        let (tso, uso) = (Self::TSO4.0 | Self::TSO6.0, Self::USO4.0 | Self::USO6.0);
        if !self.has(Self::CSUM) {
            return Self::NONE;
        }
        let mut bits = self.0;
        if bits & tso == 0 {
            bits &= !Self::TSO_ECN.0;
        }
        if bits & uso != uso {
            bits &= !uso;
        }
        Self(bits)
    }

    /// Names of the offloads in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| *name)
    }

    /// Set without the segmentation offloads and the ECN offload.
    pub fn without_large(self) -> Self {
        Self(self.0 & !(Self::LARGE.0 | Self::TSO_ECN.0))
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.names();
        match names.next() {
            None => f.write_str("none"),
            Some(first) => {
                f.write_str(first)?;
                names.try_for_each(|name| write!(f, ",{name}"))
            }
        }
    }
}

/// Capabilities and requests of one side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Layer at which frames begin.
    pub layer: Layer,
    /// Maximum number of channels, 1..=64.
    pub channels: u16,
    /// Number of channels that the user requested; `None`: the request of the other side applies.
    pub wanted: Option<u16>,
    /// MTU that the user requested; `None`: the request of the other side applies.
    pub mtu: Option<u32>,
    /// MTU of a device that another program created; applies if neither side requests an MTU.
    pub mtu_found: Option<u32>,
    /// Largest MTU of this side.
    pub mtu_max: u32,
    /// Largest frame of this side in bytes.
    pub frame_max: u32,
    /// Offloads that frames received from this side may need.
    pub rx_offloads: Offloads,
    /// Offloads that this side performs for frames sent to it.
    pub tx_offloads: Offloads,
    /// Offloads that frames received from this side may need regardless of the negotiation, because
    /// the features of this side's peer are fixed. The engine emulates the offloads that the other
    /// side of the link does not perform.
    pub rx_fixed: Offloads,
}

impl Caps {
    /// Encodes `mtu` in the lower and `mtu_found` in the upper 16 bits of a word; 0 means none.
    pub fn mtu_word(&self) -> u32 {
        self.mtu.unwrap_or(0) | self.mtu_found.unwrap_or(0) << 16
    }

    /// Decodes the result of [`mtu_word`](Self::mtu_word) as `[mtu, mtu_found]`; `None` if one of
    /// the values is not a valid MTU.
    pub fn read_mtu_word(word: u32) -> Option<[Option<u32>; 2]> {
        let halves = [word & 0xffff, word >> 16];
        let is_valid = |mtu: u32| mtu == 0 || (limits::MTU_MIN..=limits::MTU_MAX).contains(&mtu);
        halves.into_iter().all(is_valid).then(|| halves.map(|mtu| Some(mtu).filter(|&mtu| mtu > 0)))
    }

    /// Number of channels of a link with the other side `there`: the smaller request, the only
    /// request, or 1 without a request. The maximum of either side limits the result.
    pub fn channels_with(&self, there: &Self) -> u16 {
        let wanted = match (self.wanted, there.wanted) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(1),
        };
        wanted.min(self.channels).min(there.channels).max(1)
    }
}

/// Offloads that the engine emulates for frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emulation {
    /// Offloads to emulate.
    pub offloads: Offloads,
    /// True if large frames may exceed the plan's largest frame. Frames that exceed it are
    /// segmented even if the sink offers segmentation.
    pub cuts: bool,
}

impl Emulation {
    /// True if nothing is emulated.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn of(fixed: Offloads, agreed: Offloads, frame_max: u32) -> Self {
        let cuts = fixed.any_large() && frame_max < limits::FRAME_MAX;
        Self { offloads: fixed.minus(agreed), cuts }
    }
}

/// Result of the negotiation of two functions, as seen by one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of channels.
    pub channels: u16,
    /// MTU of the link.
    pub mtu: u32,
    /// Largest frame that a sink accepts, in either direction. A source may send larger frames
    /// before emulation: [`rx_frame_max`](Self::rx_frame_max).
    pub frame_max: u32,
    /// Offloads that frames received from this function may need.
    pub rx_offloads: Offloads,
    /// Offloads that frames sent through this function may need.
    pub tx_offloads: Offloads,
    /// Emulation for frames from this function to the other one: the
    /// [`rx_offloads`](Self::rx_offloads) that the other function does not perform.
    pub rx_emulation: Emulation,
    /// Emulation for frames from the other function to this one: the offloads that this function
    /// does not perform.
    pub tx_emulation: Emulation,
}

/// Reason why two sides cannot form a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// A TUN was joined with an Ethernet function.
    #[error(
        "one side carries IP packets, the other Ethernet frames: join a TUN with a TUN, or use a \
         TAP"
    )]
    Layer,
    /// Both sides have a configured MTU, and the two differ.
    #[error("mtu {here} here and {there} on the other side: give both the same mtu=")]
    Mtu {
        /// MTU of this side.
        here: u32,
        /// MTU of the other side.
        there: u32,
    },
    /// The requested MTU exceeds the largest MTU of one of the sides.
    #[error("mtu {wanted}: one side carries at most {max}: lower mtu=")]
    MtuTooLarge {
        /// Requested MTU.
        wanted: u32,
        /// Largest MTU that both sides can carry.
        max: u32,
    },
    /// One side cannot carry frames of the link's MTU.
    #[error("mtu {mtu}: frames need {need} bytes, one side accepts at most {max}: lower mtu=")]
    Frame {
        /// MTU of the link.
        mtu: u32,
        /// Largest frame of this MTU in bytes.
        need: u32,
        /// Largest frame in bytes that both sides can carry.
        max: u32,
    },
}

impl Plan {
    /// Negotiates the plan of a link between `here` and `there`. Returns the plan as seen by
    /// `here`.
    pub fn join(here: &Caps, there: &Caps) -> Result<Self, Incompatible> {
        if here.layer != there.layer {
            return Err(Incompatible::Layer);
        }
        let mtu = agree_mtu(here, there)?;
        let rx = here.rx_offloads.and(there.tx_offloads).consistent();
        let tx = here.tx_offloads.and(there.rx_offloads).consistent();
        let need = mtu + limits::l2_header(here.layer);
        let max = here.frame_max.min(there.frame_max);
        if max < need {
            return Err(Incompatible::Frame { mtu, need, max });
        }
        let large = rx.any_large() || tx.any_large();
        let plan = Self {
            channels: here.channels_with(there),
            mtu,
            frame_max: if large { max } else { need },
            rx_offloads: rx,
            tx_offloads: tx,
            rx_emulation: Emulation::default(),
            tx_emulation: Emulation::default(),
        };
        Ok(plan.with_fixed(here.rx_fixed, there.rx_fixed))
    }

    /// Adds fixed offloads to a plan that was negotiated without them. `here` and `there` are the
    /// [`Caps::rx_fixed`] of this function and of the other one.
    pub fn with_fixed(self, here: Offloads, there: Offloads) -> Self {
        Self {
            rx_offloads: self.rx_offloads.or(here),
            rx_emulation: Emulation::of(here, self.rx_offloads, self.frame_max),
            tx_emulation: Emulation::of(there, self.tx_offloads, self.frame_max),
            ..self
        }
    }

    /// Returns the plan as seen by the other side.
    pub fn mirrored(&self) -> Self {
        Self {
            rx_offloads: self.tx_offloads.or(self.tx_emulation.offloads),
            tx_offloads: self.rx_offloads.minus(self.rx_emulation.offloads),
            rx_emulation: self.tx_emulation,
            tx_emulation: self.rx_emulation,
            ..self.clone()
        }
    }

    /// Largest frame that may be received from this function.
    pub fn rx_frame_max(&self) -> u32 {
        if self.rx_emulation.cuts { limits::FRAME_MAX } else { self.frame_max }
    }
}

fn agree_mtu(here: &Caps, there: &Caps) -> Result<u32, Incompatible> {
    let max = here.mtu_max.min(there.mtu_max);
    let wanted = match (here.mtu, there.mtu) {
        (Some(a), Some(b)) if a != b => return Err(Incompatible::Mtu { here: a, there: b }),
        (Some(mtu), _) | (None, Some(mtu)) => mtu,
        (None, None) => {
            let found = [here.mtu_found, there.mtu_found].into_iter().flatten().min();
            found.unwrap_or(limits::MTU_DEFAULT).min(max)
        }
    };
    if wanted > max {
        return Err(Incompatible::MtuTooLarge { wanted, max });
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps() -> Caps {
        Caps {
            layer: Layer::Ethernet,
            channels: 64,
            wanted: Some(4),
            mtu: None,
            mtu_found: None,
            mtu_max: limits::MTU_MAX,
            frame_max: limits::FRAME_MAX,
            rx_offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        }
    }

    // Goal: fixed offloads are emulated for a side that does not offer them, and only for that
    // side. Both sides compute the same plan, and mirroring a plan twice is the identity.
    #[test]
    fn fixed_offloads_are_emulated() {
        let fixed = Offloads::CSUM.or(Offloads::TSO4).or(Offloads::TSO6);
        let guest = Caps { rx_fixed: fixed, ..caps() };
        let plan = Plan::join(&guest, &caps()).unwrap();
        assert!(plan.rx_emulation.is_none() && plan.tx_emulation.is_none());
        let plain = Caps { tx_offloads: Offloads::CSUM, rx_offloads: Offloads::NONE, ..caps() };
        let plan = Plan::join(&guest, &plain).unwrap();
        let large = Offloads::TSO4.or(Offloads::TSO6);
        assert_eq!((plan.rx_offloads, plan.tx_offloads), (fixed, Offloads::NONE));
        assert_eq!(plan.rx_emulation, Emulation { offloads: large, cuts: true });
        assert_eq!((plan.frame_max, plan.rx_frame_max()), (1522, limits::FRAME_MAX));
        assert!(plan.tx_emulation.is_none());
        let far = plan.mirrored();
        assert_eq!((far.rx_offloads, far.tx_offloads), (Offloads::NONE, Offloads::CSUM));
        assert_eq!((far.rx_frame_max(), far.tx_emulation), (1522, plan.rx_emulation));
        assert_eq!(Plan::join(&plain, &guest).unwrap(), far);
        assert_eq!(far.mirrored(), plan);
    }

    // Goal: if the link's largest frame is smaller than that of the source, large frames are
    // segmented even if the sink offers segmentation.
    #[test]
    fn frames_beyond_the_largest_are_cut() {
        let guest = Caps { rx_fixed: Offloads::ALL, ..caps() };
        let narrow = Caps { frame_max: 20_000, ..caps() };
        let plan = Plan::join(&guest, &narrow).unwrap();
        assert_eq!(plan.rx_emulation, Emulation { offloads: Offloads::NONE, cuts: true });
        assert_eq!((plan.frame_max, plan.rx_frame_max()), (20_000, limits::FRAME_MAX));
    }

    // Goal: the smaller number of channels applies, offloads are the intersection per direction,
    // and both sides compute the same plan.
    #[test]
    fn both_sides_compute_the_same_plan() {
        let mut far = caps();
        far.wanted = Some(2);
        far.tx_offloads = Offloads::CSUM;
        let near = Plan::join(&caps(), &far).unwrap();
        assert_eq!((near.channels, near.mtu), (2, 1500));
        assert_eq!(near.rx_offloads, Offloads::CSUM);
        assert_eq!(near.tx_offloads, Offloads::ALL);
        assert_eq!(Plan::join(&far, &caps()).unwrap(), near.mirrored());
    }

    // Goal: a side without a request follows the other side, limits apply to requests too, and
    // without any request there is one channel.
    #[test]
    fn channels_are_agreed() {
        let with = |wanted, channels| Caps { wanted, channels, ..caps() };
        let agree = |a: Caps, b: Caps| Plan::join(&a, &b).unwrap().channels;
        assert_eq!(agree(with(None, 64), with(Some(8), 64)), 8);
        assert_eq!(agree(with(Some(3), 64), with(None, 64)), 3);
        assert_eq!(agree(with(None, 2), with(Some(8), 64)), 2);
        assert_eq!(agree(with(None, 64), with(None, 64)), 1);
    }

    // Goal: any subset that a peer offers is reduced to a subset that the kernel accepts.
    #[test]
    fn subsets_are_made_consistent() {
        let set = |bits| Offloads::from_bits(bits).consistent();
        assert_eq!(set(2), Offloads::NONE);
        assert_eq!(set(1 | 8), Offloads::CSUM);
        assert_eq!(set(1 | 2 | 16), Offloads::CSUM.or(Offloads::TSO4));
        assert_eq!(set(63), Offloads::ALL);
    }

    // Goal: without segmentation, the largest frame is the MTU with an Ethernet header and two VLAN
    // tags.
    #[test]
    fn frame_limit_without_segmentation_follows_mtu() {
        let mut plain = caps();
        plain.rx_offloads = Offloads::CSUM;
        plain.tx_offloads = Offloads::NONE;
        assert_eq!(Plan::join(&plain, &caps()).unwrap().frame_max, 1522);
    }

    // Goal: IP packets need no space for an Ethernet header, and a TUN is never joined with an
    // Ethernet function.
    #[test]
    fn layers_must_match() {
        let mut tun = Caps { layer: Layer::Ip, ..caps() };
        assert_eq!(Plan::join(&tun, &caps()), Err(Incompatible::Layer));
        assert_eq!(Plan::join(&caps(), &tun), Err(Incompatible::Layer));
        tun.rx_offloads = Offloads::NONE;
        tun.tx_offloads = Offloads::NONE;
        assert_eq!(Plan::join(&tun, &tun).unwrap().frame_max, 1500);
    }

    // Goal: contradicting or impossible MTUs are rejected with both numbers.
    #[test]
    fn mtu_conflicts_are_refused() {
        let with = |mtu, max| Caps { mtu, mtu_max: max, ..caps() };
        assert_eq!(
            Plan::join(&with(Some(9000), 65521), &with(Some(1500), 65521)),
            Err(Incompatible::Mtu { here: 9000, there: 1500 })
        );
        assert_eq!(
            Plan::join(&with(Some(9000), 65521), &with(None, 4000)),
            Err(Incompatible::MtuTooLarge { wanted: 9000, max: 4000 })
        );
        assert_eq!(Plan::join(&with(None, 65521), &with(Some(9000), 65521)).unwrap().mtu, 9000);
    }

    /// Goal: without a requested MTU, the smaller MTU of the devices of other programs applies, up
    /// to the largest MTU of both sides. An MTU word is decoded to the encoded MTUs, and an invalid
    /// word to `None`.
    #[test]
    fn mtus_of_found_devices_are_kept() {
        let found = |mtu_found, mtu| Caps { mtu, mtu_found, ..caps() };
        for (here, there, mtu) in [
            (found(Some(9000), None), found(None, None), 9000),
            (found(Some(1400), None), found(None, None), 1400),
            (found(Some(9000), None), found(Some(1400), None), 1400),
            (found(Some(9000), None), found(None, Some(2000)), 2000),
            (found(Some(9000), None), Caps { mtu_max: 4000, ..caps() }, 4000),
        ] {
            assert_eq!(Plan::join(&here, &there).unwrap().mtu, mtu);
            assert_eq!(Plan::join(&there, &here).unwrap().mtu, mtu);
        }
        let both = found(Some(9000), Some(65521));
        assert_eq!(Caps::read_mtu_word(both.mtu_word()), Some([Some(65521), Some(9000)]));
        assert_eq!(Caps::read_mtu_word(0), Some([None, None]));
        assert_eq!(Caps::read_mtu_word(67), None);
        assert_eq!(Caps::read_mtu_word(67 << 16), None);
    }
}
