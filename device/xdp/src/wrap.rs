//! A program around an RX queue, and the way back for what it sends.
//!
//! Frames are copied once, into pages with headroom (what XDP calls copy mode): a program may write
//! them, and what a peer can write must not change after the program has looked. A queue that moves
//! its frames by a system call receives into these pages, without a further copy. The pages are
//! plain memory of one owner, not of the page pool: no handle of theirs leaves this crate, and they
//! are borrowed as slices, so that nothing here is unsafe.

mod hook;
mod inlet;
mod prepare;
mod way;

use std::any::Any;

use mqnet_netdev::Rx;
use mqnet_netdev::wrap::capture::CaptureTap;
use mqnet_wire::VnetHdr;

use hook::{Hook, OverBorrows, OverBrings};
pub use hook::{HookConfig, Hooked, Pages};
pub use way::{Bell, InletConfig, Outlet, Return, Returned, way};

/// Puts a program around an RX queue. `held`: frames that were received before and come first.
pub fn hook<'a>(
    rx: Rx,
    config: HookConfig,
    held: impl IntoIterator<Item = (&'a [u8], VnetHdr)>,
) -> Rx {
    let mut hook = hook::Hook::new(config);
    for (bytes, hdr) in held {
        hook.keep(bytes, hdr);
    }
    match rx {
        Rx::Brings(inner) => Rx::Brings(Box::new(OverBrings::new(inner, hook))),
        Rx::Borrows(inner) => Rx::Brings(Box::new(OverBorrows::new(inner, hook))),
    }
}

/// Takes the program off an RX queue; what it has passed on stays in front of the queue, in what
/// is left of the wrapper, until it has been taken.
pub fn unhook(mut rx: Rx) -> Rx {
    if let Some(hook) = hook_of(&mut rx) {
        hook.leave();
    }
    unhook_if_left(rx)
}

/// What is around this queue.
fn hook_of(rx: &mut Rx) -> Option<&mut Hook> {
    let Rx::Brings(q) = rx else { return None };
    let any: &mut dyn Any = &mut **q;
    if any.is::<OverBrings>() {
        return Some(&mut any.downcast_mut::<OverBrings>()?.hook);
    }
    Some(&mut any.downcast_mut::<OverBorrows>()?.hook)
}

fn unhook_if_left(mut rx: Rx) -> Rx {
    let is_over = hook_of(&mut rx).is_some_and(|hook| hook.is_over());
    let Rx::Brings(q) = rx else { return rx };
    if !is_over {
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

/// Takes off what is left of a program that has gone, and the frames that it had let pass.
pub fn strip(mut rx: Rx) -> (Rx, Vec<(Vec<u8>, VnetHdr)>) {
    let passed = hook_of(&mut rx).map(Hook::take_passed).unwrap_or_default();
    (unhook_if_left(rx), passed)
}

/// Lets what a program sends back come first out of this RX queue, which is of the other side. What
/// is left of a way back that was there goes first. `waits`: frames of the queue that were shown
/// and not taken, which are not overtaken.
pub fn join(rx: Rx, mut inlet: Return, waits: usize) -> Rx {
    let (rx, left) = lift(rx);
    match left {
        Some(left) => inlet.succeed(left),
        None => inlet.queue_waits(waits),
    }
    put_back(rx, inlet)
}

/// Puts a way back on that was [lifted](lift).
pub fn put_back(rx: Rx, inlet: Return) -> Rx {
    match rx {
        Rx::Brings(inner) => Rx::Brings(Box::new(inlet::Brings { inner, inlet })),
        Rx::Borrows(inner) => Rx::Borrows(Box::new(inlet::Borrows { inner, inlet })),
    }
}

/// Takes the way back off an RX queue, if nobody sends by it any more and it is empty.
pub fn part(rx: Rx) -> Rx {
    match rx {
        Rx::Brings(mut q) => {
            let any: &mut dyn Any = &mut *q;
            let done = any.downcast_mut::<inlet::Brings>().is_some_and(|q| q.inlet.is_over());
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
            let done = any.downcast_mut::<inlet::Borrows>().is_some_and(|q| q.inlet.is_over());
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

/// Takes the way back off for a moment, whatever its state: what is under it can be changed.
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

/// Takes out what a program sent back and nobody has sent yet; `None`: there is no such way.
pub fn take_returned(rx: Rx) -> (Rx, Option<Returned>) {
    let (rx, inlet) = lift(rx);
    match inlet {
        Some(mut inlet) => {
            let returned = inlet.take_all();
            (put_back(rx, inlet), Some(returned))
        }
        None => (rx, None),
    }
}

/// Sends first what was taken out elsewhere. Without a way back it is dropped, and counted.
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

/// What watches the drops of the program around this queue.
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

/// Shows a tap what the program around this queue drops; gives it back when there is none.
pub fn watch(rx: &mut Rx, tap: CaptureTap) -> Option<CaptureTap> {
    match watchers(rx) {
        Some(list) => {
            list.push(tap);
            None
        }
        None => Some(tap),
    }
}

/// Takes the taps of [`watch`] off.
pub fn take_watchers(rx: &mut Rx) -> Vec<CaptureTap> {
    watchers(rx).map(std::mem::take).unwrap_or_default()
}

/// A frame in a page of ours.
#[derive(Debug)]
pub(crate) struct Parcel {
    page: Box<[u8]>,
    start: u32,
    len: u32,
    hdr: mqnet_wire::VnetHdr,
}

impl Parcel {
    fn bytes(&self) -> &[u8] {
        &self.page[self.start as usize..][..self.len as usize]
    }
}
