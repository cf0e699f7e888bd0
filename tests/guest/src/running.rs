//! A guest that runs.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Result;
use crate::console::{Console, failure};
use crate::guest::{Guest, Outcome, Parts};
use crate::qemu::Accel;
use crate::results::read_results;

const POLL: Duration = Duration::from_millis(50);

/// How often a guest is booted, and how long each may take: several times as long as usual.
const BOOTS: u32 = 5;
const BOOT_PATIENCE: Duration = Duration::from_secs(60);

/// A running guest; it does not outlive its owner.
pub struct Running {
    guest: Guest,
    parts: Parts,
    accel: Accel,
    child: Child,
    console: Console,
    results: PathBuf,
    started: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    pub(crate) fn start(guest: Guest, parts: Parts, accel: Accel) -> Result<Self> {
        let results = parts.folder.join("results.tar");
        let console = parts.folder.join("console.log");
        File::create(&console)?;
        File::create(&results)?;
        let errors = File::create(parts.folder.join("qemu.log"))?;
        let machine = guest.machine(&parts, accel);
        let file = format!("file:{}", console.display());
        let mut command = machine.command(&parts.qemu, &file, &results);
        command.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors);
        let started = Instant::now();
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let console = Console::new(console);
        Ok(Self { guest, parts, accel, child, console, results, started })
    }

    /// Kills it and starts it anew.
    pub(crate) fn again(mut self, accel: Accel) -> Result<Self> {
        self.kill();
        Self::start(self.guest.clone(), self.parts.clone(), accel)
    }

    /// True when it says that it has booted, false when it ends before or takes longer.
    pub(crate) fn boots_within(&mut self, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            // Before the look: what it wrote before it ended is looked at.
            let is_over = self.child.try_wait()?.is_some() || Instant::now() >= deadline;
            self.console.read()?;
            if self.console.booted().is_some() || is_over {
                return Ok(self.console.booted().is_some());
            }
            sleep(POLL);
        }
    }

    /// Sees that it boots, and starts it anew where it does not. Emulated processors sometimes lose
    /// a timer interrupt while they come up (QEMU 10.0, up to one of ten boots with four of them);
    /// `init.sh` looks for that: such a guest has nothing of what it is tested for yet.
    pub fn boots(mut self) -> Result<Self> {
        let patience = BOOT_PATIENCE.min(self.guest.limit);
        for _ in 1..BOOTS {
            if self.boots_within(patience)? {
                break;
            }
            println!("{}", failure("the guest did not boot; once more", &self.console));
            let accel = self.accel;
            self = self.again(accel)?;
        }
        Ok(self)
    }

    /// The process of QEMU.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // Either fails for a QEMU that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until `words` stand on its console.
    pub fn says(&mut self, words: &str) -> Result<()> {
        loop {
            // Before the look: what it wrote before it ended is looked at.
            let ended = self.child.try_wait()?.is_some();
            self.console.read()?;
            if self.console.has(words) {
                return Ok(());
            }
            if ended || self.started.elapsed() > self.guest.limit {
                let text = format!("the guest never said '{words}'");
                return Err(failure(&text, &self.console).into());
            }
            sleep(POLL);
        }
    }

    /// Waits until it has switched itself off, and takes what it has left.
    pub fn wait(mut self) -> Result<Outcome> {
        let ended = self.ends()?;
        let wall = self.started.elapsed();
        // A guest that arrives finds its file system in its memory, not in the image.
        fs::remove_file(&self.parts.initrd)?;
        let console = &self.console;
        let booted = console.booted().or_else(|| self.guest.arrives.then(Default::default));
        let Some((release, booted_after)) = booted else {
            return Err(failure("the guest did not boot", console).into());
        };
        if !ended {
            let text = format!("the guest was killed after {} s", self.guest.limit.as_secs());
            return Err(failure(&text, console).into());
        }
        let (done, files) = read_results(&self.results)
            .map_err(|e| failure(&format!("the guest left no results: {e}"), console))?;
        let console = console.path.clone();
        Ok(Outcome { release, booted_after, wall, done, files, console })
    }

    /// True when QEMU has ended by itself in time.
    fn ends(&mut self) -> Result<bool> {
        let deadline = self.started + self.guest.limit;
        loop {
            let ended = self.child.try_wait()?.is_some();
            self.console.read()?;
            if self.guest.stream {
                self.console.print(&mut std::io::stdout())?;
            }
            if ended || Instant::now() >= deadline {
                return Ok(ended);
            }
            sleep(POLL);
        }
    }
}
