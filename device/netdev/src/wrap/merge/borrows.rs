//! Coalescing for a queue that sends frames by a system call, which gathers headers and payloads.

use super::Merger;
use crate::{Burst, Fault, Fill, TxBorrows};

pub(super) struct Borrows {
    pub(super) inner: Box<dyn TxBorrows>,
    pub(super) merger: Merger,
}

forward_queue!(Borrows);

impl TxBorrows for Borrows {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        self.inner.fill(enough)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let inner = &mut *self.inner;
        self.merger.send(burst, from, |burst, from| inner.submit(burst, from))
    }
}
