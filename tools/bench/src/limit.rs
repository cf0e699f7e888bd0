//! Memory limit: one process copies frames into slots of shared memory, another process copies them
//! out, without further work. The result is an upper bound for a link with the same frames between
//! the same CPUs.

use std::hint::{black_box, spin_loop};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_shmem::{Region, Span, SpanMut, Window};

use super::child::{self, Child};
use super::slices::{self, End};
use super::{Result, Session, pingpong};

/// Frames between two publications of an index.
const BATCH: u64 = 32;
/// Offset of the number of written frames in the shared memory. The number of read frames is two
/// cache lines away.
const WRITTEN: usize = 0;
const READ: usize = 128;
/// Offset of the slots.
const SLOTS: usize = 4096;
/// Size of the writer's private source and of the reader's private destination. Both fit the
/// second-level cache, like a pool.
const PRIVATE: usize = 256 << 10;

/// Role of a process.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Side {
    /// Copies frames into the shared memory.
    Tx,
    /// Copies frames out of the shared memory.
    Rx,
}

/// Arguments of the hidden subcommand `bench-limit`; the memory file is its standard input.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LimitArgs {
    side: Side,
    bytes: usize,
    cpu: usize,
}

/// Layout of frames of one size.
#[derive(Clone, Copy, Debug)]
struct Shape {
    bytes: usize,
    stride: usize,
    slots: u64,
}

impl Shape {
    fn of(bytes: usize) -> Result<Self> {
        if !(1..=65536).contains(&bytes) {
            return Err(format!("frames have 1 to 65536 bytes, not {bytes}").into());
        }
        let slots = if bytes <= 2048 { 1024 } else { 256 };
        Ok(Self { bytes, stride: bytes.next_multiple_of(2048), slots })
    }

    fn len(self) -> usize {
        SLOTS + self.slots as usize * self.stride
    }

    /// Offset of a frame's slot, as a ring position.
    fn slot(self, frame: u64) -> u32 {
        ((frame & (self.slots - 1)) as usize * self.stride) as u32
    }

    /// Offset in private memory that follows `at`, cyclically.
    fn next_private(self, at: usize) -> usize {
        if at + 2 * self.stride <= PRIVATE { at + self.stride } else { 0 }
    }
}

/// Writer and reader process.
#[derive(Debug)]
pub(super) struct Limit {
    region: Region,
    children: [Child; 2],
}

impl Limit {
    pub(super) fn start(session: &Session, bytes: usize) -> Result<Self> {
        let shape = Shape::of(bytes)?;
        // Plain pages, like a link's window on a machine without reserved huge pages.
        let region = Region::shared("mqnet-bench-limit", shape.len(), false)?;
        let open = |side: &str, cpu: usize| -> Result<Child> {
            let file = region.file().ok_or("shared memory without a file")?;
            let file = file.try_clone_to_owned()?;
            let args = ["bench-limit", side, &bytes.to_string(), &cpu.to_string()];
            let command = child::own(&args)?;
            Child::spawn(&format!("limit {side}"), command, Stdio::from(file))
        };
        let [tx, rx] = session.cpus;
        let children = [open("rx", rx)?, open("tx", tx)?];
        let mut limit = Self { region, children };
        if slices::moves_frames(&mut limit)? {
            return Ok(limit);
        }
        let [rx, tx] = &limit.children;
        Err(format!("the bare ring moves no frames: {} {}", rx.tail(), tx.tail()).into())
    }
}

impl End for Limit {
    fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    fn frames_received(&mut self) -> Result<u64> {
        Ok(self.region.word(READ).load(Ordering::Relaxed))
    }
}

/// Runs one of the two processes, endlessly. Returns only errors of the start.
pub(super) fn run(args: &LimitArgs) -> Result<()> {
    let shape = Shape::of(args.bytes)?;
    pingpong::pin(args.cpu)?;
    let file = std::io::stdin().as_fd().try_clone_to_owned()?;
    let region = Arc::new(Region::of_peer(file, shape.len().next_multiple_of(SLOTS))?);
    let slots = Window::new(region.clone(), SLOTS, shape.slots as u32 * shape.stride as u32);
    match args.side {
        Side::Tx => send(&region, slots, shape),
        Side::Rx => receive(&region, &slots, shape),
    }
}

fn send(region: &Region, mut slots: Window, shape: Shape) -> ! {
    let source = vec![0x5a; PRIVATE];
    let (mut frame, mut read, mut at) = (0u64, 0u64, 0usize);
    loop {
        if frame - read > shape.slots - BATCH {
            // Pairs with the Release store in receive: the slots of frames below `read` are free.
            read = region.word(READ).load(Ordering::Acquire);
            if frame - read > shape.slots - BATCH {
                spin_loop();
                continue;
            }
        }
        for _ in 0..BATCH {
            let from = Span::of(&source[at..at + shape.bytes]);
            slots.write(shape.slot(frame), shape.bytes as u32).head.copy_from(from);
            at = shape.next_private(at);
            frame += 1;
        }
        // Pairs with the Acquire load in receive: frames below `frame` are complete.
        region.word(WRITTEN).store(frame, Ordering::Release);
    }
}

fn receive(region: &Region, slots: &Window, shape: Shape) -> ! {
    let mut sink = vec![0; PRIVATE];
    let (mut frame, mut at) = (0u64, 0usize);
    loop {
        // Pairs with the Release store in send: frames below `written` are complete.
        let written = region.word(WRITTEN).load(Ordering::Acquire);
        if written == frame {
            spin_loop();
            continue;
        }
        for _ in 0..BATCH.min(written - frame) {
            let (from, _) = slots.read(shape.slot(frame), shape.bytes as u32);
            SpanMut::of(&mut sink[at..at + shape.bytes]).copy_from(from);
            at = shape.next_private(at);
            frame += 1;
        }
        black_box(&mut sink);
        // Pairs with the Acquire load in send: the slots were read before this store.
        region.word(READ).store(frame, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every slot and every private frame is within its memory, for all sizes.
    #[test]
    fn frames_stay_in_their_memory() {
        for bytes in [1, 64, 1514, 2048, 2049, 9000, 65536] {
            let shape = Shape::of(bytes).unwrap();
            let last = SLOTS + shape.slot(shape.slots - 1) as usize + bytes;
            assert!(last <= shape.len(), "{bytes}");
            assert_eq!(shape.slot(shape.slots), 0);
            let mut at = 0;
            for _ in 0..1000 {
                assert!(at + bytes <= PRIVATE, "{bytes}");
                at = shape.next_private(at);
            }
        }
        assert!(Shape::of(0).is_err() && Shape::of(65537).is_err());
    }
}
