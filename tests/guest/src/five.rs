//! The kernel as reference for the five systems. In one guest, the kernel's implementation and
//! mqnet receive the same requests; the kernel's network tests run on mqnet netdevs.
//!
//! `book/src/explanation/five-systems.md` explains each difference. The differences found must
//! equal the documented ones.

mod answers;
mod compare;
mod explained;
mod kernel_tests;
mod report;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub use answers::Answer;
pub use compare::{Difference, Probe};
pub use explained::Explained;
pub use kernel_tests::KernelTests;
pub use report::Report;

use crate::cards::{Cards, Endpoint};
use crate::guest::{Guest, Outcome};
use crate::kernel::Kernel;
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, ntb, programs, selftests};

const SCRIPT: &str = include_str!("../scripts/five.sh");
const YNL: &str = include_str!("../scripts/ynl.py");
const MEMORY_MIB: u32 = 1024;
/// Queue pairs of a virtio-net device.
const PAIRS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(1800);

/// Downloads the files of the comparison, unless they are cached.
pub fn prepare() -> Result<()> {
    crate::prepare(Kernel::V7_3)?;
    ntb::prepare()?;
    tests_of_the_kernel().map(|_| ())
}

fn tests_of_the_kernel() -> Result<PathBuf> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let kernel = Kernel::V7_3.get(&store, &tools)?;
    selftests::archive(&store, &tools, &kernel)
}

/// Adds the programs of the kernel's tests, with Python, to a guest.
pub fn with_python(guest: Guest) -> Result<Guest> {
    Ok(guest.archive(tests_of_the_kernel()?))
}

/// Boots the guest, sends the requests, and compares the differences with the documented ones.
pub fn run(name: &str) -> Result<Report> {
    let tests = tests_of_the_kernel()?;
    let cards = Cards::start("five", 2, PAIRS)?;
    let guest = Guest::new(Kernel::V7_3, name).limit(LIMIT).archive(tests);
    let endpoint = Endpoint::start("five", PAIRS)?;
    let guest = endpoint.put_into(guest);
    let guest = guest.file("ynl.py", YNL).script("five", SCRIPT);
    let outcome = cards.put_into(guest, MEMORY_MIB, &[]).run()?;
    outcome.passed("five")?;
    report(&outcome, explained()?)
}

fn explained() -> Result<Explained> {
    Explained::read(&fs::read_to_string(programs::root().join(explained::FILE))?)
}

fn report(outcome: &Outcome, explained: Explained) -> Result<Report> {
    Report::new(outcome.release.clone(), Probe::all(outcome)?, explained)
}

/// Boots a guest with pairs of VDUSE and virtio-net devices, and runs the kernel's network tests on
/// both kinds. `place` is the prefix of the folders of the selected tests.
pub fn kernel_tests(name: &str, place: &str) -> Result<KernelTests> {
    let tests = tests_of_the_kernel()?;
    let known = explained()?.answers;
    KernelTests::run(Guest::new(Kernel::V7_3, name).archive(tests), place, known)
}
