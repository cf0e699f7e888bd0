//! Settings of a device that stays when this function ends: as they were found, and put back.
//!
//! A device that others made is left as it was. One that was made here and stays
//! (`persist`) keeps the MTU and the addresses that were asked for, and loses only what the next
//! program would not expect of a new device: offloads, the size of the `virtio_net_hdr`, steering.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use mqnet_sysio::{namespace, tap as sys};
use mqnet_undo::{Place, Setting, TunState, Undo, Value};

use crate::open::Attached;

/// Flags of `TUNSETIFF` that are put back.
const FLAGS: u32 = sys::flag::TUN
    | sys::flag::TAP
    | sys::flag::NO_PI
    | sys::flag::VNET_HDR
    | sys::flag::MULTI_QUEUE;

/// A setting of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Mtu,
    Mac,
    GsoMaxSize,
}

impl Which {
    fn setting(self, device: &str) -> Setting {
        match self {
            Self::Mtu => Setting::Mtu(device.to_owned()),
            Self::Mac => Setting::Mac(device.to_owned()),
            Self::GsoMaxSize => Setting::GsoMaxSize(device.to_owned()),
        }
    }
}

/// What is put back when this is dropped. The queues must be closed before.
#[derive(Default)]
pub(crate) struct Restore {
    /// Where the device is, if others made it.
    foreign: Option<(Place, u32)>,
    settings: [Option<Undo>; 3],
    driver: Option<Driver>,
}

/// State of the TUN driver.
struct Driver {
    before: TunState,
    /// A queue was attached with other flags than the device had.
    has_other_flags: bool,
    undo: Option<Undo>,
}

impl Restore {
    /// Reads the state of a device of which nothing was set yet. Call it in the network namespace
    /// of the device, which is that of `netns`.
    pub(crate) fn begin(device: &Attached, netns: Option<&Path>, persist: bool) -> Self {
        if device.found.is_none() && !persist {
            return Self::default();
        }
        let read = || -> io::Result<Self> {
            let (name, queue) = (&device.name, device.fds[0].as_fd());
            let found = device.found.as_ref();
            let flags = found.and_then(|found| found.tun).map_or(device.flags, |tun| tun.flags);
            let carrier = found.is_some_and(|found| found.carrier);
            let before = TunState::read(queue, name, flags & FLAGS, carrier)?;
            let place = Place::open(netns)?;
            let has_other_flags = (flags ^ device.flags) & FLAGS != 0;
            // The journal is of names in a place, and an inherited queue may be of another.
            let undo = (!device.is_elsewhere()).then(|| {
                let setting = Setting::Tun(name.clone());
                Undo::note(&place, device.index, setting, Value::Tun(before.clone()))
            });
            let foreign = (undo.is_some() && found.is_some()).then_some((place, device.index));
            let driver = Some(Driver { before, has_other_flags, undo });
            Ok(Self { foreign, settings: Default::default(), driver })
        };
        read().unwrap_or_else(|e| {
            tracing::warn!("{}: its settings cannot be read to put them back: {e}", device.name);
            Self::default()
        })
    }

    /// Calls `set`, which changes a setting of the interface from one value to the other.
    pub(crate) fn change(
        &mut self,
        which: Which,
        device: &str,
        [from, to]: [Value; 2],
        set: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let undo = &mut self.settings[which as usize];
        if let (None, Some((place, index))) = (&undo, &self.foreign) {
            *undo = Some(Undo::note(place, *index, which.setting(device), from));
        }
        set()?;
        if let Some(undo) = undo {
            undo.is_set(to);
        }
        Ok(())
    }

    /// Puts back what a queue can, wherever the device is by now.
    pub(crate) fn put_back(&mut self, queue: BorrowedFd<'_>) {
        let Some(driver) = &mut self.driver else { return };
        let is_done = driver.before.restore(queue).is_ok();
        if is_done && !driver.has_other_flags {
            driver.undo.take().into_iter().for_each(Undo::settle);
        }
    }
}

/// The network namespace of a queue that others opened is another than the calling thread's.
/// False where that may not be asked.
pub(crate) fn is_elsewhere(queue: BorrowedFd<'_>) -> bool {
    let there = sys::namespace_of(queue);
    there.is_ok_and(|there| namespace::is_current_net(&there).is_ok_and(|is_here| !is_here))
}

#[cfg(test)]
mod tests;
