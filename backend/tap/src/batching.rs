//! Whether frames are written many at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mqnet_shmem::BatchWriter;
use mqnet_sysio::uring;
use mqnet_wire::VNET_HDR_LEN;

use crate::Io;

/// What writes many frames of one queue at once, where that is to be had.
pub(crate) type Batch = Option<BatchWriter<VNET_HDR_LEN>>;

fn missing(why: &io::Error) -> String {
    format!("io=uring: {why}: see 'mqnet doctor' (io=auto does without)")
}

/// What `wanted` comes to on this kernel: with [`Io::Auto`] as the answer frames can be written
/// many at once.
pub(crate) fn choose(wanted: Io, queue: &OwnedFd) -> Result<Io, String> {
    if wanted == Io::Plain {
        return Ok(wanted);
    }
    match uring::supports(queue.as_fd()) {
        Ok(()) => Ok(wanted),
        Err(_) if wanted == Io::Auto => Ok(Io::Plain),
        Err(e) => Err(missing(&e)),
    }
}

/// For `queues` queues.
pub(crate) fn batches(io: Io, queues: u16) -> Result<Vec<Batch>, String> {
    let one = |_| match io {
        Io::Uring => BatchWriter::new().map(Some).map_err(|e| missing(&e)),
        // Descriptors can run out; to write frames one by one needs none.
        Io::Auto => Ok(BatchWriter::new().ok()),
        Io::Plain => Ok(None),
    };
    (0..queues).map(one).collect()
}
