//! Settings of this system that are changed for as long as somebody needs them: the queues and the
//! table of a NIC, the CPUs of its interrupts, its XPS; the MTU, the address and the driver state
//! of a TAP or TUN device.
//!
//! An [`Undo`] puts back what was there when it is dropped. Before anything is changed, it is
//! written to a journal of this process (see [`keep_in`]); when the process is killed, the next one
//! finds the journal and puts back what is in it ([`recover`]). What somebody else has changed
//! since is his, and stays.

#![forbid(unsafe_code)]

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
pub use place::Place;
pub use recover::{Left, left_behind, recover};
use setting::Outcome;
pub use setting::{Setting, Value};
pub use tun::{TunInfo, TunState};

/// The kernel lets go of an AF_XDP socket's queue a moment after the socket is closed.
const PATIENCE: Duration = Duration::from_millis(300);

/// A setting that is not as it was; put back when this is dropped.
#[derive(Debug)]
pub struct Undo {
    /// Its number in the journal, if there is one.
    id: Option<u64>,
    place: Place,
    /// The number of its interface there.
    device: Option<u32>,
    setting: Setting,
    before: Value,
    /// What was there after our change, in the kernel's own words; `None` while that is not known.
    ours: Option<Value>,
    /// False once it was put back.
    is_due: bool,
}

impl Undo {
    /// Sets `setting`, which is `before` now. Call it in the place.
    pub fn set(place: &Place, setting: Setting, before: Value, value: &Value) -> io::Result<Self> {
        // First the journal: what is not in it yet when we are killed was not changed.
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
            // It may be half done.
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

    /// Notes that the caller is about to change `setting`, which is `before` now, of the interface
    /// with the index `device` in the place.
    pub fn note(place: &Place, device: u32, setting: Setting, before: Value) -> Self {
        let device = Some(device);
        let id = journal::note(None, (place, device), &setting, &before, None);
        Self { id, place: place.clone(), device, setting, before, ours: None, is_due: true }
    }

    /// The caller has put it back.
    pub fn settle(mut self) {
        self.is_due = false;
        journal::forget(self.id);
    }

    /// Notes what the caller has set after [`note`](Self::note).
    pub fn is_set(&mut self, value: Value) {
        self.is_now(value);
    }

    /// Sets it to something else; what will be put back stays the same.
    pub fn change(&mut self, value: &Value) -> io::Result<()> {
        let home = (&self.place, self.device);
        self.id = journal::note(self.id, home, &self.setting, &self.before, None);
        let setting = &self.setting;
        let write = || setting.write(value).map(|()| setting.read().ok());
        let done = self.place.run(setting, write).and_then(|done| done);
        // After a failure it is as it was, and that was ours.
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

    /// It is as we wanted it.
    fn is_now(&mut self, ours: Value) {
        let home = (&self.place, self.device);
        self.id = journal::note(self.id, home, &self.setting, &self.before, Some(&ours));
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

/// Puts them back, of each place the last one first; returns what could not be, in words.
pub fn put_back(mut all: Vec<Undo>) -> Vec<String> {
    let mut said = Vec::new();
    all.reverse();
    while let Some(place) = all.first().map(|undo| undo.place.clone()) {
        let (mut part, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|undo| undo.place == place);
        put_back_together(&mut part, |what| said.push(what));
        all = rest;
    }
    said
}

/// Those of one place: to get there costs a thread, and a mount where files are meant. What cannot
/// be put back stays in the journal.
fn put_back_together(part: &mut [Undo], mut say: impl FnMut(String)) {
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
                outcome.trouble(&undo.setting).into_iter().for_each(&mut say);
            }
        }
        Err(e) => part.iter().for_each(|undo| say(format!("{}: {e}", undo.setting))),
    }
    part.iter_mut().for_each(|undo| undo.is_due = false);
}
