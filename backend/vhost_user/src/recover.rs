//! Recovery of the position of a packed ring from its descriptors.
//!
//! A frontend that stops a ring gets the position from the backend, but has no position after a
//! crash of the backend. For a split ring the used index suffices. For a packed ring QEMU uses the
//! position of its first start, and the guest's queue stalls. The position is that of the oldest
//! available descriptor, as long as each chain is one descriptor. With indirect tables and
//! mergeable buffers, all chains of Linux are one descriptor.
//!
//! While no backend is connected, QEMU also drops frames of the guest. QEMU marks the descriptors
//! of these frames used, from its old position on and between available ones. The guest treats such
//! descriptors as used when it reaches them, so a device must skip them (see `PackedDeviceQueue`).

use std::sync::atomic::Ordering;

use mqnet_shmem::AtomicTable;
use mqnet_virtio::layout::{flag, packed};

/// Bit of the wrap counter in a position.
const WRAP: u16 = 1 << 15;

/// Largest number of scans. The guest may make descriptors available between two scans, at most a
/// full ring of them.
const SCANS_MAX: u32 = 1 << 10;

/// Number of changes of kind between neighbours at which a ring is ambiguous. A correct ring has
/// three runs of one kind, and more runs where QEMU dropped frames while disconnected. Chains of
/// several descriptors leave many more runs.
const RUNS_MAX: usize = 12;

/// AVAIL and USED bits of a descriptor.
type Kind = (bool, bool);

/// Position of the device in the ring, as in the lower half of a packed ring's base. `None` if the
/// descriptors are ambiguous, or still change after `SCANS_MAX` scans.
pub(crate) fn position(ring: &AtomicTable, size: u16) -> Option<u16> {
    let flags = |i: u16| {
        let place = packed::desc(i) + 14;
        u16::from_le(ring.half(place).load(Ordering::Acquire))
    };
    let scan = || (0..size).map(flags).collect::<Vec<u16>>();
    let mut seen = scan();
    for _ in 0..SCANS_MAX {
        let now = scan();
        // No device consumes descriptors during the scan: two equal scans are a consistent
        // snapshot.
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
    // Kind of an available descriptor in a lap with this wrap counter.
    let waiting = |wrap: bool| (wrap, !wrap);
    let (at, wrap) = match (first(waiting(true)), first(waiting(false))) {
        (None, None) => {
            let wrap = kinds.first()?.0;
            let used = kinds.iter().take_while(|&&kind| kind == (wrap, wrap)).count();
            if kinds[used..].iter().any(|&kind| kind != (!wrap, !wrap)) {
                return None;
            }
            // After the last descriptor the next lap begins.
            if used == size { (0, !wrap) } else { (used, wrap) }
        }
        (Some(at), None) => (at, true),
        (None, Some(at)) => (at, false),
        // Both kinds exist: the lap that begins at the start of the ring is the newer one.
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

    /// Model of a driver, a device, and a VMM that drops available descriptors from its own
    /// position on.
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

        fn expected(&mut self) -> (Option<u16>, u16) {
            self.skip();
            let (at, wrap) = self.device;
            (of_kinds(&self.kinds), at as u16 | if wrap { WRAP } else { 0 })
        }
    }

    proptest! {
        // Goal: the position is recovered after any steps of driver and device, and after drops
        // by QEMU.
        #[test]
        fn position_is_recovered_from_ring(
            size in 1usize..40,
            moves in prop::collection::vec((0usize..50, 0usize..50, 0..10), 0..20),
        ) {
            let mut ring = Ring::new(size);
            for (make, take, luck) in moves {
                ring.make(make);
                if luck == 0 {
                    ring.drop_some();
                    let (recovered, device) = ring.expected();
                    prop_assert_eq!(recovered, Some(device));
                }
                ring.take(take);
            }
            let (recovered, device) = ring.expected();
            prop_assert_eq!(recovered, Some(device));
        }

        // Goal: for any content, a recovered position is inside the ring.
        #[test]
        fn positions_are_within_ring(flags in prop::collection::vec(any::<u16>(), 0..20)) {
            if let Some(at) = of_flags(&flags) {
                prop_assert!(usize::from(at & !WRAP) < flags.len());
            }
        }
    }

    // Goal: no position is recovered from chains of several descriptors, nor from their used
    // descriptors.
    #[test]
    fn chains_of_several_descriptors_yield_no_position() {
        let (used, rest) = ((true, true), (true, false));
        let left: Vec<Kind> = [used, rest].into_iter().cycle().take(20).collect();
        assert_eq!(of_kinds(&left), None);
        assert_eq!(of_flags(&[flag::AVAIL | flag::NEXT, flag::AVAIL, 0, 0]), None);
        assert_eq!(of_flags(&[flag::AVAIL, flag::AVAIL, 0, 0]), Some(WRAP));
    }
}
