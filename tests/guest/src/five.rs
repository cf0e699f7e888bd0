//! The five systems of the kernel as reference: the same questions to the kernel's implementation
//! and to ours in one guest, and the kernel's own network tests on netdevs of ours.
//!
//! `docs/five-systems.md` explains each difference; what it has and what is found must be the same.

mod compare;
mod explained;
mod report;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use compare::{Answer, Difference, Probe};
pub use explained::Explained;
pub use report::Report;

use crate::guest::{Guest, Outcome};
use crate::kernel::Kernel;
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, programs, selftests};

const SCRIPT: &str = include_str!("../scripts/five.sh");
const YNL: &str = include_str!("../scripts/ynl.py");
const MEMORY_MIB: u32 = 1024;
const PAIRS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(1800);
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Programs among the kernel's tests that can be pointed at a netdev and need nothing that guests
/// lack (a compiler, netdevsim).
const SELFTESTS: [&str; 2] = ["queues", "stats"];

/// Downloads what the comparison needs, unless it is in the cache.
pub fn prepare() -> Result<()> {
    crate::prepare(Kernel::V7_3)?;
    tests_of_the_kernel().map(|_| ())
}

fn tests_of_the_kernel() -> Result<PathBuf> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let kernel = Kernel::V7_3.get(&store, &tools)?;
    selftests::archive(&store, &tools, &kernel)
}

/// Boots the guest, asks, and compares with what is explained.
pub fn run(name: &str) -> Result<Report> {
    let tests = tests_of_the_kernel()?;
    let cards = Cards::start()?;
    let words = format!("SELFTESTS='{}'\n{SCRIPT}", SELFTESTS.join(" "));
    let guest = Guest::new(Kernel::V7_3, name).limit(LIMIT).memory(MEMORY_MIB).archive(tests);
    let guest = guest.file("ynl.py", YNL).script("five", &words);
    let outcome = cards.put_into(guest).run()?;
    outcome.passed("five")?;
    let text = fs::read_to_string(programs::root().join(explained::FILE))?;
    report(&outcome, &text)
}

fn report(outcome: &Outcome, explained: &str) -> Result<Report> {
    Report::new(
        outcome.release.clone(),
        Probe::all(outcome)?,
        Answer::all(outcome, &SELFTESTS)?,
        Explained::read(explained)?,
    )
}

/// A link of mqnet on the host between two cards of the guest; it ends with its owner.
struct Cards {
    link: Child,
    folder: PathBuf,
}

impl Cards {
    fn start() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mqnet-five-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let log = fs::File::create(folder.join("log"))?;
        let mut command = Command::new(programs::program("mqnet"));
        command.args(["link", "--json", "--control-socket", "none"]);
        command.args([0, 1].map(|card| format!("vhost-user:{}", socket(&folder, card).display())));
        command.args(["--channels", &PAIRS.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let link = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let mut cards = Self { link, folder };
        let deadline = Instant::now() + PATIENCE;
        while ![0, 1].iter().all(|&card| socket(&cards.folder, card).exists()) {
            if Instant::now() > deadline || cards.link.try_wait()?.is_some() {
                let said = fs::read_to_string(cards.folder.join("log")).unwrap_or_default();
                return Err(format!("the host's link of the cards did not start: {said}").into());
            }
            sleep(POLL);
        }
        Ok(cards)
    }

    fn put_into(&self, guest: Guest) -> Guest {
        let memory = format!("memory-backend-memfd,id=mem,size={MEMORY_MIB}M,share=on");
        let guest = guest.qemu(&["-machine", "memory-backend=mem", "-object", &memory]);
        [0, 1].into_iter().fold(guest, |guest, card| {
            let path = socket(&self.folder, card);
            let chardev = format!("socket,id=c{card},path={},reconnect-ms=200", path.display());
            let netdev = format!("vhost-user,id=n{card},chardev=c{card},queues={PAIRS}");
            let vectors = 2 * PAIRS + 2;
            let device = format!(
                "virtio-net-pci,netdev=n{card},mq=on,vectors={vectors},mac=02:00:00:00:05:0{card}"
            );
            guest.qemu(&["-chardev", &chardev, "-netdev", &netdev, "-device", &device])
        })
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        // Each fails for what is gone already.
        let _ = self.link.kill();
        let _ = self.link.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn socket(folder: &Path, card: u32) -> PathBuf {
    folder.join(format!("card{card}"))
}
