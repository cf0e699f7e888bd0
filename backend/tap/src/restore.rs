//! Restore journal of a device that outlives this function.
//!
//! A device that another program created is restored to its former state. A persistent device that
//! was created here (`persist`) keeps the configured MTU and addresses. Its offloads, the size of
//! its `virtio_net_hdr` and its steering are reset to those of a new device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use mqnet_sysio::tap as sys;
use mqnet_undo::{Setting, SettingNetns, TunState, Undo, Value};

use crate::open::Attached;

/// Flags of `TUNSETIFF` that are restored.
const FLAGS: u32 = sys::flag::TUN
    | sys::flag::TAP
    | sys::flag::NO_PI
    | sys::flag::VNET_HDR
    | sys::flag::MULTI_QUEUE;

/// Setting of the interface.
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

/// Settings that are restored on drop. The queues must be closed before the drop.
#[derive(Default)]
pub(crate) struct Restore {
    /// Location of a device that another program created; `None` for other devices.
    foreign: Option<(SettingNetns, u32)>,
    settings: [Option<Undo>; 3],
    driver: Option<Driver>,
}

/// State of the TUN driver.
struct Driver {
    before: TunState,
    /// True if a queue was attached with other flags than those of the device.
    has_other_flags: bool,
    undo: Option<Undo>,
}

impl Restore {
    /// Reads the state of a device before any setting changes. Records nothing for a device that
    /// disappears at exit, or if the state cannot be read. The caller must be in the network
    /// namespace of the device, which is that of `netns`.
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
            let place = SettingNetns::open(netns)?;
            let has_other_flags = (flags ^ device.flags) & FLAGS != 0;
            // An entry names the device in the namespace `netns`. Write none if an inherited queue
            // belongs to another namespace.
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

    /// Calls `set`, which changes a setting of the interface between the two values, and records
    /// the change.
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

    /// Restores the driver's settings through a queue, which works in any namespace of the device.
    pub(crate) fn put_back(&mut self, queue: BorrowedFd<'_>) {
        let Some(driver) = &mut self.driver else { return };
        let is_done = driver.before.restore(queue).is_ok();
        if is_done && !driver.has_other_flags {
            driver.undo.take().into_iter().for_each(Undo::settle);
        }
    }
}

#[cfg(test)]
mod tests;
