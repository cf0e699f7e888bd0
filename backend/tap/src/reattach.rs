//! Handling of a removed device, alone or with its network namespace, and attachment to its
//! successor.

use std::time::Duration;

use mqnet_netdev::LinkStatus;
use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::namespace::{self, NetNs};
use mqnet_sysio::{poll, tap as sys};

use crate::function::TapFunction;
use crate::location::other_netns;
use crate::netlink::Netlink;
use crate::open::create;
use crate::origin::Origin;
use crate::queues::{Opener, Queues};
use crate::restore::Restore;

/// Error of a queue without a device (identical on all known Linux architectures).
const EBADFD: i32 = 77;

impl TapFunction {
    /// State of the device. A removed device is not created again, because its removal was
    /// intended, but a new device of the same name is attached. A device that was deleted with
    /// its network namespace is created in the next namespace of that name.
    pub(crate) fn link_status(&mut self, now: Duration) -> LinkStatus {
        self.view.take_notifications(self.index);
        // Check without a lock first, because this runs in every iteration. `identify` takes the
        // RTNL lock, which other programs can hold for long.
        if !poll::is_in_error(self.first()).unwrap_or(true) {
            if self.view.netns_is_gone(now) {
                return self.leave_netns();
            }
            self.follow(now);
            return LinkStatus::Up { session: self.session };
        }
        let identified = sys::identify(self.first());
        if !identified.is_err_and(|e| e.raw_os_error() == Some(EBADFD)) {
            return LinkStatus::Up { session: self.session };
        }
        if !self.is_closed() {
            return LinkStatus::Down("the TAP device was removed".to_owned());
        }
        match self.reattach() {
            Ok(()) => LinkStatus::Up { session: self.session },
            Err(why) => LinkStatus::Down(why),
        }
    }

    /// Closes all descriptors that keep a deleted network namespace in existence, once the channels
    /// are closed. Returns the link as down.
    fn leave_netns(&mut self) -> LinkStatus {
        let path = self.view.netns.as_ref().and_then(|netns| netns.path());
        let path = path.map_or(String::new(), |path| format!(" {}", path.display()));
        let why = format!("the network namespace{path} of {} was deleted", self.device);
        if self.is_closed() {
            let left = self.drop_queues().and_then(|()| self.enter(None));
            if let Err(e) = left {
                return LinkStatus::Down(format!("{why}: {e}"));
            }
            self.view.is_netns_lost = self.origin.netns_path().is_some();
        }
        LinkStatus::Down(why)
    }

    /// Switches to another network namespace; `None` is that of the process.
    pub(crate) fn enter(&mut self, netns: Option<NetNs>) -> Result<(), String> {
        let open = || Ok((Netlink::open()?, LinkMonitor::open()?));
        let opened: std::io::Result<_> = match &netns {
            None => open(),
            Some(netns) => netns.run(open).and_then(|opened| opened),
        };
        let (netlink, monitor) = opened.map_err(|e| format!("its network namespace: {e}"))?;
        self.netlink = netlink;
        self.view.enter(monitor, netns);
        Ok(())
    }

    /// Returns to the network namespace of the configuration; `Err` while there is none of that
    /// name.
    fn return_to_origin(&mut self) -> Result<(), String> {
        let path = self.origin.netns_path();
        let there = other_netns(path).map_err(|why| match path {
            Some(path) if namespace::id_of(path).is_err() => {
                format!("waiting for the network namespace {}", path.display())
            }
            _ => why,
        })?;
        let now = self.view.netns.as_ref().map(NetNs::inode);
        if there.as_ref().map(NetNs::inode) == now { Ok(()) } else { self.enter(there) }
    }

    fn reattach(&mut self) -> Result<(), String> {
        let what = match self.view.is_netns_lost {
            true => "the network namespace was deleted",
            false => "the TAP device was removed",
        };
        let removed = |why: &str| format!("{what}: {why}");
        self.return_to_origin().map_err(|why| removed(&why))?;
        let Origin::Named(config) = &self.origin else {
            return Err(removed("its queues were inherited and cannot be opened again"));
        };
        let (name, layer) = (self.view.first_name.clone(), config.layer());
        let mode = if config.tun { "tun" } else { "tap" };
        let waits =
            removed(&format!("waiting for 'ip tuntap add dev {name} mode {mode} multi_queue'"));
        let is_made_anew = self.view.is_netns_lost;
        let found = self.netlink.link(&name).ok();
        if !is_made_anew && found.is_none() {
            return Err(waits);
        }
        let Origin::Named(config) = &self.origin else { return Ok(()) };
        let (path, persist) = (config.netns.as_deref(), config.persist);
        let create = || {
            let device = create(&name, layer)?;
            let restore = Restore::begin(&device, path, persist);
            device.set_header().map(|()| (device, restore))
        };
        let opened = match &self.view.netns {
            None => create(),
            Some(netns) => {
                netns.run(create).map_err(|e| removed(&format!("network namespace: {e}")))?
            }
        };
        let (device, restore) = opened.map_err(|why| removed(&why))?;
        let info = self.netlink.link(&device.name).map_err(|e| removed(&e.to_string()))?;
        // The found device was removed in between, so `create` has created an unwanted one. The
        // close of its descriptor removes it.
        if !is_made_anew && found.is_none_or(|found| found.index != info.index) {
            return Err(waits);
        }
        self.view.is_netns_lost = false;
        let opener = Opener::of(device.flags, info.index, self.view.reopen()?);
        let queues = Queues::new(device.fds, layer, opener);
        self.renew(queues, restore, info).map_err(|why| removed(&why))
    }
}
