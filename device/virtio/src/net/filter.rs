//! Receive filtering of a device (virtio 1.3, 5.1.6.5.1 to 5.1.6.5.3).

use mqnet_wire::FlowKeys;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Maximum number of addresses in the unicast and in the multicast table. If the driver sets more
/// in one table, the filter admits all frames of that table's kind.
pub const MACS_MAX: usize = 256;

const BROADCAST: Mac = [0xff; 6];
/// EtherType of the filtered VLAN tags.
const CUSTOMER_TAG: u16 = 0x8100;
/// Number of VLAN ids.
const VLANS: usize = 4096;

/// Unicast or multicast addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Macs {
    /// Sorted addresses.
    list: Vec<Mac>,
    too_many: bool,
}

impl Macs {
    fn new(mut list: Vec<Mac>) -> Self {
        let too_many = list.len() > MACS_MAX;
        list.truncate(if too_many { 0 } else { MACS_MAX });
        list.sort_unstable();
        Self { list, too_many }
    }

    fn take(&self, mac: &Mac) -> bool {
        self.too_many || self.list.binary_search(mac).is_ok()
    }
}

/// Receive filter of a device; admits every frame until the driver ends promiscuous mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxFilter {
    /// The device's own address.
    pub mac: Mac,
    /// Receive modes, indexed by the number of [`RxMode`](super::ctrl::RxMode).
    pub modes: [bool; 6],
    unicast: Macs,
    multicast: Macs,
    /// One bit for each VLAN; `None`: no VLAN filtering.
    vlans: Option<Box<[u64; VLANS / 64]>>,
}

impl RxFilter {
    /// Creates a filter that admits every frame. `filters_vlans`: VLANs are filtered once
    /// promiscuous mode is off.
    pub fn open(mac: Mac, filters_vlans: bool) -> Self {
        Self {
            mac,
            modes: [true, false, false, false, false, false],
            unicast: Macs::default(),
            multicast: Macs::default(),
            vlans: filters_vlans.then(|| Box::new([0; VLANS / 64])),
        }
    }

    /// True if the filter admits every frame (promiscuous mode).
    pub fn is_open(&self) -> bool {
        self.modes[0]
    }

    /// Sets the addresses that the filter admits in addition to the device's MAC address.
    pub fn set_table(&mut self, unicast: Vec<Mac>, multicast: Vec<Mac>) {
        (self.unicast, self.multicast) = (Macs::new(unicast), Macs::new(multicast));
    }

    /// Adds or removes a VLAN; false if VLANs are not filtered or the id is invalid.
    pub fn set_vlan(&mut self, vlan: u16, on: bool) -> bool {
        let at = usize::from(vlan);
        let Some(word) = self.vlans.as_mut().and_then(|bits| bits.get_mut(at / 64)) else {
            return false;
        };
        let bit = 1 << (at % 64);
        *word = if on { *word | bit } else { *word & !bit };
        true
    }

    /// True if the filter admits a frame with the flow keys `keys`.
    pub fn passes(&self, keys: &FlowKeys) -> bool {
        let [promisc, all_multi, all_uni, no_multi, no_uni, no_bcast] = self.modes;
        if promisc {
            return true;
        }
        if !self.passes_vlan(keys) {
            return false;
        }
        let to = &keys.mac[0];
        if *to == BROADCAST {
            !no_bcast
        } else if to[0] & 1 == 1 {
            !no_multi && (all_multi || self.multicast.take(to))
        } else {
            !no_uni && (all_uni || *to == self.mac || self.unicast.take(to))
        }
    }

    fn passes_vlan(&self, keys: &FlowKeys) -> bool {
        let Some((bits, tag)) = self.vlans.as_ref().zip(keys.vlan) else { return true };
        let at = usize::from(tag) % VLANS;
        keys.tpid != CUSTOMER_TAG || bits[at / 64] >> (at % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::ctrl::RxMode;
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];
    const GROUP: Mac = [0x33, 0x33, 0, 0, 0, 1];

    fn to(mac: Mac, tag: Option<(u16, u16)>) -> FlowKeys {
        let (tpid, vlan) = (tag.map_or(0, |tag| tag.0), tag.map(|tag| tag.1));
        FlowKeys { mac: [mac, OTHER], tpid, vlan, ..FlowKeys::default() }
    }

    fn closed() -> RxFilter {
        let mut filter = RxFilter::open(OWN, true);
        filter.modes[0] = false;
        filter
    }

    // Goal: each mode admits or drops exactly the frames that the specification defines.
    #[test]
    fn modes_admit_as_specified() {
        let seen = |filter: &RxFilter| {
            [OWN, OTHER, GROUP, BROADCAST].map(|mac| u8::from(filter.passes(&to(mac, None))))
        };
        assert_eq!(seen(&RxFilter::open(OWN, true)), [1, 1, 1, 1]);
        assert_eq!(seen(&closed()), [1, 0, 0, 1]);
        let with = |mode: RxMode| {
            let mut filter = closed();
            filter.modes[mode as usize] = true;
            seen(&filter)
        };
        assert_eq!(with(RxMode::Promisc), [1, 1, 1, 1]);
        assert_eq!(with(RxMode::AllMulti), [1, 0, 1, 1]);
        assert_eq!(with(RxMode::AllUni), [1, 1, 0, 1]);
        assert_eq!(with(RxMode::NoUni), [0, 0, 0, 1]);
        assert_eq!(with(RxMode::NoBcast), [1, 0, 0, 0]);
        let mut filter = closed();
        filter.set_table(vec![OTHER], vec![GROUP]);
        assert_eq!(seen(&filter), [1, 1, 1, 1]);
        filter.modes[RxMode::NoMulti as usize] = true;
        assert_eq!(seen(&filter), [1, 1, 0, 1]);
    }

    // Goal: an address table that is too long admits all frames of its kind, and only of its kind.
    #[test]
    fn long_tables_admit_all_of_their_kind() {
        let mut filter = closed();
        filter.set_table(vec![OTHER; MACS_MAX + 1], Vec::new());
        assert!(filter.passes(&to([4, 0, 0, 0, 0, 9], None)));
        assert!(!filter.passes(&to(GROUP, None)));
    }

    // Goal: a tagged frame passes if its VLAN was added; untagged frames and service tags always
    // pass; an invalid VLAN id is rejected.
    #[test]
    fn vlans_are_filtered() {
        let mut filter = closed();
        let tagged = |filter: &RxFilter, vlan| filter.passes(&to(OWN, Some((0x8100, vlan))));
        assert!(!tagged(&filter, 5) && filter.passes(&to(OWN, Some((0x88a8, 5)))));
        assert!(filter.set_vlan(5, true) && filter.set_vlan(4095, true));
        assert!(tagged(&filter, 5) && tagged(&filter, 0xe005) && tagged(&filter, 4095));
        assert!(!tagged(&filter, 6));
        assert!(filter.set_vlan(5, false) && !tagged(&filter, 5));
        assert!(!filter.set_vlan(4096, true) && !filter.set_vlan(u16::MAX, true));
        let mut without = RxFilter::open(OWN, false);
        without.modes[0] = false;
        assert!(!without.set_vlan(5, true) && tagged(&without, 5));
    }
}
