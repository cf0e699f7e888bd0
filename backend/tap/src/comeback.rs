//! A device that is removed, alone or with its network namespace, and one of its name that is there
//! again.

use std::path::Path;
use std::time::Duration;

use mqnet_netdev::LinkStatus;
use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::namespace::{self, NetNs};
use mqnet_sysio::{poll, tap as sys};

use crate::TapConfig;
use crate::function::{TapFunction, other_netns};
use crate::netlink::Netlink;
use crate::open::create;
use crate::queues::{Opener, Queues};
use crate::restore::Restore;

/// What the kernel says of a queue without a device (identical on every architecture we know).
const EBADFD: i32 = 77;

/// What is kept of how it was opened.
pub(crate) enum Origin {
    /// By name.
    Named(Box<TapConfig>),
    /// Somebody else has opened it.
    Inherited,
}

fn netns_path(origin: &Origin) -> Option<&Path> {
    match origin {
        Origin::Named(config) => config.netns.as_deref(),
        Origin::Inherited => None,
    }
}

impl TapFunction {
    /// How the device stands. One that was removed is not made again, because somebody has removed
    /// it; but when there is one of its name, it is taken. One that was deleted with its network
    /// namespace is made again in the next namespace of that name.
    pub(crate) fn look(&mut self, now: Duration) -> LinkStatus {
        self.view.take_news(self.index);
        // At every turn, so first by what takes no lock: `identify` waits for the kernel's lock of
        // all network configuration, which others hold for tenths of a second at a time.
        if !poll::is_in_error(self.first()).unwrap_or(true) {
            if self.view.netns_is_gone(now) {
                return self.leave_netns();
            }
            self.follow(now);
            return LinkStatus::Up { session: self.session };
        }
        let told = sys::identify(self.first());
        if !told.is_err_and(|e| e.raw_os_error() == Some(EBADFD)) {
            return LinkStatus::Up { session: self.session };
        }
        if !self.is_closed() {
            return LinkStatus::Down("the TAP device was removed".to_owned());
        }
        match self.come_back() {
            Ok(()) => LinkStatus::Up { session: self.session },
            Err(why) => LinkStatus::Down(why),
        }
    }

    /// Closes whatever keeps a deleted network namespace in existence.
    fn leave_netns(&mut self) -> LinkStatus {
        let path = self.view.netns.as_ref().and_then(|netns| netns.path());
        let path = path.map_or(String::new(), |path| format!(" {}", path.display()));
        let why = format!("the network namespace{path} of {} was deleted", self.device);
        if self.is_closed() {
            let left = self.drop_queues().and_then(|()| self.enter(None));
            if let Err(e) = left {
                return LinkStatus::Down(format!("{why}: {e}"));
            }
            self.view.is_homeless = netns_path(&self.origin).is_some();
        }
        LinkStatus::Down(why)
    }

    /// Works in another network namespace from now on; `None`: that of the process.
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

    /// Returns to the network namespace of the configuration.
    fn return_to_origin(&mut self) -> Result<(), String> {
        let path = netns_path(&self.origin);
        let there = other_netns(path).map_err(|why| match path {
            Some(path) if namespace::id_of(path).is_err() => {
                format!("waiting for the network namespace {}", path.display())
            }
            _ => why,
        })?;
        let now = self.view.netns.as_ref().map(NetNs::inode);
        if there.as_ref().map(NetNs::inode) == now { Ok(()) } else { self.enter(there) }
    }

    fn come_back(&mut self) -> Result<(), String> {
        let what = match self.view.is_homeless {
            true => "the network namespace was deleted",
            false => "the TAP device was removed",
        };
        let removed = |why: &str| format!("{what}: {why}");
        self.return_to_origin().map_err(|why| removed(&why))?;
        let Origin::Named(config) = &self.origin else {
            return Err(removed("its queues were inherited, and end with it"));
        };
        let (name, layer) = (self.view.first_name.clone(), config.layer());
        let mode = if config.tun { "tun" } else { "tap" };
        let waits =
            removed(&format!("waiting for 'ip tuntap add dev {name} mode {mode} multi_queue'"));
        let is_made_anew = self.view.is_homeless;
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
        // Otherwise the one that was there was removed just now, and this one was created by
        // accident: it ends with the descriptor.
        if !is_made_anew && found.is_none_or(|found| found.index != info.index) {
            return Err(waits);
        }
        self.view.is_homeless = false;
        let opener = Opener::of(device.flags, info.index, self.view.reopen()?);
        let queues = Queues::new(device.fds, layer, opener);
        self.renew(queues, restore, info).map_err(|why| removed(&why))
    }
}
