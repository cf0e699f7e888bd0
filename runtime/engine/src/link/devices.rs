//! MTU changes of devices by other programs. The link follows such a change like a request of the
//! user, or restores the MTU of the device.

use std::time::Duration;

use mqnet_netdev::Caps;

use super::{Link, LinkSettings, RequestError};

/// State of MTU changes by other programs.
#[derive(Debug, Default)]
pub(super) struct DeviceMtu {
    /// Side and MTU to follow when no request is under way.
    due: Option<(usize, u32)>,
    /// Side and MTU of the request under way for a device.
    requested: Option<(usize, u32)>,
    /// Notes on a difference between the MTU of the device and that of the link, by side.
    notes: [Option<String>; 2],
}

/// Reason why the other function cannot have this MTU; `None` if it can.
fn limit(other: &str, caps: &Caps, mtu: u32) -> Option<String> {
    match caps.mtu {
        Some(its) if its != mtu => Some(format!("{other} has mtu {its}")),
        _ if caps.mtu_max < mtu => Some(format!("{other} supports at most mtu {}", caps.mtu_max)),
        _ => None,
    }
}

impl Link {
    /// Notes on facts that prevent a side from working as configured, each with a remedy.
    pub fn notes(&self, side: usize) -> Vec<String> {
        let mut notes = self.ends[side].notes();
        notes.extend(self.device_mtu.notes[side].clone());
        notes
    }

    /// Clears the notes, because another plan is in force and each device has its MTU.
    pub(super) fn forget_device_notes(&mut self) {
        self.device_mtu.notes = [None, None];
    }

    /// Follows MTU changes by other programs, or restores the device's MTU.
    pub(super) fn follow_devices(&mut self, now: Duration) {
        for side in [0, 1] {
            if let Some(mtu) = self.ends[side].changed_mtu() {
                self.device_mtu.due = Some((side, mtu));
                self.device_mtu.notes[side] = None;
            }
        }
        if self.pending.is_some() || self.change.is_some() {
            return;
        }
        let Some((side, mtu)) = self.device_mtu.due.take() else { return };
        let settings = LinkSettings { mtu: Some(mtu), ..self.settings.clone() };
        let other = &self.ends[1 - side];
        let limit = limit(other.name(), &other.caps(), mtu);
        match (self.running.as_ref().map(|running| running.plan.mtu), limit) {
            (Some(own), _) if own == mtu => {}
            (Some(_), Some(why)) => self.refuse_device_mtu(side, mtu, &why),
            (Some(_), None) => match self.request(settings, now) {
                Ok(()) => self.device_mtu.requested = Some((side, mtu)),
                Err(e) => self.refuse_device_mtu(side, mtu, &e.to_string()),
            },
            // While the link is down with a peer, do not change the request: two hosts with
            // different requests would never agree again.
            (None, None) if self.peer_side.is_none() => {
                self.settings = settings;
                self.publish_request();
            }
            (None, _) => {}
        }
    }

    /// Discards MTU changes by other programs if the user has requested an MTU. Restores the MTU of
    /// the devices if the link already has the requested MTU.
    pub(super) fn overrule_devices(&mut self, mtu: Option<u32>) {
        if mtu.is_none() {
            return;
        }
        for end in &mut self.ends {
            let _ = end.changed_mtu();
        }
        self.device_mtu = DeviceMtu::default();
        if self.running.as_ref().is_some_and(|running| Some(running.plan.mtu) == mtu) {
            for end in &mut self.ends {
                if let Err(e) = end.restore_mtu() {
                    tracing::warn!("{}: {e}", end.name());
                }
            }
        }
    }

    /// True if the reply belongs to a request that was made for a device. A failed request leaves a
    /// note.
    pub(super) fn is_of_device(&mut self, answer: &Result<Option<String>, RequestError>) -> bool {
        let Some((side, mtu)) = self.device_mtu.requested.take() else { return false };
        if let Err(why) = answer {
            self.refuse_device_mtu(side, mtu, &why.to_string());
        }
        true
    }

    /// Keeps the MTU of the link and sets a note. A larger MTU of the device would lose frames, so
    /// the device gets the link's MTU back. A smaller MTU loses no frames and may be intended, so
    /// the device keeps it.
    fn refuse_device_mtu(&mut self, side: usize, mtu: u32, why: &str) {
        let Some(own) = self.running.as_ref().map(|running| running.plan.mtu) else { return };
        let end = &mut self.ends[side];
        let name = end.interface().map_or(end.name(), |interface| interface.name).to_owned();
        let note = match (mtu > own).then(|| end.restore_mtu()) {
            None => format!("{name} has mtu {mtu}, the link has {own}: {why}"),
            Some(Ok(())) => format!("{name}: mtu {mtu} was set back to the link's {own}: {why}"),
            Some(Err(e)) => format!(
                "{name} has mtu {mtu}, the link has {own} and drops larger frames (too-long): \
                 {why}; {e}"
            ),
        };
        tracing::warn!("{note}");
        self.device_mtu.notes[side] = Some(note);
    }
}
