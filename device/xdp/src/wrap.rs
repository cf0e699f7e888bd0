//! Programs attached to RX queues, and XDP_TX reinjection.
//!
//! Frames are copied once into pages with headroom (XDP copy mode): the program may modify frames,
//! and a peer must not modify bytes that the program has checked. A system-call queue receives
//! directly into these pages. The pages are private memory with one owner, not pages of the page
//! pool. They never leave this crate and are borrowed as slices, so that no unsafe code is needed.

mod hook;
mod inlet;
mod prepare;
mod reinject;

use std::any::Any;

use mqnet_netdev::Rx;
use mqnet_netdev::wrap::capture::CaptureTap;
use mqnet_wire::VnetHdr;

use hook::{Hook, OwningHook, SyscallHook};
pub use hook::{HookConfig, Hooked, Pages};
pub use reinject::{ReinjectConfig, ReinjectRx, ReinjectTx, ReinjectWaker, UnsentReinjected, way};

/// Attaches a program to an RX queue. The frames in `held` were received before the program was
/// attached; they are returned first and bypass the program.
pub fn hook<'a>(
    rx: Rx,
    config: HookConfig,
    held: impl IntoIterator<Item = (&'a [u8], VnetHdr)>,
) -> Rx {
    let mut hook = hook::Hook::new(config);
    for (bytes, hdr) in held {
        hook.add_held(bytes, hdr);
    }
    match rx {
        Rx::Owning(inner) => Rx::Owning(Box::new(OwningHook::new(inner, hook))),
        Rx::Syscall(inner) => Rx::Owning(Box::new(SyscallHook::new(inner, hook))),
    }
}

/// Detaches the program from an RX queue. The wrapper stays until the frames that the program
/// passed are released.
pub fn unhook(mut rx: Rx) -> Rx {
    if let Some(hook) = hook_of(&mut rx) {
        hook.detach();
    }
    unhook_if_left(rx)
}

/// Hook of an RX queue, if it is the outermost wrapper.
fn hook_of(rx: &mut Rx) -> Option<&mut Hook> {
    let Rx::Owning(q) = rx else { return None };
    let any: &mut dyn Any = &mut **q;
    if any.is::<OwningHook>() {
        return Some(&mut any.downcast_mut::<OwningHook>()?.hook);
    }
    Some(&mut any.downcast_mut::<SyscallHook>()?.hook)
}

fn unhook_if_left(mut rx: Rx) -> Rx {
    let is_finished = hook_of(&mut rx).is_some_and(|hook| hook.is_finished());
    let Rx::Owning(q) = rx else { return rx };
    if !is_finished {
        return Rx::Owning(q);
    }
    let any: Box<dyn Any> = q;
    match any.downcast::<OwningHook>() {
        Ok(over) => Rx::Owning(over.inner),
        Err(any) => match any.downcast::<SyscallHook>() {
            Ok(over) => Rx::Syscall(over.inner),
            Err(_) => unreachable!("checked before"),
        },
    }
}

/// Removes the wrapper of a detached program. Returns the frames that the program had passed. A
/// program that is not detached stays, and no frames are returned.
pub fn strip(mut rx: Rx) -> (Rx, Vec<(Vec<u8>, VnetHdr)>) {
    let passed = hook_of(&mut rx).map(Hook::take_passed).unwrap_or_default();
    (unhook_if_left(rx), passed)
}

/// Attaches a receiving end to the RX queue of the opposite lane. The queue then returns reinjected
/// frames before its other frames; those of an earlier receiving end come first. `waits`, used only
/// without an earlier end, is the number of frames of the queue that were peeked and not released.
/// These frames precede all reinjected frames.
pub fn join(rx: Rx, mut inlet: ReinjectRx, waits: usize) -> Rx {
    let (rx, left) = lift(rx);
    match left {
        Some(left) => inlet.replace(left),
        None => inlet.queue_waits(waits),
    }
    put_back(rx, inlet)
}

/// Attaches a [lifted](lift) receiving end again, or a new one.
pub fn put_back(rx: Rx, inlet: ReinjectRx) -> Rx {
    match rx {
        Rx::Owning(inner) => Rx::Owning(Box::new(inlet::OwningQueue { inner, inlet })),
        Rx::Syscall(inner) => Rx::Syscall(Box::new(inlet::SyscallQueue { inner, inlet })),
    }
}

/// Removes the receiving end of an RX queue if its sending end was dropped and no frame waits.
pub fn part(rx: Rx) -> Rx {
    match rx {
        Rx::Owning(mut q) => {
            let any: &mut dyn Any = &mut *q;
            let done =
                any.downcast_mut::<inlet::OwningQueue>().is_some_and(|q| q.inlet.is_finished());
            if !done {
                return Rx::Owning(q);
            }
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::OwningQueue>() {
                Ok(q) => Rx::Owning(q.inner),
                Err(_) => unreachable!("checked before"),
            }
        }
        Rx::Syscall(mut q) => {
            let any: &mut dyn Any = &mut *q;
            let done =
                any.downcast_mut::<inlet::SyscallQueue>().is_some_and(|q| q.inlet.is_finished());
            if !done {
                return Rx::Syscall(q);
            }
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::SyscallQueue>() {
                Ok(q) => Rx::Syscall(q.inner),
                Err(_) => unreachable!("checked before"),
            }
        }
    }
}

/// Removes the receiving end in any state, so that the inner queue can be changed. Returns the end,
/// if there is one.
pub fn lift(rx: Rx) -> (Rx, Option<ReinjectRx>) {
    match rx {
        Rx::Owning(q) if (&*q as &dyn Any).is::<inlet::OwningQueue>() => {
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::OwningQueue>() {
                Ok(q) => (Rx::Owning(q.inner), Some(q.inlet)),
                Err(_) => unreachable!("checked before"),
            }
        }
        Rx::Syscall(q) if (&*q as &dyn Any).is::<inlet::SyscallQueue>() => {
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::SyscallQueue>() {
                Ok(q) => (Rx::Syscall(q.inner), Some(q.inlet)),
                Err(_) => unreachable!("checked before"),
            }
        }
        rx => (rx, None),
    }
}

/// Removes and returns the reinjected frames that are not sent; `None` if there is no receiving
/// end.
pub fn take_returned(rx: Rx) -> (Rx, Option<UnsentReinjected>) {
    let (rx, inlet) = lift(rx);
    match inlet {
        Some(mut inlet) => {
            let returned = inlet.drain_unsent();
            (put_back(rx, inlet), Some(returned))
        }
        None => (rx, None),
    }
}

/// Queues the reinjected frames of another lane before the reinjected frames of this queue. Without
/// a receiving end they are dropped and counted.
pub fn give_returned(rx: Rx, returned: UnsentReinjected) -> Rx {
    let (rx, inlet) = lift(rx);
    match inlet {
        Some(mut inlet) => {
            inlet.adopt(returned);
            put_back(rx, inlet)
        }
        None => rx,
    }
}

/// Taps on the drops of the program of an RX queue; `None` if there is no program.
fn watchers(rx: &mut Rx) -> Option<&mut Vec<CaptureTap>> {
    let Rx::Owning(q) = rx else { return None };
    let mut any: &mut dyn Any = &mut **q;
    if any.is::<inlet::OwningQueue>() {
        any = &mut *any.downcast_mut::<inlet::OwningQueue>()?.inner;
    }
    if any.is::<OwningHook>() {
        return Some(&mut any.downcast_mut::<OwningHook>()?.hook.watchers);
    }
    Some(&mut any.downcast_mut::<SyscallHook>()?.hook.watchers)
}

/// Adds a tap on the drops of the program of an RX queue. Returns the tap if there is no program.
pub fn watch(rx: &mut Rx, tap: CaptureTap) -> Option<CaptureTap> {
    match watchers(rx) {
        Some(list) => {
            list.push(tap);
            None
        }
        None => Some(tap),
    }
}

/// Removes and returns the taps of [`watch`].
pub fn take_watchers(rx: &mut Rx) -> Vec<CaptureTap> {
    watchers(rx).map(std::mem::take).unwrap_or_default()
}

/// A frame in a private page.
#[derive(Debug)]
pub(crate) struct OwnedFrame {
    page: Box<[u8]>,
    start: u32,
    len: u32,
    hdr: mqnet_wire::VnetHdr,
}

impl OwnedFrame {
    fn bytes(&self) -> &[u8] {
        &self.page[self.start as usize..][..self.len as usize]
    }
}
