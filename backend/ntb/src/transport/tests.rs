//! Tests of the function with a test double of the kernel's end, over hardware in memory.

mod hostile;
mod kernel;
mod life;
mod random;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{BURST_FRAMES, FRAME_MAX};
use mqnet_netdev::{Burst, Caps, Channel, Fault, Function, LinkStatus, Offloads, Plan, Rx, Tx};
use mqnet_shmem::Span;
use mqnet_wire::{Layer, VnetHdr};

use crate::NtbFunction;
use crate::fuzzing::board::{Board, Port};
use kernel::{Cuts, Kernel};

/// Both ends, and the channels that the engine has.
struct World {
    board: Arc<Board>,
    function: NtbFunction,
    kernel: Kernel,
    now: Duration,
    channels: Vec<Channel>,
    /// Capabilities of the netdev that mqnet links with the function.
    partner: Caps,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    windows: usize,
    size: u32,
    pairs: usize,
    mtu: u32,
    cuts: Cuts,
}

impl Default for Shape {
    fn default() -> Self {
        Self { windows: 1, size: 2 << 20, pairs: 4, mtu: 0x1_0000, cuts: Cuts::None }
    }
}

/// Received frames, or the fault that ended the reception.
type Received = Result<Vec<Vec<u8>>, Fault>;

impl World {
    fn new(shape: Shape) -> Self {
        let Shape { windows, size, pairs, mtu, cuts } = shape;
        let board = Board::new(windows, size);
        let function =
            NtbFunction::with_hw("ntb:test".into(), Box::new(Port(board.clone())), None, 1);
        let function = function.with_transport_mtu(mtu);
        let kernel = Kernel::new(board.clone(), pairs, mtu.into(), cuts);
        let partner = Caps {
            layer: Layer::Ethernet,
            channels: 64,
            wanted: None,
            mtu: None,
            mtu_found: None,
            mtu_max: 65_521,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        };
        let now = Duration::from_secs(1);
        Self { board, function, kernel, now, channels: Vec::new(), partner }
    }

    /// Link with `open` open pairs and as many channels.
    fn up(shape: Shape, open: usize) -> Self {
        let mut world = Self::new(shape);
        world.board.link_up();
        world.kernel.open(0..open);
        world.settle(open);
        world
    }

    /// Advances both ends by 10 ms: the kernel's periodic work, then a poll of the function.
    fn step(&mut self) -> LinkStatus {
        self.kernel.tick();
        self.poll()
    }

    fn poll(&mut self) -> LinkStatus {
        self.poll_after(10)
    }

    fn poll_after(&mut self, milliseconds: u64) -> LinkStatus {
        self.now += Duration::from_millis(milliseconds);
        self.function.poll_link(self.now)
    }

    /// [`step`](Self::step) and [`follow`](Self::follow), with polls of this end between the
    /// kernel's reads and writes when `acts` returns true.
    fn step_interleaved(&mut self, mut acts: impl FnMut() -> bool) {
        let mut left = 10;
        let mut act = |world: &mut Self| {
            if left > 1 && acts() {
                left -= 1;
                let status = world.poll_after(1);
                world.follow(&status);
            }
        };
        self.kernel.part_from_all();
        for qp in 0..self.kernel.qps.len() {
            act(self);
            let Some(seen) = self.kernel.begin_link_work(qp) else { continue };
            act(self);
            self.kernel.end_link_work(qp, seen);
        }
        act(self);
        let status = self.poll_after(left);
        self.follow(&status);
    }

    fn plan(&self) -> Plan {
        Plan::join(&self.function.caps(), &self.partner).expect("a plan")
    }

    /// Acts as the engine after a poll: workers poll all queues, and channels are opened, changed
    /// or closed.
    fn follow(&mut self, status: &LinkStatus) {
        for channel in 0..self.channels.len() {
            let Rx::Owning(rx) = &mut self.channels[channel].rx else { panic!("no memory") };
            rx.peek(&mut Burst::new(), BURST_FRAMES).unwrap();
            self.send(channel, &[]).unwrap();
        }
        match status {
            LinkStatus::Down(_) if !self.channels.is_empty() => self.take_down(),
            LinkStatus::Down(_) => {}
            LinkStatus::Up { .. } if self.channels.is_empty() => {
                self.channels = self.function.open(&self.plan()).unwrap();
            }
            LinkStatus::Up { .. } => {
                let plan = self.plan();
                if usize::from(plan.channels) != self.channels.len() {
                    let next = self.function.prepare(&plan).unwrap();
                    self.park();
                    self.channels = next;
                    self.function.commit().unwrap();
                }
            }
        }
    }

    fn park(&mut self) {
        for channel in &mut self.channels {
            channel.rx.queue().park();
            channel.tx.queue().park();
        }
    }

    fn take_down(&mut self) {
        self.channels.clear();
        self.function.close("test");
    }

    /// Steps until all requested pairs are up at the kernel's end, with `channels` channels.
    fn settle(&mut self, channels: usize) {
        for _ in 0..200 {
            let status = self.step();
            self.follow(&status);
            let all = self.kernel.qps.iter().all(|qp| qp.up == qp.ready);
            if all && self.kernel.linked && self.channels.len() == channels {
                return;
            }
        }
        let status = self.step();
        panic!("{} channels of {channels}: {status:?}", self.channels.len());
    }

    /// Sends frames on a channel; returns the number of frames that the queue has accepted.
    fn send(&mut self, channel: usize, frames: &[Vec<u8>]) -> Result<usize, Fault> {
        let Tx::Owning(tx) = &mut self.channels[channel].tx else { panic!("no memory") };
        let mut burst = Burst::new();
        for frame in frames.iter().take(BURST_FRAMES) {
            burst.push(VnetHdr::default(), frame.len() as u32, Span::of(frame));
        }
        let taken = tx.submit(&burst, 0)?;
        tx.flush()?;
        Ok(taken)
    }

    /// Receives all frames of a channel.
    fn receive(&mut self, channel: usize) -> Received {
        let Rx::Owning(rx) = &mut self.channels[channel].rx else { panic!("no memory") };
        let mut frames = Vec::new();
        loop {
            let before = frames.len();
            {
                let mut burst = Burst::new();
                rx.peek(&mut burst, BURST_FRAMES)?;
                for frame in burst.frames() {
                    assert!(frame.is_one_piece() && !frame.hdr.needs_checksum());
                    let mut bytes = vec![0; frame.len as usize];
                    assert_eq!(frame.head.read_header(&mut bytes), bytes.len());
                    frames.push(bytes);
                }
            }
            if frames.len() == before {
                return Ok(frames);
            }
            rx.release(frames.len() - before)?;
        }
    }

    fn stats(&self, channel: usize) -> &mqnet_netdev::QueuePairStats {
        &self.function.stats()[channel]
    }
}

/// Frame of `len` bytes that begins with the number `mark`.
fn frame(mark: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|n| (n as u32 ^ mark) as u8).collect();
    bytes[..4].copy_from_slice(&mark.to_le_bytes());
    bytes
}
