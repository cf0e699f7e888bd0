//! XDP program of a lane's source, and frames that a program of the opposite lane reinjects
//! (XDP_TX).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_netdev::wrap::capture::{CaptureTap, unwrap_rx, wrap_rx};
use mqnet_netdev::wrap::offload::GsoProgress;
use mqnet_netdev::{Burst, Rx};
use mqnet_shmem::SpanMut;
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::VnetHdr;
use mqnet_xdp::wrap::{self, HookConfig, Hooked, ReinjectRx, UnsentReinjected};

use super::Lane;

/// XDP programs of a lane.
#[derive(Default)]
pub(super) struct Hooks {
    /// Program that processes the frames of the source.
    hooked: Option<Hooked>,
    /// Reinjection from a program of the opposite lane, and the eventfd that signals its frames.
    joined: Option<(Hooked, Arc<EventFd>)>,
}

impl Hooks {
    pub(super) fn hold_a_frame(&self) -> bool {
        self.all().any(|hooked| hooked.waiting() > 0)
    }

    /// True if a program processes the frames of the source.
    #[inline(always)]
    pub(super) fn has_program(&self) -> bool {
        self.hooked.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Hooked> {
        self.hooked.iter().chain(self.joined.as_ref().map(|(joined, _)| joined))
    }

    pub(super) fn waker(&self) -> Option<BorrowedFd<'_>> {
        self.joined.as_ref().map(|(_, waker)| waker.as_fd())
    }
}

/// Removes all capture taps from a source. Returns the source and the taps.
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

/// Adds taps to a source. A tap for drops only is added to the program, if the source has one.
pub(crate) fn taps_on(mut rx: Rx, taps: Vec<CaptureTap>) -> Rx {
    let (drops, all): (Vec<_>, Vec<_>) = taps.into_iter().rev().partition(CaptureTap::drops_only);
    let left: Vec<_> = drops.into_iter().filter_map(|tap| wrap::watch(&mut rx, tap)).collect();
    left.into_iter().chain(all).fold(rx, wrap_rx)
}

/// Edits a source below its taps. The taps process the frames that the program has passed.
fn under_taps(rx: Rx, edit: impl FnOnce(Rx) -> Rx) -> Rx {
    let (rx, taps) = taps_off(rx);
    taps_on(edit(rx), taps)
}

/// Edits a source below its taps and below the reinjection from the opposite lane.
fn under_all(rx: Rx, edit: impl FnOnce(Rx, Option<&mut ReinjectRx>) -> Rx) -> Rx {
    under_taps(rx, |rx| {
        let (rx, mut inlet) = wrap::lift(rx);
        let rx = edit(rx, inlet.as_mut());
        match inlet {
            Some(inlet) => wrap::put_back(rx, inlet),
            None => rx,
        }
    })
}

/// Copies and releases the first frame of an owning source. Returns `None` for other sources,
/// without a frame, and after a fault, which the next poll reports.
fn take_first(rx: &mut Rx) -> Option<(Vec<u8>, VnetHdr)> {
    let Rx::Owning(rx) = rx else { return None };
    let taken = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 1).ok()?;
        let frame = burst.frames().first()?;
        let mut bytes = vec![0; frame.len as usize];
        let mut to = SpanMut::of(&mut bytes);
        for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
            to.copy_from(*piece);
            to = to.split_at(piece.len()).1;
        }
        (bytes, frame.hdr)
    };
    rx.release(1).ok()?;
    Some(taken)
}

impl Lane {
    /// True if the first frame of the source is partly sent. False if the partly sent frame is in
    /// the disciplines, or in the memory of offload emulation.
    pub(super) fn partial_in_source(&self) -> bool {
        let in_source = |hand: &GsoProgress| hand.is_begun() && !hand.has_a_frame();
        !self.partial_inside && self.finishing.as_ref().is_some_and(in_source)
    }

    /// Attaches a program to the source.
    pub(crate) fn hook(&mut self, config: HookConfig) {
        self.hooks.hooked = Some(config.hooked.clone());
        // Frames that wait for the sink must not pass the new program. The same holds for a partly
        // sent frame: if the program dropped it, the peer would get an incomplete frame. The new
        // source delivers these frames first.
        let mut held = self.take_received();
        let begun = self.partial_in_source();
        self.edit_rx(|rx| {
            under_all(rx, |rx, inlet| {
                let (mut rx, passed) = wrap::strip(rx);
                held.extend(passed);
                let own_waits = inlet.as_ref().is_some_and(|inlet| inlet.own_waits());
                if begun && held.is_empty() && !own_waits {
                    held.extend(take_first(&mut rx));
                }
                if let Some(inlet) = inlet {
                    inlet.queue_waits(held.len());
                }
                let held = held.iter().map(|(bytes, hdr)| (&bytes[..], *hdr));
                wrap::hook(rx, config, held)
            })
        });
        self.fit_batch();
    }

    /// Detaches the program from the source. The program's wrapper remains until no frame waits in
    /// it.
    pub(crate) fn unhook(&mut self) {
        self.edit_rx(|rx| under_all(rx, |rx, _| wrap::unhook(rx)));
        self.hooks.hooked.take_if(|hooked| !hooked.is_on());
        // A source without the program may have no memory, so `full=drop` needs memory for the
        // frames that it drops. Without that memory the lane stops instead.
        let _ = self.set_full(self.full);
        self.fit_batch();
    }

    /// Adds the reinjection from a program of the opposite lane. Reinjected frames precede the
    /// frames of the source, except a partly sent one.
    pub(crate) fn join(&mut self, inlet: ReinjectRx, joined: Hooked, waker: Arc<EventFd>) {
        let waits = usize::from(self.partial_in_source());
        self.hooks.joined = Some((joined, waker));
        self.edit_rx(|rx| under_taps(rx, |rx| wrap::join(rx, inlet, waits)));
    }

    /// Number of frames that left the source since the last call, for a lane that has moved `moved`
    /// frames. Reinjected frames are among `moved`; frames that the lane's program dropped are not.
    pub(crate) fn taken_of_source(&self, moved: usize) -> u32 {
        let returned = self.hooks.joined.as_ref().map_or(0, |(joined, _)| joined.count_taken());
        match &self.hooks.hooked {
            Some(hooked) => hooked.count_taken(),
            None => (moved as u32).saturating_sub(returned),
        }
    }

    /// True if the program stopped after a long run of drops, so that an empty result does not mean
    /// an empty source.
    pub(crate) fn source_has_more(&self) -> bool {
        self.hooks.hooked.as_ref().is_some_and(Hooked::has_more)
    }

    /// Stops (`true`) or allows receiving frames that may have to wait in the lane or its programs.
    /// The worker stops receiving for a lane that is being detached.
    pub(crate) fn close_intake(&mut self, on: bool) {
        self.hooks.all().for_each(|hooked| hooked.close(on));
        // Frames that wait in a program or in offload emulation leave only if the source is polled.
        // The lane is not closed while such frames wait.
        let kept = self.finishing.as_ref().is_some_and(GsoProgress::has_a_frame);
        self.closed = on && !kept && !self.hooks.hold_a_frame();
        if let Some(batch) = &mut self.batch {
            batch.close(self.closed);
        }
    }

    /// Takes the reinjected frames that are not sent yet; `None` if no frame waits. The program
    /// that reinjects runs in another lane, which may stop later and still add frames.
    pub(crate) fn take_returned(&mut self) -> Option<UnsentReinjected> {
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

    /// Adds reinjected frames of a lane that has ended.
    pub(crate) fn give_returned(&mut self, returned: UnsentReinjected) {
        self.edit_rx(|rx| under_taps(rx, |rx| wrap::give_returned(rx, returned)));
    }

    /// Removes the reinjection once no frame can arrive by it any more.
    pub(crate) fn unjoin(&mut self) {
        self.edit_rx(|rx| under_taps(rx, wrap::part));
        // Drop the waker as well: otherwise the worker would watch an eventfd that is never
        // signalled.
        self.hooks.joined.take_if(|(joined, _)| !joined.is_on());
    }
}
