//! Selection of the queue for each frame that the kernel sends: a BPF program and its table.
//!
//! The kernel's own selection hashes over the number of attached queues. A change of that number
//! moves nearly every flow, and flows cannot be moved away from a queue before the queue is
//! detached. With the program, each flow has a fixed bucket, and a table maps buckets to queues. A
//! change moves only the necessary buckets, at a chosen time.

mod hash;
mod program;
mod rules;
mod table;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mqnet_netdev::SteeringRule;
use mqnet_sysio::bpf::{Array, SocketFilter};
use mqnet_sysio::tap as sys;
use mqnet_wire::Layer;

pub use hash::bucket;
pub use table::{BUCKETS, BucketTable, rebalance, spread};

/// Loaded program, with its table.
#[derive(Debug)]
pub struct Steering {
    array: Array,
    program: SocketFilter,
    table: BucketTable,
    layer: Layer,
}

fn explain(what: &str, error: &io::Error) -> io::Error {
    let knob = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (needs CAP_BPF in the first user namespace: run as root, outside of 'unshare -U')"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what}: {error}{knob}"))
}

impl Steering {
    /// Loads the program for frames of this layer, with a table; `Err` if the kernel refuses, such
    /// as without CAP_BPF. The program has no effect until [`attach`](Self::attach).
    pub fn load(table: &BucketTable, layer: Layer) -> io::Result<Self> {
        let array =
            Array::create(BUCKETS as u32).map_err(|e| explain("the table of queues", &e))?;
        for (key, &queue) in (0..).zip(table) {
            array.set(key, u32::from(queue)).map_err(|e| explain("the table of queues", &e))?;
        }
        let program =
            program::load(&array, layer, &[]).map_err(|e| explain("the steering program", &e))?;
        Ok(Self { array, program, table: *table, layer })
    }

    /// Attaches the program to the device of `fd`. The program stays attached when `self` is
    /// dropped; [`detach`] restores the kernel's own selection.
    pub fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_steering(fd, Some(self.program.as_fd()))
            .map_err(|e| explain("attaching the steering program", &e))
    }

    /// Updates the buckets in which `table` differs from the present table. Frames in transit may
    /// still use the old queues. After an error, [`Steering::table`] returns the table with the
    /// updates so far.
    pub fn set(&mut self, table: &BucketTable) -> io::Result<()> {
        for ((key, now), &wanted) in (0..).zip(&mut self.table).zip(table) {
            if *now != wanted {
                let set = self.array.set(key, u32::from(wanted));
                set.map_err(|e| explain("the table of queues", &e))?;
                *now = wanted;
            }
        }
        Ok(())
    }

    /// Loads a program with these rules, in the order of the list, over the same table. The
    /// caller must attach the new program.
    pub fn set_rules(&mut self, rules: &[SteeringRule]) -> io::Result<()> {
        let program = program::load(&self.array, self.layer, rules);
        self.program = program.map_err(|e| explain("the steering program with rules", &e))?;
        Ok(())
    }

    /// Queue of each bucket.
    pub fn table(&self) -> &BucketTable {
        &self.table
    }
}

/// Restores the kernel's own queue selection.
pub fn detach(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_steering(fd, None).map_err(|e| explain("detaching the steering program", &e))
}
