//! XDP programs around the source of a lane, and what programs of the other side send back by it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_netdev::Rx;
use mqnet_netdev::wrap::capture::{CaptureTap, unwrap_rx, wrap_rx};
use mqnet_sysio::eventfd::EventFd;
use mqnet_xdp::wrap::{self, HookConfig, Hooked, Return, Returned};

use super::Lane;

/// What programs have to do with a lane.
#[derive(Default)]
pub(super) struct Hooks {
    /// The program around its source.
    hooked: Option<Hooked>,
    /// The way back from a program of the other side, and what is rung when something comes by it.
    joined: Option<(Hooked, Arc<EventFd>)>,
}

impl Hooks {
    pub(super) fn hold_a_frame(&self) -> bool {
        self.all().any(|hooked| hooked.waiting() > 0)
    }

    fn all(&self) -> impl Iterator<Item = &Hooked> {
        self.hooked.iter().chain(self.joined.as_ref().map(|(joined, _)| joined))
    }

    pub(super) fn door(&self) -> Option<BorrowedFd<'_>> {
        self.joined.as_ref().map(|(_, bell)| bell.as_fd())
    }
}

/// Takes every tap off a source.
pub(crate) fn taps_off(mut rx: Rx) -> (Rx, Vec<CaptureTap>) {
    let mut taps = Vec::new();
    loop {
        let (inner, tap) = unwrap_rx(rx);
        rx = inner;
        match tap {
            Some(tap) => taps.push(tap),
            None => break,
        }
    }
    taps.extend(wrap::take_watchers(&mut rx));
    (rx, taps)
}

/// Puts taps on a source: what counts drops alone at the program that drops, if there is one.
pub(crate) fn taps_on(mut rx: Rx, taps: Vec<CaptureTap>) -> Rx {
    let (drops, all): (Vec<_>, Vec<_>) = taps.into_iter().rev().partition(CaptureTap::drops_only);
    let left: Vec<_> = drops.into_iter().filter_map(|tap| wrap::watch(&mut rx, tap)).collect();
    left.into_iter().chain(all).fold(rx, wrap_rx)
}

/// Changes a source under its taps, which see what has passed the program.
fn under_taps(rx: Rx, edit: impl FnOnce(Rx) -> Rx) -> Rx {
    let (rx, taps) = taps_off(rx);
    taps_on(edit(rx), taps)
}

/// The same, under what comes back from a program of the other side as well.
fn under_all(rx: Rx, edit: impl FnOnce(Rx) -> Rx) -> Rx {
    under_taps(rx, |rx| {
        let (rx, inlet) = wrap::lift(rx);
        let rx = edit(rx);
        match inlet {
            Some(inlet) => wrap::join(rx, inlet),
            None => rx,
        }
    })
}

impl Lane {
    /// Puts a program around its source.
    pub(crate) fn hook(&mut self, config: HookConfig) {
        self.hooks.hooked = Some(config.hooked.clone());
        // What waits for the sink has passed already; the new source shows it first.
        let held = self.take_received();
        self.edit_rx(|rx| {
            let held = held.iter().map(|(bytes, hdr)| (&bytes[..], *hdr));
            under_all(rx, |rx| wrap::hook(rx, config, held))
        });
        self.fit_batch();
    }

    /// Takes the program off its source, as soon as nothing waits in it.
    pub(crate) fn unhook(&mut self) {
        self.edit_rx(|rx| under_all(rx, wrap::unhook));
        if self.hooks.hooked.as_ref().is_some_and(|hooked| !hooked.is_on()) {
            self.hooks.hooked = None;
        }
        // Its source brings no memory any more: what `full=drop` drops must be received somewhere.
        // Without memory for that the lane stops instead.
        let _ = self.set_full(self.full);
        self.fit_batch();
    }

    /// Lets what a program of the other side sends back come first.
    pub(crate) fn join(&mut self, inlet: Return, joined: Hooked, bell: Arc<EventFd>) {
        self.hooks.joined = Some((joined, bell));
        self.edit_rx(|rx| under_taps(rx, |rx| wrap::join(rx, inlet)));
    }

    /// It is to leave (`true`), so programs take nothing in for it any more, or it stays.
    pub(crate) fn close_hooks(&self, on: bool) {
        self.hooks.all().for_each(|hooked| hooked.close(on));
    }

    /// Takes out what a program of the other side sent back by it and what it has not sent: its
    /// program runs on another lane, which may have gone on a moment longer than this one.
    pub(crate) fn take_returned(&mut self) -> Option<Returned> {
        self.hooks.joined.as_ref()?;
        let mut returned = None;
        self.edit_rx(|rx| {
            under_taps(rx, |rx| {
                let (rx, taken) = wrap::take_returned(rx);
                returned = taken;
                rx
            })
        });
        returned.filter(|returned| !returned.is_empty())
    }

    /// Sends that in the place of a lane that is gone.
    pub(crate) fn give_returned(&mut self, returned: Returned) {
        self.edit_rx(|rx| under_taps(rx, |rx| wrap::give_returned(rx, returned)));
    }

    /// Takes that off, as soon as nothing comes back any more.
    pub(crate) fn part(&mut self) {
        self.edit_rx(|rx| under_taps(rx, wrap::part));
        // Whoever runs the lane would otherwise go on to watch a bell that nobody rings.
        self.hooks.joined.take_if(|(joined, _)| !joined.is_on());
    }
}
