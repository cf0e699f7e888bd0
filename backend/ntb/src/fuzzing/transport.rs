//! Fuzz target: scratchpads, slots and credits of a peer that claims to be an `ntb_transport`.

use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use mqnet_netdev::fuzzing::{Input, receive};
use mqnet_netdev::limits::FRAME_MAX;
use mqnet_netdev::{Burst, Caps, Channel, Fault, Function, LinkStatus, Offloads, Plan, Rx, Tx};
use mqnet_shmem::{AtomicTable, Span};
use mqnet_wire::{Layer, VnetHdr};

use super::board::{Board, Port};
use crate::NtbFunction;
use crate::transport::geometry::WindowPart;
use crate::transport::handshake::{pad, writes};

const SIZE: u32 = 64 << 10;
pub(super) const MTU: u32 = 2048;

/// Function under test, used like the engine uses it.
pub(super) struct Victim {
    function: NtbFunction,
    pub(super) channels: Vec<Channel>,
    now: Duration,
    frame_max: u32,
}

fn partner() -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: 3,
        wanted: None,
        mtu: None,
        mtu_found: None,
        mtu_max: 1500,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::ALL,
        tx_offloads: Offloads::ALL,
        rx_fixed: Offloads::NONE,
    }
}

impl Victim {
    pub(super) fn new(function: NtbFunction) -> Self {
        let now = Duration::from_secs(1);
        Self { function, channels: Vec::new(), now, frame_max: 0 }
    }

    pub(super) fn take_down(&mut self) {
        self.channels.clear();
        self.function.close("a fault");
    }

    /// One poll of the control thread, with the engine's reaction: closes, opens or changes the
    /// channels.
    pub(super) fn poll(&mut self, milliseconds: u8) {
        self.now += Duration::from_millis(milliseconds.into());
        match self.function.poll_link(self.now) {
            LinkStatus::Down(why) => {
                assert!(!why.is_empty() && !why.contains(char::is_control));
                self.take_down();
            }
            LinkStatus::Up { .. } => {
                let Ok(plan) = Plan::join(&self.function.caps(), &partner()) else { return };
                if usize::from(plan.channels) == self.channels.len() {
                    return;
                }
                let is_first = self.channels.is_empty();
                let opened = match is_first {
                    true => self.function.open(&plan),
                    false => self.function.prepare(&plan),
                };
                let Ok(channels) = opened else { return self.take_down() };
                for channel in &mut self.channels {
                    channel.rx.queue().park();
                    channel.tx.queue().park();
                }
                (self.channels, self.frame_max) = (channels, plan.frame_max);
                if !is_first {
                    assert!(self.function.commit().is_ok());
                }
            }
        }
    }

    pub(super) fn work(&mut self, step: u8) -> Result<(), Fault> {
        let count = self.channels.len().max(1);
        let Some(channel) = self.channels.get_mut(usize::from(step >> 5) % count) else {
            return Ok(());
        };
        match step % 4 {
            0 => {
                if let Rx::Owning(rx) = &mut channel.rx {
                    receive(&mut **rx, 1..=self.frame_max, usize::from(step >> 4))?;
                }
            }
            1 => {
                if let Tx::Owning(tx) = &mut channel.tx {
                    let bytes = [7; 300];
                    let mut burst = Burst::new();
                    for _ in 0..=step >> 4 {
                        burst.push(VnetHdr::default(), 300, Span::of(&bytes));
                    }
                    tx.submit(&burst, 0)?;
                    tx.flush()?;
                    tx.is_drained()?;
                }
            }
            2 => drop(channel.rx.queue().arm(0)?),
            _ => drop(channel.tx.queue().arm(1522)?),
        }
        Ok(())
    }
}

/// Writes input bytes into a slot's header: low bytes of the packet number, low two bytes of the
/// length, and the flags.
pub(super) fn write_header(input: &mut Input<'_>, part: &WindowPart, words: &AtomicTable) {
    let at = part.header_at(u32::from(input.u8()) % part.slots);
    let header = [input.u8(), input.u8(), input.u8(), input.u8()];
    for (offset, byte) in [0, 4, 5, 8].into_iter().zip(header) {
        words.byte(at + offset).store(byte, Release);
    }
}

/// Runs the input. Panics if the link is down without a reason, or a frame breaks the contract of
/// `OwningRx`.
pub fn transport(data: &[u8]) {
    let mut input = Input(data);
    let first = input.u8();
    let (windows, pairs) = (1 + usize::from(first % 2), 1 + u16::from(first >> 1) % 4);
    let board = Board::new(windows, SIZE);
    let function = NtbFunction::with_hw("ntb:".to_owned(), Box::new(Port(board.clone())), None, 1);
    let mut victim = Victim::new(function.with_transport_mtu(MTU));
    let sizes = vec![SIZE; windows];
    let words =
        |window: usize| AtomicTable::new(board.inbound[window].clone(), Board::place(0), SIZE);
    let greet = || {
        for (at, value) in writes(pairs, &sizes).filter(|(at, _)| *at != pad::QP_LINKS) {
            board.spads[0][at].store(value, Release);
        }
    };
    board.link_up();
    if first < 0x80 {
        // Act as a correct peer until the queue pairs are open.
        greet();
        victim.poll(10);
        (0..windows).for_each(|window| drop(board.map(window, &[4096, 61440])));
        for _ in 0..3 {
            victim.poll(10);
            board.spads[0][pad::QP_LINKS].store((1 << pairs) - 1, Release);
        }
        victim.poll(10);
        assert!(!victim.channels.is_empty());
    }
    for _ in 0..300 {
        let step = input.u8();
        let part = WindowPart::of(&sizes, pairs, u16::from(step >> 4) % pairs, MTU);
        let place = part.and_then(|part| Some((part, words(part.window.into())?)));
        match step % 16 {
            0 => board.spads[0][usize::from(input.u8()) % 16].store(input.u64() as u32, Release),
            1 => greet(),
            2 => {
                let lens: &[u64] = if step & 16 == 0 { &[SIZE as u64] } else { &[4096, 61440] };
                board.map(usize::from(step >> 5) % windows, lens);
            }
            3 | 4 => board.spads[0][pad::QP_LINKS].store((step >> 4).into(), Release),
            5 | 6 => {
                let Some((part, words)) = place else { continue };
                write_header(&mut input, &part, &words);
            }
            7 => {
                let Some((part, words)) = place else { continue };
                words.byte(part.credit_at()).store(input.u8(), Release);
                words.byte(part.credit_at() + 2).store(input.u8() / 255, Release);
            }
            8 => board.link_up(),
            9 | 10 => victim.poll(step >> 4),
            11 => victim.poll(step),
            _ => {
                if victim.work(input.u8()).is_err() {
                    victim.take_down();
                }
            }
        }
        if input.0.is_empty() {
            return;
        }
    }
}
