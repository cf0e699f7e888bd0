//! arm64: Debian's kernels of that architecture in emulated machines, and an emulator of single
//! programs.
//!
//! A guest has busybox and the files of its caller. Its only script is the caller's, and its only
//! result is the text of the console.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::apt::Apt;
use crate::console::{Console, failure};
use crate::cpio::Archive;
use crate::kernel::{Files, Source};
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, modules, programs};

const INIT: &str = include_str!("init_arm64.sh");

/// QEMU for machines.
const QEMU: [&str; 1] = ["qemu-system-arm"];

/// QEMU for single programs: a static program.
const USER: &str = "qemu-aarch64";

/// Modules of a guest: TAP devices, and IPv6 where it is not built in.
const MODULES: [&str; 2] = ["ipv6", "tun"];

const APPEND: &str = "console=ttyAMA0 quiet loglevel=3 panic=-1 random.trust_cpu=on";

const SUITES: &[&str] = &["trixie-security", "trixie"];

/// Marker that `init_arm64.sh` writes in front of the script's exit status.
const STATUS: &str = "mqnet-guest: status ";

const POLL: Duration = Duration::from_millis(100);

/// Kernel of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm64Kernel {
    /// Debian 13's default kernel, with pages of 4 KiB.
    Pages4,
    /// Debian 13's kernel with pages of 16 KiB.
    Pages16,
}

impl Arm64Kernel {
    /// All kernels.
    pub const ALL: [Self; 2] = [Self::Pages4, Self::Pages16];

    /// Size of a page in KiB.
    pub const fn page_kib(self) -> u32 {
        match self {
            Self::Pages4 => 4,
            Self::Pages16 => 16,
        }
    }

    const fn source(self) -> Source {
        let (name, package) = match self {
            Self::Pages4 => ("6.12-arm64", "linux-image-arm64"),
            Self::Pages16 => ("6.12-arm64-16k", "linux-image-arm64-16k"),
        };
        Source { name, package, suites: SUITES }
    }

    fn files(self, store: &Store, tools: &Tools) -> Result<Files> {
        self.source().get(store, tools, Apt::update_arm64)
    }
}

/// File of a guest: its path without a leading slash, and its content.
pub type GuestFile = (String, Vec<u8>);

/// Path of the emulator of single programs. It is static and needs no other files.
pub fn emulator() -> Result<PathBuf> {
    let store = Store::open()?;
    let root = store.folder("arm64/user", "1", |root| {
        let packages = root.join("packages");
        Apt::update_trixie(&store)?.unpack_exactly(&["qemu-user".to_owned()], &packages)?;
        fs::copy(packages.join("usr/bin").join(USER), root.join(USER))?;
        // The package has emulators of all architectures, with 450 MB.
        Ok(fs::remove_dir_all(&packages)?)
    })?;
    Ok(root.join(USER))
}

/// Builds the static program for guests, and returns it.
pub fn program() -> Result<GuestFile> {
    Ok(("bin/mqnet".to_owned(), programs::build_arm64()?))
}

fn qemu(store: &Store) -> Result<Tools> {
    let root = store.folder("arm64/qemu", &QEMU.join(" "), |root| {
        Apt::update_trixie(store)?.unpack_with_dependencies(&QEMU, root)
    })?;
    Ok(Tools::unpacked(&root))
}

fn busybox(store: &Store) -> Result<PathBuf> {
    let root = store.folder("arm64/busybox", "1", |root| {
        Apt::update_arm64(store)?.unpack_exactly(&["busybox-static".to_owned()], root)
    })?;
    Ok(Tools::unpacked(&root).file("bin/busybox"))
}

/// Boots a guest that runs `script` with busybox's shell, and returns the text of its console. An
/// exit status other than 0, and a guest that runs longer than `limit`, are errors with that text.
pub fn run(
    kernel: Arm64Kernel,
    name: &str,
    files: &[GuestFile],
    script: &str,
    limit: Duration,
) -> Result<String> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let folder = programs::target().join("guest").join(name);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let kernel = kernel.files(&store, &tools)?;
    let initrd = folder.join("initrd");
    compose(&store, &tools, &kernel, files, script, &initrd)?;
    let console = folder.join("console.log");
    File::create(&console)?;
    let mut qemu = command(&qemu(&store)?, &kernel.image, &initrd, &console);
    let errors = File::create(folder.join("qemu.log"))?;
    qemu.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors);
    let ended = wait(&mut qemu, limit)?;
    fs::remove_file(&initrd)?;
    let mut console = Console::new(console);
    console.read()?;
    if !ended {
        let text = format!("the arm64 guest was killed after {} s", limit.as_secs());
        return Err(failure(&text, &console).into());
    }
    match console.after(STATUS).as_deref() {
        Some("0") => Ok(console.text()),
        Some(status) => Err(failure(&format!("script: exit status {status}"), &console).into()),
        None => Err(failure("the arm64 guest did not run its script", &console).into()),
    }
}

/// Writes the file system of a guest.
fn compose(
    store: &Store,
    tools: &Tools,
    kernel: &Files,
    files: &[GuestFile],
    script: &str,
    to: &Path,
) -> Result<()> {
    let tree = to.with_extension("modules");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    modules::install(tools, kernel, &MODULES, &tree)?;
    let mut archive = Archive::new(BufWriter::new(File::create(to)?));
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file("script", 0o755, script.as_bytes())?;
    archive.copy("bin/busybox", &busybox(store)?)?;
    archive.tree("lib/modules", &tree.join("lib/modules"))?;
    for (path, content) in files {
        archive.file(path, 0o755, content)?;
    }
    archive.finish()?;
    Ok(fs::remove_dir_all(&tree)?)
}

/// Command line of QEMU. The emulated CPU has all features, with a fast variant of pointer
/// authentication.
fn command(tools: &Tools, image: &Path, initrd: &Path, console: &Path) -> Command {
    let plain = tools.command("bin/qemu-system-aarch64");
    // The guest must end with its parent, also after a kill.
    let mut qemu = Command::new("setpriv");
    qemu.args(["--pdeathsig", "KILL", "--"]);
    qemu.arg(plain.get_program()).args(plain.get_args());
    qemu.arg("-L").arg(tools.file("share/qemu"));
    qemu.args(["-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on"]);
    qemu.args(["-smp", "2", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot"]);
    qemu.args(["-append", APPEND]).arg("-kernel").arg(image).arg("-initrd").arg(initrd);
    qemu.args(["-serial", &format!("file:{}", console.display())]);
    qemu
}

/// Runs a command; returns false if it was killed after `limit`.
fn wait(command: &mut Command, limit: Duration) -> Result<bool> {
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let deadline = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        sleep(POLL);
    }
    Ok(true)
}
