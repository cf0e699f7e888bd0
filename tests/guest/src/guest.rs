//! Configuration, run and results of a guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::image::{self, Extra};
use crate::kernel::Kernel;
use crate::ntb;
use crate::qemu::{Accel, Machine};
use crate::running::Running;
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, kernel, programs};

/// Default time limit.
const LIMIT: Duration = Duration::from_secs(120);
/// Time limit of a trial boot with KVM, several times the usual duration.
const KVM_PATIENCE: Duration = Duration::from_secs(15);

/// Configuration of a guest before its start.
#[derive(Clone, Debug)]
pub struct Guest {
    kernel: Kernel,
    name: String,
    cpus: u32,
    memory_mib: u32,
    extras: Vec<Extra>,
    archives: Vec<PathBuf>,
    words: String,
    more: Vec<String>,
    pub(crate) limit: Duration,
    pub(crate) stream: bool,
    bare: bool,
    vfio_user: bool,
    netns: Option<String>,
    pub(crate) arrives: bool,
}

/// Result of a script that has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Exit status.
    pub status: i32,
    /// Standard output and standard error.
    pub output: String,
}

/// Results of a guest.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Release of the kernel.
    pub release: String,
    /// Seconds from the kernel's start to the first script.
    pub booted_after: f64,
    /// Time from QEMU's start to its end.
    pub wall: Duration,
    /// Results of scripts that ran to their end, by name.
    pub done: BTreeMap<String, Done>,
    /// Files that scripts have written to `$RESULTS`, by name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Path of the console log.
    pub console: PathBuf,
}

impl Guest {
    /// Guest with two CPUs and 1 GiB of memory. `name` is the name of the guest's folder below
    /// `target/guest`.
    pub fn new(kernel: Kernel, name: &str) -> Self {
        Self {
            kernel,
            name: name.to_owned(),
            cpus: 2,
            memory_mib: 1024,
            extras: Vec::new(),
            archives: Vec::new(),
            words: String::new(),
            more: Vec::new(),
            limit: LIMIT,
            stream: false,
            bare: false,
            vfio_user: false,
            netns: None,
            arrives: false,
        }
    }

    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Sets the memory in MiB.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Adds an executable file.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        let path = path.trim_start_matches('/').to_owned();
        self.extras.push(Extra { path, content: content.into() });
        self
    }

    /// Adds the content of an initramfs archive.
    pub(crate) fn archive(mut self, path: PathBuf) -> Self {
        self.archives.push(path);
        self
    }

    /// Adds a script for bash. Scripts run in the order of their names.
    #[must_use]
    pub fn script(self, name: &str, text: &str) -> Self {
        self.file(&format!("scripts/{name}"), text)
    }

    /// Adds arguments of QEMU.
    #[must_use]
    pub fn qemu(mut self, arguments: &[&str]) -> Self {
        self.more.extend(arguments.iter().map(|&text| text.to_owned()));
        self
    }

    /// Runs QEMU in the network namespace `name`, which must contain the guest's TAPs.
    #[must_use]
    pub fn netns(mut self, name: &str) -> Self {
        self.netns = Some(name.to_owned());
        self
    }

    /// Sets additional kernel arguments.
    #[must_use]
    pub fn boot_words(mut self, words: &str) -> Self {
        self.words = words.to_owned();
        self
    }

    /// Sets the time limit from QEMU's start to its end.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Prints the output of the scripts while they run, instead of storing it.
    #[must_use]
    pub fn stream(mut self) -> Self {
        self.stream = true;
        self.file("wants-stream", "")
    }

    /// Omits the project's programs, so that nothing is built.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Selects QEMU 11 and adds the kernel's NTB drivers in [`ntb::MODULES`]. The guest's memory is
    /// a memory file, which QEMU shares with vfio-user servers.
    #[must_use]
    pub fn with_ntb(mut self) -> Self {
        self.vfio_user = true;
        self
    }

    /// Makes QEMU wait for an incoming migration instead of booting. `from` is QEMU's URI of the
    /// channel.
    #[must_use]
    pub fn arriving(mut self, from: &str) -> Self {
        self.arrives = true;
        self.qemu(&["-incoming", from])
    }

    /// Boots the guest, runs its scripts, and waits until the guest has switched itself off.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.boots()?.wait()
    }

    /// Starts the guest; [`Running::wait`] returns its results.
    pub fn start(mut self) -> Result<Running> {
        let store = Store::open()?;
        let parts = self.prepare(&store)?;
        let (accel, known) = Accel::choose(&store)?;
        if known || self.arrives {
            let accel = if known { accel } else { Accel::Tcg };
            return Running::start(self, parts, accel);
        }
        let mut running = Running::start(self, parts, accel)?;
        if running.boots_within(KVM_PATIENCE)? {
            accel.remember(&store)?;
            return Ok(running);
        }
        Accel::Tcg.remember(&store)?;
        running.again(Accel::Tcg)
    }

    fn prepare(&mut self, store: &Store) -> Result<Parts> {
        let tools = Tools::get(store)?;
        let kernel = self.kernel.get(store, &tools)?;
        let base = image::base(store, &tools, self.kernel, &kernel)?;
        let mut qemu = tools.clone();
        if self.vfio_user {
            qemu = ntb::qemu(store)?;
            self.archives.push(ntb::modules(store, &tools, &kernel)?);
            // vfio-user servers need shared memory. A guest with vhost-user devices already has a
            // memory backend.
            if !self.more.iter().any(|word| word.starts_with("memory-backend=")) {
                let memory = self.memory_mib;
                self.more.extend([
                    "-object".to_owned(),
                    format!("memory-backend-memfd,id=memory,size={memory}M,share=on"),
                    "-machine".to_owned(),
                    "memory-backend=memory".to_owned(),
                ]);
            }
        }
        if !self.bare {
            self.extras.extend(programs::files()?);
        }
        let folder = programs::target().join("guest").join(&self.name);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let initrd = folder.join("initrd");
        image::compose(&base, &self.archives, &self.extras, &initrd)?;
        Ok(Parts { qemu, kernel, folder, initrd })
    }
}

/// Downloads the files for guests with this kernel, unless they are cached.
pub fn prepare(kernel: Kernel) -> Result<()> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let files = kernel.get(&store, &tools)?;
    image::base(&store, &tools, kernel, &files).map(|_| ())
}

/// Runs an interactive guest on this terminal. Returns the status of QEMU.
pub fn shell(mut guest: Guest) -> Result<ExitCode> {
    guest = guest.file("wants-shell", "");
    let store = Store::open()?;
    let parts = guest.prepare(&store)?;
    let (accel, known) = Accel::choose(&store)?;
    // Use TCG if KVM is not known to work: a trial would delay the user.
    let accel = if known { accel } else { Accel::Tcg };
    let machine = guest.machine(&parts, accel);
    let results = parts.folder.join("results.tar");
    let status = machine.command(&parts.qemu, "mon:stdio", &results).status()?;
    fs::remove_file(&parts.initrd)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Guest {
    pub(crate) fn machine<'a>(&'a self, parts: &'a Parts, accel: Accel) -> Machine<'a> {
        Machine {
            accel,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            image: &parts.kernel.image,
            initrd: &parts.initrd,
            words: &self.words,
            more: &self.more,
            netns: self.netns.as_deref(),
        }
    }
}

impl Outcome {
    /// Result of the script `name`. An error unless the script ended with status 0.
    pub fn passed(&self, name: &str) -> Result<&Done> {
        let console = self.console.display();
        match self.done.get(name) {
            Some(done) if done.status == 0 => Ok(done),
            Some(Done { status, output }) => {
                let text = format!("script {name}: status {status}\n{output}\nconsole: {console}");
                Err(text.into())
            }
            None => Err(format!("no script {name} has run; console: {console}").into()),
        }
    }

    /// Text of a file that a script has written to `$RESULTS`; an error if the file does not exist.
    pub fn text(&self, name: &str) -> Result<String> {
        let bytes = self.files.get(name).ok_or_else(|| {
            let names: Vec<&String> = self.files.keys().collect();
            format!("the guest left no {name}, but {names:?}")
        })?;
        Ok(String::from_utf8(bytes.clone())?)
    }
}

/// Files of one run on the disk.
#[derive(Clone)]
pub(crate) struct Parts {
    /// Folder with QEMU and its libraries.
    pub(crate) qemu: Tools,
    pub(crate) kernel: kernel::Files,
    pub(crate) folder: PathBuf,
    pub(crate) initrd: PathBuf,
}
