//! A device that is removed, and one of its name that is there again.

use mqnet_netdev::LinkStatus;
use mqnet_sysio::{namespace, poll, tap as sys};

use crate::TapConfig;
use crate::function::TapFunction;
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

impl TapFunction {
    /// How the device stands. One that was removed is not made again, because somebody has removed
    /// it; but when there is one of its name, it is taken.
    pub(crate) fn look(&mut self) -> LinkStatus {
        // At every turn, so first by what takes no lock: `identify` waits for the kernel's lock of
        // all network configuration, which others hold for tenths of a second at a time.
        if !poll::is_in_error(self.first()).unwrap_or(true) {
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
            Err(why) => LinkStatus::Down(format!("the TAP device was removed: {why}")),
        }
    }

    fn come_back(&mut self) -> Result<(), String> {
        let Origin::Named(config) = &self.origin else {
            return Err("its queues were inherited, and end with it".to_owned());
        };
        let (name, layer) = (self.device().to_owned(), config.layer());
        let mode = if config.tun { "tun" } else { "tap" };
        let Ok(info) = self.netlink().link(&name) else {
            return Err(format!("waiting for 'ip tuntap add dev {name} mode {mode} multi_queue'"));
        };
        let Origin::Named(config) = &self.origin else { return Ok(()) };
        let (netns, persist) = (config.netns.as_deref(), config.persist);
        let open = || {
            let device = create(&name, layer)?;
            let restore = Restore::begin(&device, netns, persist);
            device.set_header().map(|()| (device, restore))
        };
        let opened = match netns {
            None => open(),
            Some(path) => namespace::run_in_net(path, open)
                .map_err(|e| format!("network namespace {}: {e}", path.display()))?,
        };
        let (device, restore) = opened?;
        let home = config.netns.as_ref().map(std::fs::File::open).transpose();
        let home = home.map_err(|e| format!("network namespace: {e}"))?;
        let opener = Opener::of(&device.name, device.flags, home);
        let queues = Queues::new(device.fds, layer, opener);
        self.renew(queues, restore, &info)
    }
}
