//! Changes of the device by other programs: renames, moves between network namespaces, settings.
//!
//! A queue's descriptor identifies its device under any name and in any namespace. Kernel
//! notifications only trigger a read of the device's state; all decisions depend on the state that
//! was read. That state is compared with the values set here, so that changes of this process are
//! not attributed to another program.

use std::time::Duration;

use mqnet_netdev::Interface;
use mqnet_sysio::namespace::NetNs;

use crate::function::TapFunction;
use crate::location::locate;
use crate::netlink::LinkInfo;

/// Time after the creation of a device in which changes by other programs (udev,
/// systemd-networkd) count as automatic, and configured options are set again. Later changes
/// count as a user's request.
const SETTLING: Duration = Duration::from_secs(10);

/// Largest number of times that options are set again: the other program may repeat its settings
/// without end.
const RESETS_MAX: u8 = 8;

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl TapFunction {
    /// Detects changes of the device by other programs.
    pub(crate) fn follow(&mut self, now: Duration) {
        let since = *self.view.since.get_or_insert(now);
        // Do not compare during a prepared change, when the device has values that satisfy both
        // plans.
        if !self.view.is_stale || self.prepared.is_some() {
            return;
        }
        match self.read() {
            Ok(info) => {
                let is_settling = now.saturating_sub(since) < SETTLING;
                self.compare(info, is_settling);
                self.view.is_stale = false;
            }
            // The queues report a removed device; any other error is retried.
            Err(why) => tracing::debug!("{}: {why}", self.address()),
        }
    }

    fn read(&mut self) -> Result<LinkInfo, String> {
        if let Ok(info) = self.netlink.link_at(self.index)
            && info.name == self.device
        {
            return Ok(info);
        }
        self.find_device()?;
        self.netlink.link_at(self.index).map_err(|e| format!("{}: {e}", self.device))
    }

    /// Updates the device's name, index and network namespace from the descriptor of a queue. `Err`
    /// if this process cannot reach the device.
    pub(crate) fn find_device(&mut self) -> Result<(), String> {
        let at = locate(self.first())?;
        let (there, now) = (at.netns.as_ref().map(NetNs::inode), self.view.netns.as_ref());
        if at.is_certain && there != now.map(NetNs::inode) {
            let place = there.map_or("that of mqnet".to_owned(), |inode| inode.to_string());
            tracing::info!("{}: moved to the network namespace {place}", self.address());
            self.enter(at.netns)?;
        }
        let found = self.netlink.link(&at.name);
        let is_it = |info: &LinkInfo| at.is_certain || info.index == self.index;
        let Some(info) = found.ok().filter(is_it) else {
            self.view.is_out_of_reach = !at.is_certain;
            return Err(format!("{} is in a network namespace out of reach", at.name));
        };
        if self.device != at.name {
            tracing::info!("{}: renamed to {}", self.address(), at.name);
        }
        (self.device, self.index) = (at.name, info.index);
        self.view.is_out_of_reach = false;
        Ok(())
    }

    /// Compares the device with its last state. Sets configured options again, or records a changed
    /// MTU that counts as a user's request.
    fn compare(&mut self, info: LinkInfo, is_settling: bool) {
        let before = std::mem::replace(&mut self.view.seen, info);
        if self.view.seen.mac != before.mac {
            self.compare_mac(is_settling);
        }
        let mtu = self.view.seen.mtu;
        if mtu == self.mtu {
            return;
        }
        self.mtu = mtu;
        let option = self.wanted_mtu.filter(|_| is_settling || self.is_closed());
        let wanted = option.map(|wanted| self.plan.as_ref().map_or(wanted, |plan| plan.mtu));
        let is_free = self.view.resets < RESETS_MAX;
        let again = wanted.filter(|&wanted| wanted != mtu && is_free);
        match again.filter(|&wanted| self.change_mtu(wanted).is_ok()) {
            Some(wanted) => {
                self.view.resets += 1;
                tracing::warn!(
                    "{}: another program set the mtu {mtu}; mtu={wanted} is set again",
                    self.address()
                );
            }
            None => self.view.changed_mtu = Some(mtu),
        }
    }

    fn compare_mac(&mut self, is_settling: bool) {
        let (Some(wanted), Some(mac)) = (self.wanted_mac, self.view.seen.mac) else { return };
        if mac == wanted {
            return;
        }
        let is_free = is_settling && self.view.resets < RESETS_MAX;
        let again = is_free && self.change_mac(wanted).is_ok();
        let what = if again { "is set again" } else { "was given" };
        let (set, wanted_text, address) = (text(mac), text(wanted), self.address());
        tracing::warn!(
            "{address}: another program set the address {set}; mac={wanted_text} {what}"
        );
        if again {
            (self.view.seen.mac, self.view.resets) = (Some(wanted), self.view.resets + 1);
        }
    }

    /// Interface of the device, for users.
    pub(crate) fn shown(&self) -> Option<Interface<'_>> {
        let netns = self.view.netns.as_ref().map(NetNs::inode);
        let seen = &self.view.seen;
        // A stale view counts as carrier: a carrier that was just switched on is visible only after
        // the next notification.
        let is_running = seen.is_up && (seen.carrier || self.view.is_stale);
        Some(Interface { name: &self.device, index: Some(self.index), netns, is_running })
    }

    /// Notes on conditions that prevent the configured operation.
    pub(crate) fn notes_of_device(&self) -> Vec<String> {
        let (name, seen) = (&self.device, &self.view.seen);
        let mut notes = Vec::new();
        if self.view.is_out_of_reach {
            notes.push(format!(
                "{name} is in another network namespace, which this process may not enter \
                 (CAP_NET_ADMIN): queues and mtu stay as they are"
            ));
            return notes;
        }
        if self.plan.is_none() {
            return notes;
        }
        if !seen.is_up {
            notes.push(format!("{name} is down: ip link set dev {name} up"));
        } else if self.view.carrier && !seen.carrier {
            notes.push(format!(
                "{name}: another program switched its carrier off: \
                 ip link set dev {name} carrier on"
            ));
        }
        if let (Some(wanted), Some(mac)) = (self.wanted_mac, seen.mac)
            && wanted != mac
        {
            notes.push(format!(
                "{name} has the address {}, mac={} was given",
                text(mac),
                text(wanted)
            ));
        }
        notes
    }
}
