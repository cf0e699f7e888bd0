//! Which queue the kernel puts a frame into: our program in the kernel, and the table that it
//! looks up.
//!
//! The kernel's own choice hashes over the number of attached queues, so a change of that number
//! moves nearly every flow at once, and nothing keeps flows off a queue that is about to go. Here a
//! flow has a bucket for ever, and a table says which queue a bucket goes to: a change moves the
//! buckets that it must and no others, at a time that we choose.

mod hash;
mod program;
mod rules;
mod table;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mqnet_netdev::FlowRule;
use mqnet_sysio::bpf::{Array, Program};
use mqnet_sysio::tap as sys;
use mqnet_wire::Layer;

pub use hash::bucket;
pub use table::{BUCKETS, Table, rebalance, spread};

/// The program in the kernel and its table.
#[derive(Debug)]
pub struct Steering {
    array: Array,
    program: Program,
    table: Table,
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
    /// Loads the program for such frames with a table; it does nothing until it is attached to a
    /// device.
    pub fn load(table: &Table, layer: Layer) -> io::Result<Self> {
        let array =
            Array::create(BUCKETS as u32).map_err(|e| explain("the table of queues", &e))?;
        for (key, &queue) in (0..).zip(table) {
            array.set(key, u32::from(queue)).map_err(|e| explain("the table of queues", &e))?;
        }
        let program =
            program::load(&array, layer, &[]).map_err(|e| explain("the steering program", &e))?;
        Ok(Self { array, program, table: *table, layer })
    }

    /// Makes the device of `fd` ask the program. It stays so when `self` is dropped; the kernel's
    /// own choice returns with [`detach`].
    pub fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_steering(fd, Some(self.program.as_fd()))
            .map_err(|e| explain("attaching the steering program", &e))
    }

    /// Moves the buckets in which `table` differs. Frames that the kernel is just sending may still
    /// go by the old table. After an error, [`Steering::table`] tells how far it came.
    pub fn set(&mut self, table: &Table) -> io::Result<()> {
        for ((key, now), &wanted) in (0..).zip(&mut self.table).zip(table) {
            if *now != wanted {
                let set = self.array.set(key, u32::from(wanted));
                set.map_err(|e| explain("the table of queues", &e))?;
                *now = wanted;
            }
        }
        Ok(())
    }

    /// Lets flows of these rules go elsewhere, in the order of the list. The program is another one
    /// then, over the same table: it has to be attached.
    pub fn set_rules(&mut self, rules: &[FlowRule]) -> io::Result<()> {
        let program = program::load(&self.array, self.layer, rules);
        self.program = program.map_err(|e| explain("the steering program with rules", &e))?;
        Ok(())
    }

    /// Which queue each bucket goes to.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

/// Gives the choice of queues back to the kernel.
pub fn detach(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_steering(fd, None).map_err(|e| explain("detaching the steering program", &e))
}
