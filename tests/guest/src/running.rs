//! Running guest.

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

/// Maximum number of boot attempts, and time limit of an attempt: several times the usual duration.
const BOOTS: u32 = 5;
const BOOT_PATIENCE: Duration = Duration::from_secs(60);

/// Running guest; killed on drop.
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

    /// Kills the guest and starts it again.
    pub(crate) fn again(mut self, accel: Accel) -> Result<Self> {
        self.kill();
        Self::start(self.guest.clone(), self.parts.clone(), accel)
    }

    /// Waits for the boot. Returns false if the guest ends, or `patience` expires, before the guest
    /// has booted.
    pub(crate) fn boots_within(&mut self, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            // Check the process before reading the console, so that output before its end is not
            // missed.
            let is_over = self.child.try_wait()?.is_some() || Instant::now() >= deadline;
            self.console.read()?;
            if self.console.booted().is_some() || is_over {
                return Ok(self.console.booted().is_some());
            }
            sleep(POLL);
        }
    }

    /// Waits for the boot, and restarts a guest that does not boot in time, up to `BOOTS`
    /// attempts. Emulated processors sometimes lose a timer interrupt during boot; `init.sh`
    /// detects this before any test starts.
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

    /// Process id of QEMU (`setpriv` and `ip` execute it in their process).
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        // Both calls fail only if QEMU has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the console shows `words`. An error if the guest ends first, or its time limit
    /// expires.
    pub fn says(&mut self, words: &str) -> Result<()> {
        loop {
            // Check the process before reading the console, so that output before its end is not
            // missed.
            let ended = self.child.try_wait()?.is_some();
            self.console.read()?;
            if self.console.has(words) {
                return Ok(());
            }
            if ended || self.started.elapsed() > self.guest.limit {
                let text = format!("the guest never printed '{words}'");
                return Err(failure(&text, &self.console).into());
            }
            sleep(POLL);
        }
    }

    /// Waits until the guest has switched itself off, and reads its results.
    pub fn wait(mut self) -> Result<Outcome> {
        let ended = self.ends()?;
        let wall = self.started.elapsed();
        // Remove the initramfs archive: the guest had it in memory.
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

    /// Waits for the end of QEMU. Returns false if the time limit expires first.
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
