//! Where a packed ring goes on when nobody remembers.
//!
//! A frontend asks us for the position when it stops a ring. When we died in between, it has none:
//! for a split ring the used index says it all, but QEMU starts a packed ring from the position of
//! its first start, and the guest's queue is dead for ever. The ring itself still tells, as long as
//! each chain is one descriptor (with indirect tables and mergeable buffers all of Linux's are): we
//! stand before the oldest descriptor that waits.
//!
//! QEMU does worse: while we are away it drops what the guest sends, and marks it used from that
//! old position on, in the middle of what waits. The guest takes such descriptors for used when it
//! comes to them, so a device has to pass over them (see `packed::Device`).

use std::sync::atomic::Ordering;

use mqnet_shmem::Table;
use mqnet_virtio::layout::{flag, packed};

/// The wrap counter in a position.
const WRAP: u16 = 1 << 15;

/// The guest makes descriptors available while we look: at most as often as there are some.
const LOOKS: u32 = 1 << 10;

/// Changes of kind in a ring: three runs, and what QEMU drops in a few of our absences. Chains of
/// several descriptors leave far more behind.
const RUNS_MAX: usize = 12;

/// The AVAIL and USED bits of a descriptor, as one of four kinds.
type Kind = (bool, bool);

/// Where the device stands in the ring: as in the lower half of a packed ring's base. `None` when
/// the ring does not tell.
pub(crate) fn position(ring: &Table, size: u16) -> Option<u16> {
    let flags = |i: u16| {
        let place = packed::desc(i) + 14;
        u16::from_le(ring.half(place).load(Ordering::Acquire))
    };
    let look = || (0..size).map(flags).collect::<Vec<u16>>();
    let mut seen = look();
    for _ in 0..LOOKS {
        let now = look();
        // Nobody takes any while we are here: what is the same twice was there at one time.
        if now == seen {
            return of_flags(&now);
        }
        seen = now;
    }
    None
}

fn of_flags(flags: &[u16]) -> Option<u16> {
    let kinds = flags.iter().map(|flags| (flags & flag::AVAIL != 0, flags & flag::USED != 0));
    let kinds: Vec<Kind> = kinds.collect();
    let is_chained = |(kind, flags): (&Kind, &u16)| kind.0 != kind.1 && flags & flag::NEXT != 0;
    if kinds.iter().zip(flags).any(is_chained) { None } else { of_kinds(&kinds) }
}

fn of_kinds(kinds: &[Kind]) -> Option<u16> {
    let size = kinds.len();
    if kinds.windows(2).filter(|two| two[0] != two[1]).count() >= RUNS_MAX {
        return None;
    }
    let first = |kind: Kind| kinds.iter().position(|&k| k == kind);
    let last = |kind: Kind| kinds.iter().rposition(|&k| k == kind);
    // In a lap with this wrap counter.
    let waiting = |wrap: bool| (wrap, !wrap);
    let (at, wrap) = match (first(waiting(true)), first(waiting(false))) {
        (None, None) => {
            let wrap = kinds.first()?.0;
            let used = kinds.iter().take_while(|&&kind| kind == (wrap, wrap)).count();
            if kinds[used..].iter().any(|&kind| kind != (!wrap, !wrap)) {
                return None;
            }
            // Behind the last descriptor is the first one of the next lap.
            if used == size { (0, !wrap) } else { (used, wrap) }
        }
        (Some(at), None) => (at, true),
        (None, Some(at)) => (at, false),
        // The lap that goes on at the beginning of the ring is the newer one.
        (Some(one), Some(other)) => {
            let wrap = one > other;
            let (at, newer) = if wrap { (one, !wrap) } else { (other, !wrap) };
            if last(waiting(newer))? > at {
                return None;
            }
            (at, wrap)
        }
    };
    Some(at as u16 | if wrap { WRAP } else { 0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A driver, a device, and a VMM that drops what looks available from where it stands.
    struct Ring {
        kinds: Vec<Kind>,
        driver: (usize, bool),
        device: (usize, bool),
        vmm: (usize, bool),
        /// Descriptors between the device and the driver.
        out: usize,
    }

    impl Ring {
        fn new(size: usize) -> Self {
            let start = (0, true);
            let kinds = vec![(false, false); size];
            Self { kinds, driver: start, device: start, vmm: start, out: 0 }
        }

        fn step(&self, (at, wrap): (usize, bool)) -> (usize, bool) {
            if at + 1 == self.kinds.len() { (0, !wrap) } else { (at + 1, wrap) }
        }

        fn make(&mut self, count: usize) {
            for _ in 0..count.min(self.kinds.len() - self.out) {
                let (at, wrap) = self.driver;
                self.kinds[at] = (wrap, !wrap);
                self.driver = self.step(self.driver);
                self.out += 1;
            }
        }

        fn skip(&mut self) {
            while self.out > 0 && self.kinds[self.device.0] == (self.device.1, self.device.1) {
                self.device = self.step(self.device);
                self.out -= 1;
            }
        }

        fn take(&mut self, count: usize) {
            for _ in 0..count {
                self.skip();
                if self.out == 0 {
                    return;
                }
                let (at, wrap) = self.device;
                self.kinds[at] = (wrap, wrap);
                self.device = self.step(self.device);
                self.out -= 1;
            }
        }

        fn drop_some(&mut self) {
            while self.kinds[self.vmm.0] == (self.vmm.1, !self.vmm.1) {
                self.kinds[self.vmm.0] = (self.vmm.1, self.vmm.1);
                self.vmm = self.step(self.vmm);
            }
        }

        fn tells(&mut self) -> (Option<u16>, u16) {
            self.skip();
            let (at, wrap) = self.device;
            (of_kinds(&self.kinds), at as u16 | if wrap { WRAP } else { 0 })
        }
    }

    proptest! {
        // Goal: whatever driver and device did, and whatever QEMU dropped meanwhile, the ring tells
        // where the device stands.
        #[test]
        fn the_ring_tells(
            size in 1usize..40,
            moves in prop::collection::vec((0usize..50, 0usize..50, 0..10), 0..20),
        ) {
            let mut ring = Ring::new(size);
            for (make, take, luck) in moves {
                ring.make(make);
                if luck == 0 {
                    ring.drop_some();
                    let (told, device) = ring.tells();
                    prop_assert_eq!(told, Some(device));
                }
                ring.take(take);
            }
            let (told, device) = ring.tells();
            prop_assert_eq!(told, Some(device));
        }

        // Goal: any other content is answered too, and never with a place that is not there.
        #[test]
        fn noise_is_no_harm(flags in prop::collection::vec(any::<u16>(), 0..20)) {
            if let Some(at) = of_flags(&flags) {
                prop_assert!(usize::from(at & !WRAP) < flags.len());
            }
        }
    }

    // Goal: chains of several descriptors, and what they leave behind, are not mistaken for a
    // position.
    #[test]
    fn longer_chains_are_no_answer() {
        let (used, rest) = ((true, true), (true, false));
        let left: Vec<Kind> = [used, rest].into_iter().cycle().take(20).collect();
        assert_eq!(of_kinds(&left), None);
        assert_eq!(of_flags(&[flag::AVAIL | flag::NEXT, flag::AVAIL, 0, 0]), None);
        assert_eq!(of_flags(&[flag::AVAIL, flag::AVAIL, 0, 0]), Some(WRAP));
    }
}
