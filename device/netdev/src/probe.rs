//! Probe for tests of wrappers: a queue that overrides every default method.
//!
//! A wrapper that does not define a method with a default body hides that method of its inner
//! queue. [`hidden_by_rx`] and [`hidden_by_tx`] return the names of such methods.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqnet_pktbuf::{PagePool, PoolConfig, Returner};
use mqnet_shmem::{Segments, Span};
use mqnet_wire::VnetHdr;

use crate::{
    Armed, Burst, DetachedFragment, DetachedFrame, Fault, Fill, FrameMeta, OwningRx, OwningTx,
    Queue, Recv, Rx, SyscallRx, SyscallTx, Tx, WakeSource,
};

/// Methods with a default body that the probe overrides.
pub const METHODS: [&str; 7] =
    ["park", "prefetch", "hold_off", "detach", "returner", "fill", "capacity"];

const HOLD_OFF: Duration = Duration::from_millis(7);
const FILL: Fill = Fill { used: 1, size: 2 };
const CAPACITY: u32 = 3;
const FRAME: [u8; 64] = [7; 64];

/// Flags that record calls of the methods without a return value.
#[derive(Debug, Default)]
struct Calls {
    park: AtomicBool,
    prefetch: AtomicBool,
}

/// Queue that overrides every method with a default body.
#[derive(Debug)]
pub struct Probe {
    /// Number of waiting frames of 64 bytes.
    pub frames: usize,
    calls: Arc<Calls>,
    pool: PagePool,
}

impl Probe {
    /// Creates a probe with one waiting frame.
    pub fn new() -> io::Result<Self> {
        let config = PoolConfig { pages: 2, ..PoolConfig::default() };
        let pool = PagePool::new(&config).map_err(io::Error::other)?;
        Ok(Self { frames: 1, calls: Arc::default(), pool })
    }
}

impl Queue for Probe {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }

    fn park(&mut self) {
        self.calls.park.store(true, Ordering::Relaxed);
    }

    fn prefetch(&self) {
        self.calls.prefetch.store(true, Ordering::Relaxed);
    }

    fn hold_off(&self) -> Duration {
        HOLD_OFF
    }
}

impl OwningRx for Probe {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        for _ in 0..self.frames.min(budget) {
            burst.push(VnetHdr::default(), FRAME.len() as u32, Span::of(&FRAME));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.frames -= frames;
        Ok(())
    }

    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        let frag = self.pool.alloc_frag(FRAME.len() as u32).filter(|_| self.frames > 0);
        Ok(frag.map(|frag| {
            self.frames -= 1;
            let head = DetachedFragment::new(frag, 0, FRAME.len() as u32);
            DetachedFrame { hdr: VnetHdr::default(), head, more: Vec::new() }
        }))
    }

    fn returner(&mut self) -> Option<Returner> {
        Some(self.pool.returner())
    }
}

impl SyscallRx for Probe {
    fn recv(&mut self, _room: &mut Segments<'_>) -> Result<Recv, Fault> {
        Ok(Recv::Empty)
    }
}

impl OwningTx for Probe {
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(Some(FILL))
    }

    fn capacity(&self) -> Option<u32> {
        Some(CAPACITY)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(burst.frames().len() - from)
    }

    fn reserve(&mut self, _max: u32) -> Result<Option<Segments<'_>>, Fault> {
        Ok(None)
    }

    fn commit(&mut self, _frame: &FrameMeta) {}

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn hold(&mut self, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}

impl SyscallTx for Probe {
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(Some(FILL))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(burst.frames().len() - from)
    }
}

/// Names in `found` with the value false: methods with calls that did not reach the probe.
fn hidden(found: impl IntoIterator<Item = (&'static str, bool)>) -> Vec<&'static str> {
    found.into_iter().filter(|(_, reached)| !reached).map(|(name, _)| name).collect()
}

fn reached_of_queue(queue: &mut dyn Queue, calls: &Calls) -> [(&'static str, bool); 3] {
    queue.park();
    queue.prefetch();
    [
        ("park", calls.park.load(Ordering::Relaxed)),
        ("prefetch", calls.prefetch.load(Ordering::Relaxed)),
        ("hold_off", queue.hold_off() == HOLD_OFF),
    ]
}

/// Names of the methods of an RX queue that the wrapper hides. `owning`: true for an owning queue,
/// false for a system-call queue.
///
/// # Errors
/// Fails if the memory of the probe cannot be allocated, or with a fault of the wrapper.
pub fn hidden_by_rx(
    owning: bool,
    wrap: impl FnOnce(Rx) -> Rx,
) -> Result<Vec<&'static str>, Box<dyn std::error::Error>> {
    let probe = Probe::new()?;
    let calls = probe.calls.clone();
    let mut rx = wrap(match owning {
        true => Rx::Owning(Box::new(probe)),
        false => Rx::Syscall(Box::new(probe)),
    });
    let queue = reached_of_queue(rx.queue(), &calls);
    let Rx::Owning(mut rx) = rx else { return Ok(hidden(queue)) };
    rx.peek(&mut Burst::new(), 1)?;
    let kept = rx.detach()?;
    let returner = rx.returner();
    let memory = [("detach", kept.is_some()), ("returner", returner.is_some())];
    if let (Some(kept), Some(mut returner)) = (kept, returner) {
        kept.free(&mut returner);
    }
    Ok(hidden(queue.into_iter().chain(memory)))
}

/// Names of the methods of a TX queue that the wrapper hides. `owning`: true for an owning queue,
/// false for a system-call queue.
///
/// # Errors
/// Fails if the memory of the probe cannot be allocated, or with a fault of the wrapper.
pub fn hidden_by_tx(
    owning: bool,
    wrap: impl FnOnce(Tx) -> Tx,
) -> Result<Vec<&'static str>, Box<dyn std::error::Error>> {
    let probe = Probe::new()?;
    let calls = probe.calls.clone();
    let mut tx = wrap(match owning {
        true => Tx::Owning(Box::new(probe)),
        false => Tx::Syscall(Box::new(probe)),
    });
    let queue = reached_of_queue(tx.queue(), &calls);
    let fill = [("fill", tx.fill(u32::MAX)? == Some(FILL))];
    let Tx::Owning(tx) = tx else { return Ok(hidden(queue.into_iter().chain(fill))) };
    let capacity = [("capacity", tx.capacity() == Some(CAPACITY))];
    Ok(hidden(queue.into_iter().chain(fill).chain(capacity)))
}
