//! RX and TX queue over one descriptor of a TAP.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Frame, FrameMeta, Queue, QueuePairStats, Recv, SyscallRx,
    SyscallTx, Trigger, WakeSource, dhcp,
};
use mqnet_shmem::{Segments, Span, read_into, write_from};
use mqnet_wire::offload::UNFINISHED_HEADERS_MAX;
use mqnet_wire::{VNET_HDR_LEN, VnetHdr};

use crate::batching::Batch;
use crate::fallback::Fallback;

/// Error numbers that are distinguished (identical on all known Linux architectures).
const EIO: i32 = 5;
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EBADFD: i32 = 77;
const EMSGSIZE: i32 = 90;
const EOPNOTSUPP: i32 = 95;
const ENOBUFS: i32 = 105;

fn fault(channel: u16, error: &io::Error) -> Fault {
    let what = match error.raw_os_error() {
        Some(EBADFD) => "the TAP device was removed".to_owned(),
        _ => format!("TAP: {error}"),
    };
    Fault { channel, what }
}

/// RX queue: frames from the kernel.
pub(crate) struct TapRx {
    pub(crate) channel: u16,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) frame_max: u32,
    pub(crate) stats: Arc<QueuePairStats>,
}

impl Queue for TapRx {
    /// Arming needs no action. The descriptor is watched edge-triggered from the start, so the
    /// next wait reports any frame that arrives after the last empty read.
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.fd.as_fd(), trigger: Trigger::Edge })
    }
}

impl SyscallRx for TapRx {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let mut header = [0u8; VNET_HDR_LEN];
        self.stats.rx.syscalls.add(1);
        // One byte beyond a short `room` detects a frame that `readv` would truncate silently.
        let room_len = room.len();
        let mut beyond = [0u8];
        let beyond = if room_len > self.frame_max as usize { &mut [][..] } else { &mut beyond };
        let n = match read_into(self.fd.as_fd(), &mut header, room, beyond) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Recv::Empty),
            Err(e) => return Err(fault(self.channel, &e)),
        };
        let len = n.saturating_sub(VNET_HDR_LEN) as u32;
        self.stats.rx.packets.add(1);
        self.stats.rx.bytes.add(u64::from(len));
        // A checksum that the kernel reports as valid is in the frame, so the flag is not needed.
        let hdr = VnetHdr::from_bytes(&header).normalised();
        let reason = if len > self.frame_max {
            DropReason::TooLong
        } else if len as usize > room_len {
            DropReason::BufferTooSmall
        } else if hdr.check(len).is_err() {
            DropReason::BadHeader
        } else {
            return Ok(Recv::Frame(FrameMeta { len, hdr }));
        };
        self.stats.rx.drops.count(reason, 1);
        Ok(Recv::Dropped { len, reason })
    }
}

/// TX queue: frames to the kernel.
pub(crate) struct TapTx {
    pub(crate) channel: u16,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) stats: Arc<QueuePairStats>,
    pub(crate) batch: Batch,
    pub(crate) fallback: Fallback,
}

/// Smallest number of frames of a batch. Smaller bursts are faster with one call per frame.
const BATCH_MIN: usize = 4;

impl TapTx {
    /// Writes frames from index `from` on with io_uring, and returns the number written. Stops at a
    /// frame that cannot be written, or must be written alone. The caller writes that frame alone,
    /// and gets its error.
    fn send_many(&mut self, burst: &Burst<'_>, from: usize) -> usize {
        let Some(batch) = &mut self.batch else { return 0 };
        // Stop at a DHCP frame without a complete checksum: `send_alone` completes and writes it.
        let as_it_is = |frame: &&Frame<'_>| !dhcp::is_unfinished(frame, burst.more(frame));
        let frames = burst.frames()[from..].iter().take_while(as_it_is);
        let parts = frames.map(|frame| (frame.hdr.to_bytes(), frame.head, burst.more(frame)));
        let done = batch.write(self.fd.as_fd(), parts);
        self.stats.tx.syscalls.add(done.calls);
        if done.broken.is_some() {
            self.batch = None;
        }
        done.writes
    }
}

impl Queue for TapTx {
    /// A TAP normally accepts frames immediately. A TAP is full only while the kernel has no
    /// memory, and no notification reports the end of that state.
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

/// Result of one write.
enum Sent {
    Yes,
    Full,
    /// The kernel has no memory for the frame, but may have enough for a smaller frame.
    NoMemory,
    /// The kernel does not accept frames of this kind.
    Refused,
    Dropped(DropReason),
}

fn send(fd: BorrowedFd<'_>, frame: &Frame<'_>, more: &[Span<'_>]) -> Result<Sent, io::Error> {
    let written = if dhcp::is_unfinished(frame, more) {
        write_completed(fd, frame, more)
    } else {
        write_from(fd, &frame.hdr.to_bytes(), frame.head, more)
    };
    match written {
        Ok(_) => Ok(Sent::Yes),
        Err(e) => match e.raw_os_error() {
            Some(ENOMEM | ENOBUFS) => Ok(Sent::NoMemory),
            Some(EINVAL | E2BIG | EMSGSIZE | EOPNOTSUPP) => Ok(Sent::Refused),
            Some(EIO) => Ok(Sent::Dropped(DropReason::DeviceDown)),
            _ if e.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Full),
            _ => Err(e),
        },
    }
}

/// Completes the checksum of a DHCP frame and writes the frame, because readers of raw sockets do
/// not complete checksums.
#[cold]
fn write_completed(fd: BorrowedFd<'_>, frame: &Frame<'_>, more: &[Span<'_>]) -> io::Result<usize> {
    let mut room = [0; UNFINISHED_HEADERS_MAX];
    match dhcp::complete(frame, more, &mut room) {
        Some((head, rest)) => write_from(fd, &dhcp::completed().to_bytes(), head, &rest),
        None => write_from(fd, &frame.hdr.to_bytes(), frame.head, more),
    }
}

/// Progress of one submission, for the counters.
#[derive(Default)]
struct Done {
    packets: u64,
    bytes: u64,
    calls: u64,
}

impl TapTx {
    /// Writes one frame, or its segments after a refusal. Returns false if the kernel is full,
    /// otherwise true: the frame was written or dropped.
    fn send_alone(
        &mut self,
        frame: &Frame<'_>,
        more: &[Span<'_>],
        done: &mut Done,
    ) -> Result<bool, Fault> {
        if self.fallback.is_begun()
            && let Some(taken) = self.send_parts(frame, more, done)?
        {
            return Ok(taken);
        }
        done.calls += 1;
        match send(self.fd.as_fd(), frame, more).map_err(|e| fault(self.channel, &e))? {
            Sent::Yes => {
                done.packets += 1;
                done.bytes += u64::from(frame.len);
                self.fallback.note_taken(std::slice::from_ref(frame));
            }
            Sent::Full => return Ok(false),
            Sent::Dropped(reason) => self.stats.tx.drops.count(reason, 1),
            Sent::NoMemory => {
                let is_large = frame.hdr.is_large();
                let taken = if is_large { self.send_parts(frame, more, done)? } else { None };
                return Ok(taken.unwrap_or(false));
            }
            Sent::Refused => {
                let before = done.packets;
                match self.send_parts(frame, more, done)? {
                    None => self.stats.tx.drops.count(DropReason::Refused, 1),
                    Some(taken) => {
                        if done.packets > before {
                            self.fallback.note_refused(frame.hdr);
                        }
                        return Ok(taken);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Writes the segments of a frame that the kernel refused; see [`Fallback::send`].
    #[cold]
    fn send_parts(
        &mut self,
        frame: &Frame<'_>,
        more: &[Span<'_>],
        done: &mut Done,
    ) -> Result<Option<bool>, Fault> {
        let Self { fallback, fd, stats, channel, .. } = self;
        let each = |burst: &Burst<'_>, from: usize| {
            let mut taken = 0;
            for part in &burst.frames()[from..] {
                done.calls += 1;
                match send(fd.as_fd(), part, burst.more(part)) {
                    Ok(Sent::Yes) => {
                        done.packets += 1;
                        done.bytes += u64::from(part.len);
                    }
                    Ok(Sent::Full | Sent::NoMemory) => break,
                    Ok(Sent::Refused) => stats.tx.drops.count(DropReason::Refused, 1),
                    Ok(Sent::Dropped(reason)) => stats.tx.drops.count(reason, 1),
                    // Report the earlier segments first; the next write returns the error again.
                    Err(_) if taken > 0 => break,
                    Err(e) => return Err(fault(*channel, &e)),
                }
                taken += 1;
            }
            Ok(taken)
        };
        fallback.send((frame, more), stats, each)
    }
}

impl SyscallTx for TapTx {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        let (mut taken, mut done) = (0, Done::default());
        let (mut in_batches, mut gone) = (self.batch.is_some() && !self.fallback.is_begun(), None);
        while taken < frames.len() {
            if in_batches && frames.len() - taken >= BATCH_MIN {
                let sent = self.send_many(burst, from + taken);
                let written = &frames[taken..][..sent];
                done.packets += sent as u64;
                done.bytes += written.iter().map(|f| u64::from(f.len)).sum::<u64>();
                self.fallback.note_taken(written);
                taken += sent;
                in_batches = sent >= BATCH_MIN;
            }
            // Write a frame that failed in a batch alone, to get its error.
            let Some(frame) = frames.get(taken) else { break };
            match self.send_alone(frame, burst.more(frame), &mut done) {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(fault) => {
                    gone = Some(fault);
                    break;
                }
            }
        }
        let stats = &self.stats.tx;
        stats.syscalls.add(done.calls);
        stats.packets.add(done.packets);
        stats.bytes.add(done.bytes);
        // The caller must first release the frames that were accepted; the next submit returns
        // the error again.
        gone.filter(|_| taken == 0).map_or(Ok(taken), Err)
    }
}

#[cfg(test)]
mod tests;
