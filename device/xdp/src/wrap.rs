//! A program around an RX queue, and XDP_TX reinjection.
//!
//! Frames are copied once into pages with headroom (XDP copy mode): the program may modify them,
//! and a peer must not change bytes after the program has checked them. A queue that moves frames
//! by system calls receives directly into these pages. The pages are private memory of one owner,
//! not of the page pool. They never leave this crate and are borrowed as slices, so no unsafe code
//! is needed.

mod hook;
mod inlet;
mod prepare;
mod reinject;

use std::any::Any;

use mqnet_netdev::Rx;
use mqnet_netdev::wrap::capture::CaptureTap;
use mqnet_wire::VnetHdr;

use hook::{Hook, OverBorrows, OverBrings};
pub use hook::{HookConfig, Hooked, Pages};
pub use reinject::{Bell, InletConfig, Outlet, Return, Returned, way};

/// Attaches a program to an RX queue. `held`: frames that were received before and are returned
/// first.
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
        Rx::Brings(inner) => Rx::Brings(Box::new(OverBrings::new(inner, hook))),
        Rx::Borrows(inner) => Rx::Brings(Box::new(OverBorrows::new(inner, hook))),
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

/// Hook of this queue.
fn hook_of(rx: &mut Rx) -> Option<&mut Hook> {
    let Rx::Brings(q) = rx else { return None };
    let any: &mut dyn Any = &mut **q;
    if any.is::<OverBrings>() {
        return Some(&mut any.downcast_mut::<OverBrings>()?.hook);
    }
    Some(&mut any.downcast_mut::<OverBorrows>()?.hook)
}

fn unhook_if_left(mut rx: Rx) -> Rx {
    let is_finished = hook_of(&mut rx).is_some_and(|hook| hook.is_finished());
    let Rx::Brings(q) = rx else { return rx };
    if !is_finished {
        return Rx::Brings(q);
    }
    let any: Box<dyn Any> = q;
    match any.downcast::<OverBrings>() {
        Ok(over) => Rx::Brings(over.inner),
        Err(any) => match any.downcast::<OverBorrows>() {
            Ok(over) => Rx::Borrows(over.inner),
            Err(_) => unreachable!("asked before"),
        },
    }
}

/// Removes the wrapper of a detached program, and returns the frames that the program had passed.
pub fn strip(mut rx: Rx) -> (Rx, Vec<(Vec<u8>, VnetHdr)>) {
    let passed = hook_of(&mut rx).map(Hook::take_passed).unwrap_or_default();
    (unhook_if_left(rx), passed)
}

/// Attaches a receiving end to an RX queue of the other side, which returns reinjected frames
/// before its own. Frames of an earlier receiving end come first. `waits`: frames of the queue that
/// were peeked and not released, which are not overtaken.
pub fn join(rx: Rx, mut inlet: Return, waits: usize) -> Rx {
    let (rx, left) = lift(rx);
    match left {
        Some(left) => inlet.replace(left),
        None => inlet.queue_waits(waits),
    }
    put_back(rx, inlet)
}

/// Attaches a [lifted](lift) receiving end again.
pub fn put_back(rx: Rx, inlet: Return) -> Rx {
    match rx {
        Rx::Brings(inner) => Rx::Brings(Box::new(inlet::Brings { inner, inlet })),
        Rx::Borrows(inner) => Rx::Borrows(Box::new(inlet::Borrows { inner, inlet })),
    }
}

/// Detaches the receiving end of an RX queue, if its sending end is dropped and it is empty.
pub fn part(rx: Rx) -> Rx {
    match rx {
        Rx::Brings(mut q) => {
            let any: &mut dyn Any = &mut *q;
            let done = any.downcast_mut::<inlet::Brings>().is_some_and(|q| q.inlet.is_finished());
            if !done {
                return Rx::Brings(q);
            }
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::Brings>() {
                Ok(q) => Rx::Brings(q.inner),
                Err(_) => unreachable!("asked before"),
            }
        }
        Rx::Borrows(mut q) => {
            let any: &mut dyn Any = &mut *q;
            let done = any.downcast_mut::<inlet::Borrows>().is_some_and(|q| q.inlet.is_finished());
            if !done {
                return Rx::Borrows(q);
            }
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::Borrows>() {
                Ok(q) => Rx::Borrows(q.inner),
                Err(_) => unreachable!("asked before"),
            }
        }
    }
}

/// Detaches the receiving end temporarily, in any state, to change the queue below.
pub fn lift(rx: Rx) -> (Rx, Option<Return>) {
    match rx {
        Rx::Brings(q) if (&*q as &dyn Any).is::<inlet::Brings>() => {
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::Brings>() {
                Ok(q) => (Rx::Brings(q.inner), Some(q.inlet)),
                Err(_) => unreachable!("asked before"),
            }
        }
        Rx::Borrows(q) if (&*q as &dyn Any).is::<inlet::Borrows>() => {
            let any: Box<dyn Any> = q;
            match any.downcast::<inlet::Borrows>() {
                Ok(q) => (Rx::Borrows(q.inner), Some(q.inlet)),
                Err(_) => unreachable!("asked before"),
            }
        }
        rx => (rx, None),
    }
}

/// Removes the reinjected frames that are not sent yet; `None` without a receiving end.
pub fn take_returned(rx: Rx) -> (Rx, Option<Returned>) {
    let (rx, inlet) = lift(rx);
    match inlet {
        Some(mut inlet) => {
            let returned = inlet.drain_unsent();
            (put_back(rx, inlet), Some(returned))
        }
        None => (rx, None),
    }
}

/// Queues frames of another lane first. Without a receiving end they are dropped and counted.
pub fn give_returned(rx: Rx, returned: Returned) -> Rx {
    let (rx, inlet) = lift(rx);
    match inlet {
        Some(mut inlet) => {
            inlet.adopt(returned);
            put_back(rx, inlet)
        }
        None => rx,
    }
}

/// Taps on the drops of the program around this queue.
fn watchers(rx: &mut Rx) -> Option<&mut Vec<CaptureTap>> {
    let Rx::Brings(q) = rx else { return None };
    let mut any: &mut dyn Any = &mut **q;
    if any.is::<inlet::Brings>() {
        any = &mut *any.downcast_mut::<inlet::Brings>()?.inner;
    }
    if any.is::<OverBrings>() {
        return Some(&mut any.downcast_mut::<OverBrings>()?.hook.watchers);
    }
    Some(&mut any.downcast_mut::<OverBorrows>()?.hook.watchers)
}

/// Adds a tap on the drops of the program around this queue; returns it if there is no program.
pub fn watch(rx: &mut Rx, tap: CaptureTap) -> Option<CaptureTap> {
    match watchers(rx) {
        Some(list) => {
            list.push(tap);
            None
        }
        None => Some(tap),
    }
}

/// Removes the taps of [`watch`].
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
