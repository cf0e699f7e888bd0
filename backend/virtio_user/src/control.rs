//! Control queue: sends one command at a time, and waits for its status.
//!
//! The queue has its own memory file; the queue pairs have another.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use mqnet_shmem::{Region, RegionPart, Window};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{clock, poll, socket};
use mqnet_virtio::driver::{DriverQueue, MemoryRange};
use mqnet_virtio::net::ctrl::{CtrlCommand, ERR, OK};
use mqnet_virtio::{Features, layout, packed, split};
use vhost::VhostUserMemoryRegionInfo;

use crate::memory::{RingMemory, START};

/// Number of descriptors; a command needs two.
const SIZE: u16 = 16;
/// Length of the file, and offset of the command; the ring areas are before the command.
const LEN: usize = 16 << 10;
const COMMAND: usize = 4 << 10;
/// Offset of the status byte from the command.
const ANSWER: u32 = 8 << 10;

/// Unit of timeouts. A suspension of the machine counts as one unit at most.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// Device address of the first byte of the file.
const CONTROL_START: u64 = START - (1 << 30);

/// Memory of the queue, until the queue is created.
pub(crate) struct ControlMemory {
    pub(crate) region: Arc<Region>,
    pub(crate) ring: RingMemory,
    window: Window,
}

/// Control queue.
pub(crate) struct Control {
    queue: Box<dyn DriverQueue>,
    window: Window,
    kick: Arc<EventFd>,
    call: Arc<EventFd>,
}

impl ControlMemory {
    pub(crate) fn new(is_packed: bool) -> Result<Self, String> {
        let region = Region::shared("mqnet-virtio-control", LEN, false);
        let (region, mut rest) = RegionPart::whole(region.map_err(|e| e.to_string())?).shared();
        let short = || "the memory of the control queue is too short".to_owned();
        let mut rings = rest.take(COMMAND).ok_or_else(short)?;
        let lens = if is_packed { layout::packed::areas } else { layout::split::areas };
        let mut addresses = [0; 3];
        let mut tables = Vec::with_capacity(3);
        for (at, len) in addresses.iter_mut().zip(lens(SIZE)) {
            let area = rings.take((len as usize).next_multiple_of(64)).ok_or_else(short)?;
            *at = CONTROL_START + area.offset() as u64;
            tables.push(area.into_table());
        }
        let tables = tables.try_into().map_err(|_| short())?;
        let ring = RingMemory { size: SIZE, addresses, tables };
        Ok(Self { region, ring, window: rest.into_window() })
    }

    /// Memory region for the message to the device.
    pub(crate) fn range(&self) -> Result<VhostUserMemoryRegionInfo, String> {
        use std::os::fd::AsRawFd;
        let file = self.region.file().ok_or("the memory is not a file")?;
        Ok(VhostUserMemoryRegionInfo {
            guest_phys_addr: CONTROL_START,
            memory_size: LEN as u64,
            userspace_addr: CONTROL_START,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        })
    }

    /// Creates the queue with index `number`.
    pub(crate) fn start(
        self,
        number: u16,
        features: Features,
        kick: Arc<EventFd>,
        call: Arc<EventFd>,
    ) -> Control {
        let (tables, event_idx) = (self.ring.tables, features.has(Features::EVENT_IDX));
        // With `IN_ORDER` a split ring must use its descriptors in order, even for single commands.
        let in_order = features.has(Features::IN_ORDER);
        let queue: Box<dyn DriverQueue> = match (features.has(Features::RING_PACKED), in_order) {
            (true, _) => {
                Box::new(packed::driver::PackedDriverQueue::new(number, SIZE, tables, event_idx))
            }
            (false, true) => {
                Box::new(split::driver::SplitInOrderQueue::new(number, SIZE, tables, event_idx))
            }
            (false, false) => {
                Box::new(split::driver::SplitDriverQueue::new(number, SIZE, tables, event_idx))
            }
        };
        Control { queue, window: self.window, kick, call }
    }
}

impl Control {
    /// Sends a command and waits for its status. `Err` for a refusal or a failure; after a
    /// failure to get the status the connection is shut down.
    pub(crate) fn command(
        &mut self,
        line: &UnixStream,
        command: &CtrlCommand,
        timeout: Duration,
    ) -> Result<(), String> {
        let bytes = command.to_bytes();
        let len = bytes.len() as u32;
        if len > ANSWER {
            return Err(format!("a command of {len} bytes, there is room for {ANSWER}"));
        }
        self.window.write(0, len).head.write_header(&bytes);
        self.window.write(ANSWER, 1).head.write_header(&[ERR]);
        let at = CONTROL_START + COMMAND as u64;
        let pieces = [MemoryRange { at, len }, MemoryRange { at: at + u64::from(ANSWER), len: 1 }];
        self.queue.add(&pieces, 1).ok_or("the control queue is full")?;
        self.queue.publish();
        if self.queue.needs_kick() {
            self.kick.ring().map_err(|e| format!("the device's doorbell: {e}"))?;
        }
        if let Err(why) = self.wait(line, timeout) {
            // The device may still execute this command, and its status would be taken for the
            // status of the next command. The shutdown ends the session.
            let _ = line.shutdown(std::net::Shutdown::Both);
            return Err(why);
        }
        let mut answer = [ERR];
        self.window.read(ANSWER, 1).0.read_header(&mut answer);
        if answer == [OK] { Ok(()) } else { Err(format!("the device refused {command:?}")) }
    }

    fn wait(&mut self, line: &UnixStream, timeout: Duration) -> Result<(), String> {
        let mut waited = Duration::ZERO;
        loop {
            if self.queue.take_used().map_err(|e| e.to_string())?.is_some() {
                return Ok(());
            }
            if !socket::is_quiet(line.as_fd()) {
                return Err("the device disconnected".to_owned());
            }
            let Some(left) = timeout.checked_sub(waited) else {
                return Err(format!("no response to a command within {} ms", timeout.as_millis()));
            };
            self.call.drain();
            if !self.queue.arm(1) {
                let since = clock::monotonic();
                poll::wait_readable(&[self.call.as_fd(), line.as_fd()], left.min(SLICE))
                    .map_err(|e| format!("waiting for an answer: {e}"))?;
                waited += clock::monotonic().saturating_sub(since).min(SLICE);
            }
        }
    }
}
