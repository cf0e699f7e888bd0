//! Traffic on the channels in use.

use std::time::{Duration, Instant};

use super::{Life, PATIENCE};
use crate::setups::Delivery;
use crate::{frame, number_of, receive, send};

/// Number of frames per channel in one exchange.
const EACH: u32 = 3;

/// Frames sent from one end: their destination, and their numbers by channel.
pub(super) struct Launched {
    /// Destination end; `None` if the program receives the frames.
    to: Option<usize>,
    numbers: Vec<Vec<u32>>,
}

impl Life {
    /// Asserts that frames arrive once and in order on every channel in use, in both directions.
    pub(super) fn exchange(&mut self) {
        let launched = self.launch();
        self.land(launched);
    }

    /// Sends frames on every channel in use. Sends none while an end is closed or steered, or if
    /// frames have no destination.
    pub(super) fn launch(&mut self) -> Vec<Launched> {
        let is_open = self.ends.iter().all(|end| end.open.is_some());
        let is_moving = self.ends.iter().any(|end| end.steered);
        let delivery = self.setup.delivery();
        if !is_open || is_moving || delivery == Delivery::Nowhere {
            return Vec::new();
        }
        let mut launched = Vec::new();
        for from in 0..self.ends.len() {
            let to = match delivery {
                Delivery::Itself => Some(from),
                Delivery::Other => Some(1 - from),
                Delivery::Outside | Delivery::Nowhere => None,
            };
            let channels = self.ends[from].open.as_ref().map_or(0, |open| open.channels.len());
            let numbers = (0..channels).map(|channel| self.launch_on(Some(from), channel));
            launched.push(Launched { to, numbers: numbers.collect() });
            if delivery == Delivery::Outside {
                let numbers = (0..channels).map(|channel| self.launch_on(None, channel));
                launched.push(Launched { to: Some(from), numbers: numbers.collect() });
            }
        }
        launched
    }

    /// Sends frames on one channel of an end, or of the program if `from` is `None`; returns the
    /// numbers of the frames.
    fn launch_on(&mut self, from: Option<usize>, channel: usize) -> Vec<u32> {
        let lens = [60, 200, self.setup.frame_max()];
        let numbers: Vec<u32> = (self.sent..self.sent + EACH).collect();
        self.sent += EACH;
        let frames = numbers.iter().zip(lens).map(|(number, len)| frame(*number, len));
        let frames: Vec<Vec<u8>> = frames.collect();
        let begin = Instant::now();
        let mut taken = 0;
        while taken < frames.len() {
            taken += match from {
                None => usize::from(self.setup.send_outside(channel, &frames[taken])),
                Some(end) => {
                    let open = self.ends[end].open.as_mut().expect("it is open");
                    send(&mut open.channels[channel].tx, &frames[taken..])
                }
            };
            if begin.elapsed() > PATIENCE {
                self.fail(&format!("{from:?}, channel {channel}: full"));
            }
            if taken < frames.len() {
                self.turn();
            }
        }
        numbers
    }

    /// Receives all launched frames and asserts that each arrives once.
    pub(super) fn land(&mut self, launched: Vec<Launched>) {
        for Launched { to, numbers } in launched {
            let begin = Instant::now();
            let mut missing: Vec<u32> = numbers.iter().flatten().copied().collect();
            let mut came: Vec<Vec<u32>> = Vec::new();
            while !missing.is_empty() {
                for (channel, number) in self.take(to) {
                    if !self.arrived.insert(number) {
                        self.fail(&format!("frame {number} came twice"));
                    }
                    missing.retain(|other| *other != number);
                    came.resize_with(came.len().max(channel + 1), Vec::new);
                    came[channel].push(number);
                }
                if begin.elapsed() > PATIENCE {
                    self.fail(&format!("frames {missing:?} to {to:?} are lost: {came:?}"));
                }
                if !missing.is_empty() {
                    self.turn();
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            for of_one in &numbers {
                for at in &came {
                    let order: Vec<&u32> = at.iter().filter(|n| of_one.contains(n)).collect();
                    if !order.is_sorted() {
                        self.fail(&format!("out of order: {order:?}"));
                    }
                }
            }
        }
    }

    /// Receives all ready test frames at an end, or at the program if `to` is `None`; returns
    /// (channel, number) of each.
    fn take(&mut self, to: Option<usize>) -> Vec<(usize, u32)> {
        let room = self.setup.frame_max() as u32 + 100;
        let frames = match to {
            None => self.setup.take_outside(),
            Some(end) => {
                let open = self.ends[end].open.as_mut().expect("it is open");
                let mut frames = Vec::new();
                for (number, channel) in open.channels.iter_mut().enumerate() {
                    let got = receive(&mut channel.rx, room, 64, 0);
                    frames.extend(got.into_iter().map(|bytes| (number, bytes)));
                }
                frames
            }
        };
        let number = |(channel, bytes): (usize, Vec<u8>)| Some((channel, number_of(&bytes)?));
        frames.into_iter().filter_map(number).collect()
    }
}
