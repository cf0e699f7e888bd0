//! Temporary changes of system settings. For a NIC these are queues, RSS table, CPU affinity of its
//! interrupts, and XPS. For a TAP or TUN device these are MTU, address and driver state.
//!
//! An [`Undo`] restores the previous value when it is dropped. Each change is written to the
//! restore journal of this process before it is made (see [`keep_in`]). After a kill of the
//! process, the next process finds the journal and restores the settings in it ([`recover`]). A
//! setting that another program has changed since is kept.

#![forbid(unsafe_code)]

mod folder;
mod journal;
mod place;
mod recover;
mod rtnl;
mod setting;
#[cfg(test)]
mod tests;
mod tun;

use std::io;
use std::time::Duration;

use mqnet_sysio::clock;

pub use journal::keep_in;
pub use place::SettingNetns;
pub use recover::{Left, left_behind, recover};
use setting::Outcome;
pub use setting::{Setting, Value};
pub use tun::{TunInfo, TunState};

/// Time limit for busy queues. The kernel releases the queue of a closed AF_XDP socket with a
/// delay.
const PATIENCE: Duration = Duration::from_millis(300);

/// Changed setting, restored at drop.
#[derive(Debug)]
pub struct Undo {
    /// Id of the record in the journal, or `None` without a journal.
    id: Option<u64>,
    place: SettingNetns,
    /// Interface index in that namespace.
    device: Option<u32>,
    setting: Setting,
    before: Value,
    /// Value after the change, as read back from the kernel, or `None` while unknown.
    ours: Option<Value>,
    /// True until the setting is restored.
    is_due: bool,
}

impl Undo {
    /// Changes `setting`, with the current value `before`. Must be called inside `place`.
    pub fn set(
        place: &SettingNetns,
        setting: Setting,
        before: Value,
        value: &Value,
    ) -> io::Result<Self> {
        // The journal is written first, so that a killed process leaves no unrecorded change.
        let device = setting.device().ok().flatten();
        let id = journal::note(None, (place, device), &setting, &before, None);
        let mut undo = Self {
            id,
            place: place.clone(),
            device,
            setting,
            before,
            ours: Some(value.clone()),
            is_due: true,
        };
        if let Err(e) = undo.setting.write(value) {
            // Restore the setting: the failed change may be partial.
            undo.is_due = false;
            match undo.setting.put_back(undo.device, &undo.before, None, Duration::ZERO) {
                Outcome::Failed(_) => {}
                _ => journal::forget(id),
            }
            return Err(e);
        }
        undo.is_now(undo.setting.read().unwrap_or_else(|_| value.clone()));
        Ok(undo)
    }

    /// Records that the caller is about to change `setting`, with the current value `before`, of
    /// the interface with index `device` in `place`.
    pub fn note(place: &SettingNetns, device: u32, setting: Setting, before: Value) -> Self {
        let device = Some(device);
        let id = journal::note(None, (place, device), &setting, &before, None);
        Self { id, place: place.clone(), device, setting, before, ours: None, is_due: true }
    }

    /// Ends the change after the caller has restored the setting.
    pub fn settle(mut self) {
        self.is_due = false;
        journal::forget(self.id);
    }

    /// Records the value that the caller has set after [`note`](Self::note).
    pub fn is_set(&mut self, value: Value) {
        self.is_now(value);
    }

    /// Changes the setting again. The value to be restored stays the same.
    pub fn change(&mut self, value: &Value) -> io::Result<()> {
        let location = (&self.place, self.device);
        self.id = journal::note(self.id, location, &self.setting, &self.before, None);
        let setting = &self.setting;
        let write = || setting.write(value).map(|()| setting.read().ok());
        let done = self.place.run(setting, write).and_then(|done| done);
        // After a failure the setting still has the previous value, which this process has set.
        match &done {
            Ok(now) => self.is_now(now.clone().unwrap_or_else(|| value.clone())),
            Err(_) => {
                if let Some(ours) = self.ours.clone() {
                    self.is_now(ours);
                }
            }
        }
        done.map(drop)
    }

    /// Records the value that is set now.
    fn is_now(&mut self, ours: Value) {
        let location = (&self.place, self.device);
        self.id = journal::note(self.id, location, &self.setting, &self.before, Some(&ours));
        self.ours = Some(ours);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.is_due {
            put_back_together(std::slice::from_mut(self), |what| tracing::warn!("{what}"));
        }
    }
}

/// Restores changes in reverse order within each namespace. Returns error messages.
pub fn put_back(mut all: Vec<Undo>) -> Vec<String> {
    let mut messages = Vec::new();
    all.reverse();
    while let Some(place) = all.first().map(|undo| undo.place.clone()) {
        let (mut part, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|undo| undo.place == place);
        put_back_together(&mut part, |what| messages.push(what));
        all = rest;
    }
    messages
}

/// Restores the changes of one namespace together, because entering a namespace needs a thread, and
/// for files a mount. Changes that cannot be restored stay in the journal.
fn put_back_together(part: &mut [Undo], mut report: impl FnMut(String)) {
    let Some(place) = part.first().map(|undo| undo.place.clone()) else { return };
    let with_sys = part.iter().any(|undo| matches!(undo.setting, Setting::File(_)));
    let until = clock::monotonic() + PATIENCE;
    let done = place.enter(with_sys, || {
        let one = |Undo { setting, device, before, ours, .. }: &Undo| {
            setting.put_back(*device, before, ours.as_ref(), until)
        };
        part.iter().map(one).collect::<Vec<_>>()
    });
    match done {
        Ok(outcomes) => {
            for (undo, outcome) in part.iter().zip(outcomes) {
                if !matches!(outcome, Outcome::Failed(_)) {
                    journal::forget(undo.id);
                }
                outcome.problem(&undo.setting).into_iter().for_each(&mut report);
            }
        }
        Err(e) => part.iter().for_each(|undo| report(format!("{}: {e}", undo.setting))),
    }
    part.iter_mut().for_each(|undo| undo.is_due = false);
}
