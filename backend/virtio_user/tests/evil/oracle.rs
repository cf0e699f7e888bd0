//! Random traffic and random reads, compared with a list of expected frames.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqnet_netdev::{Burst, Channel, DetachedFrame, Function, OwningRx, Rx, RxBuffers};
use mqnet_virtio_user::VirtioUserFunction;
use proptest::prelude::*;

use super::device::{CORRECT, Device, IN_ORDER, Vring};
use super::{plan, world_of};

#[derive(Clone, Debug)]
enum Act {
    /// Sends up to this number of frames; those at the listed positions are invalid.
    Send(usize, Vec<usize>),
    /// Peeks with this budget.
    Peek(usize),
    /// Releases up to this number of peeked frames.
    Release(usize),
    /// Detaches up to this number of frames with their memory.
    Keep(usize),
    /// Returns up to this number of detached frames.
    GiveBack(usize),
    /// Closes and reopens the link.
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..80usize, prop::collection::vec(0..80usize, 0..6))
            .prop_map(|(frames, bad)| Act::Send(frames, bad)),
        4 => (1..=64usize).prop_map(Act::Peek),
        4 => (1..=64usize).prop_map(Act::Release),
        1 => (1..40usize).prop_map(Act::Keep),
        1 => (1..80usize).prop_map(Act::GiveBack),
        1 => Just(Act::Reopen),
    ]
}

/// Device, driver, and the list of expected frames.
struct World {
    _device: Device,
    function: VirtioUserFunction,
    channel: Option<Channel>,
    vring: Vring,
    /// Fill byte of each valid frame that was neither released nor detached.
    coming: VecDeque<u8>,
    number: u8,
    /// Number of peeked frames that are neither released nor detached.
    shown: usize,
    kept: Vec<(DetachedFrame, u8)>,
    sent: u64,
}

const LEN: usize = 64;

fn reader(channel: &mut Option<Channel>) -> &mut dyn OwningRx {
    match channel.as_mut().map(|channel| &mut channel.rx) {
        Some(Rx::Owning(rx)) => &mut **rx,
        _ => panic!("virtio owns its memory"),
    }
}

impl World {
    fn new(in_order: bool) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let behaviour = if in_order { IN_ORDER } else { CORRECT };
        let (device, function, channel) = world_of(&format!("oracle{number}"), behaviour);
        let vring = device.vring(0);
        let (channel, coming, kept) = (Some(channel), VecDeque::new(), Vec::new());
        let (number, shown, sent) = (0, 0, 0);
        Self { _device: device, function, channel, vring, coming, number, shown, kept, sent }
    }

    fn send(&mut self, frames: usize, bad: &[usize]) {
        for at in 0..frames {
            let Some((id, address, _)) = self.vring.take() else { return };
            let is_bad = bad.contains(&at);
            self.number = self.number.wrapping_add(1);
            let mut bytes = vec![self.number; 12 + if is_bad { 13 } else { LEN }];
            bytes[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
            self.vring.write(address, &bytes);
            self.vring.give(id.into(), bytes.len() as u32);
            if !is_bad {
                self.coming.push_back(self.number);
            }
            self.sent += 1;
        }
    }

    fn peek(&mut self, budget: usize) {
        let mut burst = Burst::new();
        reader(&mut self.channel).peek(&mut burst, budget).unwrap();
        for (frame, number) in burst.frames().iter().zip(&self.coming) {
            assert_eq!(frame.len as usize, LEN);
            assert_eq!(frame.head.header::<LEN>(), Some([*number; LEN]));
        }
        assert!(burst.frames().len() <= self.coming.len());
        self.shown = self.shown.max(burst.frames().len());
    }

    fn release(&mut self, frames: usize) {
        let frames = frames.min(self.shown);
        reader(&mut self.channel).release(frames).unwrap();
        self.coming.drain(..frames);
        self.shown -= frames;
    }

    fn keep(&mut self, frames: usize) {
        for _ in 0..frames.min(self.shown) {
            let frame =
                reader(&mut self.channel).detach().unwrap().expect("a frame that was shown");
            self.kept.push((frame, self.coming.pop_front().unwrap()));
            self.shown -= 1;
        }
    }

    /// Checks that detached frames are unchanged, and returns them.
    fn give_back(&mut self, frames: usize) {
        let mut returner = reader(&mut self.channel).returner().unwrap();
        for (frame, number) in self.kept.drain(..frames.min(self.kept.len())) {
            assert_eq!(frame.head.span(&returner).header::<LEN>(), Some([number; LEN]));
            frame.free(&mut returner);
        }
        returner.flush();
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Send(frames, bad) => self.send(*frames, bad),
            Act::Peek(budget) => self.peek(*budget),
            Act::Release(frames) => self.release(*frames),
            Act::Keep(frames) => self.keep(*frames),
            Act::GiveBack(frames) => self.give_back(*frames),
            Act::Reopen => {
                self.channel = None;
                self.function.close("the other end went");
                self.channel = Some(self.function.open(&plan(1)).unwrap().remove(0));
            }
        }
    }

    fn drain(&mut self) {
        // A full ring of invalid frames may precede each frame.
        let mut polls = 0;
        while !self.coming.is_empty() {
            self.peek(64);
            self.release(64);
            polls += 1;
            assert!(polls < 1000, "{} frames do not come", self.coming.len());
        }
    }

    /// Receives and returns all frames, then repeats this with new frames, and checks that no
    /// memory is lost.
    fn end(mut self) {
        for _ in 0..20 {
            self.drain();
            self.give_back(usize::MAX);
            self.send(60, &[]);
        }
        self.drain();
        let stats = &self.function.stats()[0].rx;
        assert_eq!(stats.packets.get(), self.sent);
        let pages = self.function.rx_memory()[0].buffers.pages;
        assert!(pages <= 512, "{pages} pages are in use: memory was lost");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Goal: for any sequence of peeks, releases, detached and invalid frames, each valid frame
    // arrives once, complete and in order. Detached frames are unchanged, and no memory is lost.
    #[test]
    fn valid_frames_arrive_once_and_complete(
        in_order in any::<bool>(),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let mut world = World::new(in_order);
        acts.iter().for_each(|act| world.act(act));
        world.end();
    }
}

// Goal: each valid frame arrives once with an invalid frame behind unreleased ones: after a
// partial release, after a detach, and after the link was reopened.
#[test]
fn invalid_frame_behind_waiting_frames() {
    use Act::{Keep, Peek, Release, Reopen, Send};
    for acts in [
        vec![Send(64, vec![40]), Peek(64), Release(35), Peek(64)],
        vec![Send(64, vec![40]), Peek(64), Keep(33), Peek(64)],
        vec![Send(2, vec![1]), Peek(64), Reopen, Peek(64)],
    ] {
        for in_order in [false, true] {
            let mut world = World::new(in_order);
            acts.iter().for_each(|act| world.act(act));
            world.end();
        }
    }
}
