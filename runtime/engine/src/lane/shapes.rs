//! Transfer of frames for the four combinations of owning and system-call queues.
//!
//! `LIMITED` is true for lanes with disciplines, where a sink gets only an allowance of bytes. For
//! other lanes the compiler removes the check.

use mqnet_counters::Counter;
use mqnet_netdev::limits::{BUDGET, SMALL, TURN};
use mqnet_netdev::{
    Burst, Fault, Frame, FrameMeta, OwningRx, OwningTx, Recv, Rx, SyscallRx, SyscallTx, Tx,
};
use mqnet_pktbuf::{Page, PagePool};
use mqnet_shmem::{Segments, SpanMut};

use super::batch::Batch;
use super::{Lane, Loan, PollEnd, Polled};
use crate::egress::Full;

/// Number of bytes after which received frames are published early. The value is about one large
/// frame, so that the peer processes a frame while the next is received.
const FLUSH_BYTES: u32 = 48 << 10;

impl Lane {
    /// Moves up to a budget of frames, or up to [`TURN`] small frames. With `LIMITED`, at most one
    /// frame exceeds `allowance` bytes.
    #[inline(always)]
    pub(super) fn move_across<const LIMITED: bool>(
        &mut self,
        allowance: u32,
    ) -> Result<Polled, Fault> {
        // With tail drop, a frame in the batch is dropped only if the sink has no space for its
        // actual length. Therefore frames of every size are batched.
        let any = self.full == Full::Drop && !self.sink_held;
        // A program that drops frames processes many frames for each one that it delivers, so its
        // lane gets one budget.
        let turn = if self.hooks.has_program() { BUDGET } else { TURN };
        let Self { rx, tx, loan, batch, room, tx_stats, .. } = self;
        match (rx, tx) {
            (Rx::Syscall(rx), tx) if batch.is_some() => match batch {
                Some(batch) if batch.is_for_small() => {
                    receive_narrow::<LIMITED>(&mut **rx, tx, batch, *room, allowance, any)
                }
                _ => carry_together(&mut **rx, tx, loan, batch, *room),
            },
            (Rx::Syscall(rx), Tx::Owning(tx)) => {
                receive_in_place::<LIMITED>(&mut **rx, &mut **tx, *room, allowance, &mut 0)
            }
            (Rx::Owning(rx), Tx::Owning(tx)) => {
                copy_across::<LIMITED>(&mut **rx, &mut **tx, allowance, turn, &tx_stats.tx.bytes)
            }
            (Rx::Owning(rx), Tx::Syscall(tx)) => {
                send_in_place::<LIMITED>(&mut **rx, &mut **tx, allowance)
            }
            (Rx::Syscall(rx), Tx::Syscall(tx)) => match loan {
                Some(loan) if self.closed => {
                    let polled = lend_a_page(&mut **rx, &mut **tx, loan, *room, 0)?;
                    let rest = if loan.held.is_some() { PollEnd::Full } else { PollEnd::Empty };
                    Ok(Polled { rest, ..polled })
                }
                Some(loan) => lend_a_page(&mut **rx, &mut **tx, loan, *room, BUDGET),
                None => Ok(Polled::nothing(PollEnd::Empty)),
            },
        }
    }
}

/// System-call source, any sink: frames are received into a batch, for coalescing.
fn carry_together(
    rx: &mut dyn SyscallRx,
    tx: &mut Tx,
    loan: &mut Option<Loan>,
    batch: &mut Option<Batch>,
    room: u32,
) -> Result<Polled, Fault> {
    // The frame in the page was received earlier, so it is sent first.
    if let (Tx::Syscall(tx), Some(loan)) = (&mut *tx, loan)
        && loan.held.is_some()
        && lend_a_page(rx, &mut **tx, loan, room, 0)?.rest == PollEnd::Full
    {
        return Ok(Polled::nothing(PollEnd::Full));
    }
    let polled = match batch {
        Some(batch) => batch.carry(rx, tx)?,
        None => Polled::nothing(PollEnd::Budget),
    };
    if batch.as_ref().is_some_and(Batch::is_unused) {
        *batch = None;
    }
    Ok(polled)
}

/// System-call source, owning sink with little more space than a largest frame needs. Frames are
/// received in place while the sink has that space. Otherwise small frames are received into the
/// batch. With disciplines, frames without space go to the disciplines.
#[inline(never)]
fn receive_narrow<const LIMITED: bool>(
    rx: &mut dyn SyscallRx,
    tx: &mut Tx,
    batch: &mut Batch,
    room: u32,
    allowance: u32,
    any: bool,
) -> Result<Polled, Fault> {
    // The frames in the batch were received earlier, so they are sent first.
    let waited = batch.waiting();
    let all = batch.send(tx)?;
    let mut polled = Polled { frames: 0, sent: waited - batch.waiting(), rest: PollEnd::Full };
    if !all {
        return Ok(polled);
    }
    if let Tx::Owning(tx) = tx {
        let place = receive_in_place::<LIMITED>(rx, &mut **tx, room, allowance, batch.last())?;
        (polled.frames, polled.rest) = (place.frames, place.rest);
    }
    if !LIMITED && polled.rest == PollEnd::Full {
        let budget = BUDGET.saturating_sub(polled.frames);
        let small = batch.carry_small(rx, tx, budget, any)?;
        polled.frames += small.frames;
        polled.rest = small.rest;
    }
    Ok(polled)
}

/// System-call source, owning sink: the system call writes into the sink's memory. `last` is set to
/// the length of the last frame.
fn receive_in_place<const LIMITED: bool>(
    rx: &mut dyn SyscallRx,
    tx: &mut dyn OwningTx,
    room: u32,
    allowance: u32,
    last: &mut u32,
) -> Result<Polled, Fault> {
    let (mut frames, mut unseen, mut bytes) = (0, 0, 0u32);
    let rest = loop {
        if frames == BUDGET {
            break PollEnd::Budget;
        }
        if LIMITED && bytes >= allowance {
            break PollEnd::Full;
        }
        // Use the results by reference and do not move them. A copy with other access widths than
        // the stores defeats store-to-load forwarding. The copy then waits until the stores have
        // left the core, behind stores to cache lines of the peer.
        let mut reserved = tx.reserve(room);
        let segments = match &mut reserved {
            Ok(Some(segments)) => segments,
            Ok(None) => break PollEnd::Full,
            Err(_) => return reserved.map(|_| Polled::nothing(PollEnd::Full)),
        };
        let received = rx.recv(segments);
        match &received {
            Err(_) => return received.map(|_| Polled::nothing(PollEnd::Full)),
            Ok(Recv::Empty) => break PollEnd::Empty,
            Ok(Recv::Dropped { .. }) => frames += 1,
            Ok(Recv::Frame(frame)) => {
                tx.commit(frame);
                *last = frame.len;
                frames += 1;
                if LIMITED {
                    bytes = bytes.saturating_add(frame.len);
                }
                unseen += frame.len;
                if unseen >= FLUSH_BYTES {
                    unseen = 0;
                    tx.flush()?;
                }
            }
        }
    };
    tx.flush()?;
    Ok(Polled { frames, sent: 0, rest })
}

/// Shortens a burst to an allowance of bytes. Returns true if frames were removed.
#[inline]
fn shorten(burst: &mut Burst<'_>, allowance: u32) -> bool {
    // The sum cannot overflow, because a ring holds less than 4 GiB. Chunks of 16 vectorize to
    // about one addition per frame. A plain sum takes three instructions per frame; the loop in
    // `cut` takes ten.
    let (sixteens, others) = burst.frames().as_chunks::<16>();
    let sum = |frames: &[Frame<'_>]| frames.iter().fold(0u32, |s, f| s.wrapping_add(f.len));
    let all = sixteens.iter().fold(sum(others), |all, some| all.wrapping_add(sum(some)));
    if all > allowance { cut(burst, allowance) } else { false }
}

#[cold]
fn cut(burst: &mut Burst<'_>, allowance: u32) -> bool {
    let mut bytes = 0u32;
    let fits = |len: u32| {
        let fits = bytes < allowance;
        bytes = bytes.saturating_add(len);
        fits
    };
    let shown = burst.frames().len();
    let keep = burst.frames().iter().map(|frame| frame.len).map(fits).filter(|fits| *fits).count();
    burst.truncate(keep);
    keep < shown
}

/// Reason why a poll ended that moved `frames` of `shown` frames. `cut` is true if the allowance
/// shortened the burst.
fn rest_of(frames: usize, shown: usize, cut: bool) -> PollEnd {
    if frames < shown || cut { PollEnd::Full } else { PollEnd::Budget }
}

/// Owning source, system-call sink: the system call reads from the source's memory.
fn send_in_place<const LIMITED: bool>(
    rx: &mut dyn OwningRx,
    tx: &mut dyn SyscallTx,
    allowance: u32,
) -> Result<Polled, Fault> {
    let (shown, frames, cut) = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, BUDGET)?;
        if burst.frames().is_empty() {
            return Ok(Polled::nothing(PollEnd::Empty));
        }
        let cut = LIMITED && shorten(&mut burst, allowance);
        (burst.frames().len(), tx.submit(&burst, 0)?, cut)
    };
    rx.release(frames)?;
    Ok(Polled { frames, sent: 0, rest: rest_of(frames, shown, cut) })
}

/// Owning source, owning sink: frames are copied once, one burst or up to `turn` small frames.
/// `sent` counts the bytes that the sink has accepted. A sink with RX steering counts elsewhere;
/// then only the first and the last length of a burst decide if another burst follows.
fn copy_across<const LIMITED: bool>(
    rx: &mut dyn OwningRx,
    tx: &mut dyn OwningTx,
    mut allowance: u32,
    turn: usize,
    sent: &Counter,
) -> Result<Polled, Fault> {
    const SMALL_BURST: u64 = SMALL as u64 * BUDGET as u64;
    let mut frames = 0;
    loop {
        let before = sent.get();
        let (burst, small) = copy_burst::<LIMITED>(rx, tx, allowance)?;
        frames += burst.frames;
        let bytes = sent.get().wrapping_sub(before);
        if LIMITED {
            allowance = allowance.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        let is_over = frames >= turn || LIMITED && allowance == 0;
        if burst.frames < BUDGET || !small || bytes > SMALL_BURST || is_over {
            return Ok(Polled { frames, ..burst });
        }
    }
}

/// Copies one burst. The second value is true if the first and the last frame of the burst are
/// small.
#[inline(always)]
fn copy_burst<const LIMITED: bool>(
    rx: &mut dyn OwningRx,
    tx: &mut dyn OwningTx,
    allowance: u32,
) -> Result<(Polled, bool), Fault> {
    let (shown, frames, cut, small) = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, BUDGET)?;
        let (Some(first), Some(last)) = (burst.frames().first(), burst.frames().last()) else {
            return Ok((Polled::nothing(PollEnd::Empty), false));
        };
        let small = first.len.max(last.len) <= SMALL;
        let cut = LIMITED && shorten(&mut burst, allowance);
        (burst.frames().len(), tx.submit(&burst, 0)?, cut, small)
    };
    // Flush the sink first: its reader can begin while the source is released. Accepted frames are
    // released even if the flush fails, because they are already counted.
    let flushed = tx.flush();
    rx.release(frames)?;
    flushed?;
    Ok((Polled { frames, sent: 0, rest: rest_of(frames, shown, cut) }, small))
}

/// System-call source, system-call sink: frames pass through a page of the lane. A budget of 0 only
/// submits the held frame.
pub(super) fn lend_a_page(
    rx: &mut dyn SyscallRx,
    tx: &mut dyn SyscallTx,
    loan: &mut Loan,
    room: u32,
    budget: usize,
) -> Result<Polled, Fault> {
    let mut frames = 0;
    loop {
        let (page, frame) = match loan.held.take() {
            Some(held) => held,
            None => {
                if frames == budget {
                    return Ok(Polled { frames, sent: 0, rest: PollEnd::Budget });
                }
                let Some(mut page) = loan.pool.alloc() else {
                    return Ok(Polled { frames, sent: 0, rest: PollEnd::Full });
                };
                let head = loan.pool.span_mut(&mut page).split_at(room as usize).0;
                let got = rx.recv(&mut Segments::new(head, SpanMut::empty()));
                match got {
                    Ok(Recv::Frame(frame)) => {
                        frames += 1;
                        (page, frame)
                    }
                    other => {
                        loan.pool.free(page);
                        match other? {
                            Recv::Dropped { .. } => frames += 1,
                            _ => return Ok(Polled { frames, sent: 0, rest: PollEnd::Empty }),
                        }
                        continue;
                    }
                }
            }
        };
        match submit_page(tx, &loan.pool, &page, frame) {
            Ok(true) => loan.pool.free(page),
            Ok(false) => {
                loan.held = Some((page, frame));
                return Ok(Polled { frames, sent: 0, rest: PollEnd::Full });
            }
            Err(fault) => {
                // Keep the frame, so that it is counted as dropped when the lane is closed.
                loan.held = Some((page, frame));
                return Err(fault);
            }
        }
    }
}

fn submit_page(
    tx: &mut dyn SyscallTx,
    pool: &PagePool,
    page: &Page,
    frame: FrameMeta,
) -> Result<bool, Fault> {
    let mut burst = Burst::new();
    let bytes = pool.span(page).first(frame.len as usize);
    burst.push(frame.hdr, frame.len, bytes);
    Ok(tx.submit(&burst, 0)? == 1)
}
