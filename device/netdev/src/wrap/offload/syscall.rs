//! Offload emulation for a system-call queue: the system call gathers headers and payload.

use super::Finisher;
use crate::{Burst, Fault, Fill, SyscallTx};

pub(super) struct SyscallQueue {
    pub(super) inner: Box<dyn SyscallTx>,
    pub(super) finisher: Finisher,
}

forward_queue!(SyscallQueue);

impl SyscallTx for SyscallQueue {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let inner = &mut *self.inner;
        self.finisher.send(burst, from, |burst, from| inner.submit(burst, from))
    }
}
