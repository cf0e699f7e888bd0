//! Selection of batched writes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mqnet_shmem::BatchWriter;
use mqnet_sysio::uring;
use mqnet_wire::VNET_HDR_LEN;

use crate::Io;

/// Writer of many frames of one queue per system call; `None` for writes of single frames.
pub(crate) type Batch = Option<BatchWriter<VNET_HDR_LEN>>;

fn missing(why: &io::Error) -> String {
    format!("io=uring: {why}: see 'mqnet doctor', or use io=auto")
}

/// Method of writing for this kernel: `wanted`, or `Plain` if `Auto` is wanted and batches are
/// unavailable. `Err` if `Uring` is wanted and unavailable.
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

/// Creates one batch writer per queue; `None` for queues that write frame by frame. `Err` if
/// `Uring` is wanted and a writer cannot be created.
pub(crate) fn batches(io: Io, queues: u16) -> Result<Vec<Batch>, String> {
    let one = |_| match io {
        Io::Uring => BatchWriter::new().map(Some).map_err(|e| missing(&e)),
        // A failure selects single writes, which need no descriptor: a lack of descriptors is no
        // error.
        Io::Auto => Ok(BatchWriter::new().ok()),
        Io::Plain => Ok(None),
    };
    (0..queues).map(one).collect()
}
