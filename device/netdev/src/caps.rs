//! What a function can do, and the plan that two functions agree on.

use std::fmt;

use mqnet_wire::{GsoKind, Layer, VnetHdr};

use crate::limits;

/// A set of offloads. On RX: frames may arrive unfinished in these ways. On TX: such frames are
/// taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads(u32);

impl Offloads {
    /// Frames whose checksum is still to be filled in.
    pub const CSUM: Self = Self(1);
    /// Large TCP frames over IPv4.
    pub const TSO4: Self = Self(2);
    /// Large TCP frames over IPv6.
    pub const TSO6: Self = Self(4);
    /// Large TCP frames with ECN bits.
    pub const TSO_ECN: Self = Self(8);
    /// Large UDP frames over IPv4.
    pub const USO4: Self = Self(16);
    /// Large UDP frames over IPv6.
    pub const USO6: Self = Self(32);
    /// Everything.
    pub const ALL: Self = Self(63);
    /// Nothing: every frame is finished and fits the MTU.
    pub const NONE: Self = Self(0);
    /// Everything that is larger than the MTU.
    pub const LARGE: Self = Self(2 | 4 | 16 | 32);
    const NAMES: [(Self, &str); 6] = [
        (Self::CSUM, "csum"),
        (Self::TSO4, "tso4"),
        (Self::TSO6, "tso6"),
        (Self::TSO_ECN, "tso-ecn"),
        (Self::USO4, "uso4"),
        (Self::USO6, "uso6"),
    ];

    /// The set with these bits; unknown bits are dropped.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// What is in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in either.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this set and not in `other`.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The same, as a set that a kernel takes.
    pub fn without(self, other: Self) -> Self {
        self.minus(other).consistent()
    }

    /// True when all of `other` is in this set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when a frame may be unfinished in this way.
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

    /// True when frames may be larger than the MTU.
    pub fn any_large(self) -> bool {
        self.0 & Self::LARGE.0 != 0
    }

    /// The largest subset that a kernel takes: large frames need the checksum offload, ECN needs
    /// TCP segmentation, and USO comes for both families or not at all.
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

    /// The names of what is in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| *name)
    }

    /// The set without the large-frame bits.
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

/// What one side of a link can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// What the first byte of a frame begins.
    pub layer: Layer,
    /// Most channels, 1..=64.
    pub channels: u16,
    /// Channels that the user asked for; `None`: as many as the other side wants.
    pub wanted: Option<u16>,
    /// The MTU that the user asked for here; `None`: whatever the other side wants.
    pub mtu: Option<u32>,
    /// The MTU of a device that another program made; in force where no MTU is configured.
    pub mtu_found: Option<u32>,
    /// Largest MTU possible here.
    pub mtu_max: u32,
    /// Largest frame possible here.
    pub frame_max: u32,
    /// How frames that arrive here may be unfinished.
    pub rx_offloads: Offloads,
    /// Which unfinished frames can be sent here.
    pub tx_offloads: Offloads,
    /// How frames may arrive here unfinished whatever is agreed, because the peer cannot be told
    /// any more. What the other side does not take of it the engine finishes.
    pub rx_fixed: Offloads,
}

impl Caps {
    /// `mtu` and `mtu_found` in one word of 16 bits each, 0 for none.
    pub fn mtu_word(&self) -> u32 {
        self.mtu.unwrap_or(0) | self.mtu_found.unwrap_or(0) << 16
    }

    /// `mtu` and `mtu_found` of such a word; `None` where one of them is no MTU.
    pub fn read_mtu_word(word: u32) -> Option<[Option<u32>; 2]> {
        let halves = [word & 0xffff, word >> 16];
        let is_valid = |mtu: u32| mtu == 0 || (limits::MTU_MIN..=limits::MTU_MAX).contains(&mtu);
        halves.into_iter().all(is_valid).then(|| halves.map(|mtu| Some(mtu).filter(|&mtu| mtu > 0)))
    }

    /// Channels of a link with `there`: the smaller wish wins, a side without one follows, and
    /// nobody's wish means one.
    pub fn channels_with(&self, there: &Self) -> u16 {
        let wanted = match (self.wanted, there.wanted) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(1),
        };
        wanted.min(self.channels).min(there.channels).max(1)
    }
}

/// What the engine does about frames of one direction that arrive otherwise than they may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emulation {
    /// How frames may be unfinished that have to be finished.
    pub offloads: Offloads,
    /// Large frames may be longer than the plan's largest, and are cut then, whatever is taken.
    pub cuts: bool,
}

impl Emulation {
    /// True when there is nothing to do.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn of(fixed: Offloads, agreed: Offloads, frame_max: u32) -> Self {
        let cuts = fixed.any_large() && frame_max < limits::FRAME_MAX;
        Self { offloads: fixed.minus(agreed), cuts }
    }
}

/// What two functions agreed on, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Channels that run.
    pub channels: u16,
    /// MTU of the link.
    pub mtu: u32,
    /// Largest frame that may leave, in either direction. Of what arrives see
    /// [`rx_frame_max`](Self::rx_frame_max).
    pub frame_max: u32,
    /// How frames that arrive at this function may be unfinished.
    pub rx_offloads: Offloads,
    /// How frames that are sent through this function may be unfinished.
    pub tx_offloads: Offloads,
    /// What of [`rx_offloads`](Self::rx_offloads) is finished on the way to the other function.
    pub rx_emulation: Emulation,
    /// What arrives at the other function unfinished and is sent through this one finished.
    pub tx_emulation: Emulation,
}

/// Why two sides cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// A TUN was joined with something that carries Ethernet.
    #[error(
        "one side carries IP packets, the other Ethernet frames: join a TUN with a TUN, or a TAP"
    )]
    Layer,
    /// Both sides were given an MTU, and not the same.
    #[error("mtu {here} here and {there} on the other side: give both the same mtu=")]
    Mtu {
        /// Asked for on this side.
        here: u32,
        /// Asked for on the other side.
        there: u32,
    },
    /// One side wants more than the other can carry.
    #[error("mtu {wanted} is wanted, but one side carries at most {max}: lower mtu=")]
    MtuTooLarge {
        /// What is wanted.
        wanted: u32,
        /// What is possible.
        max: u32,
    },
    /// No frame of the MTU fits.
    #[error("frames of mtu {mtu} need {need} bytes, one side takes at most {max}: lower mtu=")]
    Frame {
        /// MTU of the link.
        mtu: u32,
        /// Bytes of its largest frame.
        need: u32,
        /// Bytes that fit.
        max: u32,
    },
}

impl Plan {
    /// Joins two sides: the plan as the first of them sees it.
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

    /// The same plan with what arrives whatever is agreed, here and at the other function
    /// ([`Caps::rx_fixed`]): for a plan that others have agreed on, who know nothing of it.
    pub fn with_fixed(self, here: Offloads, there: Offloads) -> Self {
        Self {
            rx_offloads: self.rx_offloads.or(here),
            rx_emulation: Emulation::of(here, self.rx_offloads, self.frame_max),
            tx_emulation: Emulation::of(there, self.tx_offloads, self.frame_max),
            ..self
        }
    }

    /// The same plan as the other side sees it.
    pub fn mirrored(&self) -> Self {
        Self {
            rx_offloads: self.tx_offloads.or(self.tx_emulation.offloads),
            tx_offloads: self.rx_offloads.minus(self.rx_emulation.offloads),
            rx_emulation: self.tx_emulation,
            tx_emulation: self.rx_emulation,
            ..self.clone()
        }
    }

    /// Largest frame that may arrive at this function.
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

    // Goal: what arrives whatever is agreed is finished for a side that does not take it, and for
    // that side alone; both sides compute the same plan, and its mirror's mirror is itself.
    #[test]
    fn what_cannot_be_told_is_emulated() {
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

    // Goal: large frames that are taken are cut all the same where the link's frames are smaller.
    #[test]
    fn frames_beyond_the_largest_are_cut() {
        let guest = Caps { rx_fixed: Offloads::ALL, ..caps() };
        let narrow = Caps { frame_max: 20_000, ..caps() };
        let plan = Plan::join(&guest, &narrow).unwrap();
        assert_eq!(plan.rx_emulation, Emulation { offloads: Offloads::NONE, cuts: true });
        assert_eq!((plan.frame_max, plan.rx_frame_max()), (20_000, limits::FRAME_MAX));
    }

    // Goal: the smaller channel count wins, offloads are the intersection per direction, and both
    // sides compute the same plan.
    #[test]
    fn both_sides_agree() {
        let mut far = caps();
        far.wanted = Some(2);
        far.tx_offloads = Offloads::CSUM;
        let near = Plan::join(&caps(), &far).unwrap();
        assert_eq!((near.channels, near.mtu), (2, 1500));
        assert_eq!(near.rx_offloads, Offloads::CSUM);
        assert_eq!(near.tx_offloads, Offloads::ALL);
        assert_eq!(Plan::join(&far, &caps()).unwrap(), near.mirrored());
    }

    // Goal: a side without a wish follows; limits hold for wishes too; nobody's wish is 1.
    #[test]
    fn channels_are_agreed() {
        let with = |wanted, channels| Caps { wanted, channels, ..caps() };
        let agree = |a: Caps, b: Caps| Plan::join(&a, &b).unwrap().channels;
        assert_eq!(agree(with(None, 64), with(Some(8), 64)), 8);
        assert_eq!(agree(with(Some(3), 64), with(None, 64)), 3);
        assert_eq!(agree(with(None, 2), with(Some(8), 64)), 2);
        assert_eq!(agree(with(None, 64), with(None, 64)), 1);
    }

    // Goal: whatever subset a peer offers, what is agreed is one that a kernel takes.
    #[test]
    fn subsets_are_made_consistent() {
        let set = |bits| Offloads::from_bits(bits).consistent();
        assert_eq!(set(2), Offloads::NONE);
        assert_eq!(set(1 | 8), Offloads::CSUM);
        assert_eq!(set(1 | 2 | 16), Offloads::CSUM.or(Offloads::TSO4));
        assert_eq!(set(63), Offloads::ALL);
    }

    // Goal: without large frames the frame limit is the MTU's, with two VLAN tags.
    #[test]
    fn small_frames_need_small_room() {
        let mut plain = caps();
        plain.rx_offloads = Offloads::CSUM;
        plain.tx_offloads = Offloads::NONE;
        assert_eq!(Plan::join(&plain, &caps()).unwrap().frame_max, 1522);
    }

    // Goal: IP packets have no Ethernet header to make room for, and never meet Ethernet frames.
    #[test]
    fn layers_do_not_mix() {
        let mut tun = Caps { layer: Layer::Ip, ..caps() };
        assert_eq!(Plan::join(&tun, &caps()), Err(Incompatible::Layer));
        assert_eq!(Plan::join(&caps(), &tun), Err(Incompatible::Layer));
        tun.rx_offloads = Offloads::NONE;
        tun.tx_offloads = Offloads::NONE;
        assert_eq!(Plan::join(&tun, &tun).unwrap().frame_max, 1500);
    }

    // Goal: contradicting or impossible MTUs are refused with both numbers.
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

    /// A device of another program keeps its MTU, unless one is configured; of two the smaller
    /// one is in force.
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
