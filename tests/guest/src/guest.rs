//! A guest: what it is given, its run, and what came out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::console::{Console, failure};
use crate::image::{self, Extra};
use crate::kernel::Kernel;
use crate::qemu::{Accel, Machine};
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, kernel, programs};

const POLL: Duration = Duration::from_millis(50);
/// A guest whose time nobody has set.
const LIMIT: Duration = Duration::from_secs(120);
/// With KVM a kernel boots in two seconds.
const KVM_PATIENCE: Duration = Duration::from_secs(15);

/// A guest that has not been started.
#[derive(Clone, Debug)]
pub struct Guest {
    kernel: Kernel,
    name: String,
    cpus: u32,
    memory_mib: u32,
    extras: Vec<Extra>,
    more: Vec<String>,
    limit: Duration,
    stream: bool,
}

/// One script that has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its exit status.
    pub status: i32,
    /// What it printed.
    pub output: String,
}

/// What a guest leaves behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Release of its kernel.
    pub release: String,
    /// Seconds from the kernel's start to the first script.
    pub booted_after: f64,
    /// From QEMU's start to its end.
    pub wall: Duration,
    /// The scripts that ran to their end.
    pub done: BTreeMap<String, Done>,
    /// Files that scripts have put into `$RESULTS`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The log of the console.
    pub console: PathBuf,
}

impl Guest {
    /// A guest with two CPUs and 1 GiB. `name` names its folder below `target/guest`.
    pub fn new(kernel: Kernel, name: &str) -> Self {
        Self {
            kernel,
            name: name.to_owned(),
            cpus: 2,
            memory_mib: 1024,
            extras: Vec::new(),
            more: Vec::new(),
            limit: LIMIT,
            stream: false,
        }
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Memory in MiB.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Adds a file, executable as all.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        let path = path.trim_start_matches('/').to_owned();
        self.extras.push(Extra { path, content: content.into() });
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

    /// The time that it has, from QEMU's start to its end.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Shows what the scripts print while they run, instead of keeping it.
    #[must_use]
    pub fn stream(mut self) -> Self {
        self.stream = true;
        self.file("wants-stream", "")
    }

    /// Boots it, runs its scripts, and switches it off.
    pub fn run(mut self) -> Result<Outcome> {
        let store = Store::open()?;
        let parts = self.prepare(&store)?;
        let (mut accel, known) = Accel::choose(&store)?;
        let results = parts.folder.join("results.tar");
        let started = Instant::now();
        let mut run = Run::start(&self, &parts, accel, &results)?;
        if !known {
            if run.boots_within(KVM_PATIENCE)? {
                accel.remember(&store)?;
            } else {
                drop(run);
                accel = Accel::Tcg;
                accel.remember(&store)?;
                run = Run::start(&self, &parts, accel, &results)?;
            }
        }
        let ended = run.wait(self.limit, self.stream)?;
        let wall = started.elapsed();
        fs::remove_file(&parts.initrd)?;
        let console = &run.console;
        let Some((release, booted_after)) = console.booted() else {
            return Err(failure("the guest did not boot", console).into());
        };
        if !ended {
            let text = format!("the guest was killed after {} s", self.limit.as_secs());
            return Err(failure(&text, console).into());
        }
        let (done, files) = read_results(&results)
            .map_err(|e| failure(&format!("the guest left no results: {e}"), console))?;
        let console = console.path.clone();
        Ok(Outcome { release, booted_after, wall, done, files, console })
    }

    fn prepare(&mut self, store: &Store) -> Result<Parts> {
        let tools = Tools::get(store)?;
        let kernel = self.kernel.get(store, &tools)?;
        let base = image::base(store, &tools, self.kernel, &kernel)?;
        self.extras.extend(programs::files()?);
        let folder = programs::target().join("guest").join(&self.name);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let initrd = folder.join("initrd");
        image::compose(&base, &self.extras, &initrd)?;
        Ok(Parts { tools, kernel, folder, initrd })
    }
}

/// Downloads what guests with this kernel need, unless it is in the cache.
pub fn prepare(kernel: Kernel) -> Result<()> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    let files = kernel.get(&store, &tools)?;
    image::base(&store, &tools, kernel, &files).map(|_| ())
}

/// An interactive guest on this terminal. Its status is that of QEMU.
pub fn shell(mut guest: Guest) -> Result<ExitCode> {
    guest = guest.file("wants-shell", "");
    let store = Store::open()?;
    let parts = guest.prepare(&store)?;
    let (accel, known) = Accel::choose(&store)?;
    // Somebody who sits before it should not have to wait for a trial.
    let accel = if known { accel } else { Accel::Tcg };
    let machine = guest.machine(&parts, accel);
    let results = parts.folder.join("results.tar");
    let status = machine.command(&parts.tools, "mon:stdio", &results).status()?;
    fs::remove_file(&parts.initrd)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Guest {
    fn machine<'a>(&'a self, parts: &'a Parts, accel: Accel) -> Machine<'a> {
        Machine {
            accel,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            image: &parts.kernel.image,
            initrd: &parts.initrd,
            more: &self.more,
        }
    }
}

impl Outcome {
    /// The script `name`, which must have ended with status 0.
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

    /// A file that a script has left in `$RESULTS`, as text.
    pub fn text(&self, name: &str) -> Result<String> {
        let bytes = self.files.get(name).ok_or_else(|| {
            let names: Vec<&String> = self.files.keys().collect();
            format!("the guest left no {name}, but {names:?}")
        })?;
        Ok(String::from_utf8(bytes.clone())?)
    }
}

/// What is on the disk for one run.
struct Parts {
    tools: Tools,
    kernel: kernel::Files,
    folder: PathBuf,
    initrd: PathBuf,
}

/// A running QEMU; it does not outlive its owner.
struct Run {
    child: Child,
    console: Console,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Either fails for a QEMU that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    fn start(guest: &Guest, parts: &Parts, accel: Accel, results: &Path) -> Result<Self> {
        let console = parts.folder.join("console.log");
        File::create(&console)?;
        File::create(results)?;
        let errors = File::create(parts.folder.join("qemu.log"))?;
        let machine = guest.machine(parts, accel);
        let file = format!("file:{}", console.display());
        let mut command = machine.command(&parts.tools, &file, results);
        command.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors);
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        Ok(Self { child, console: Console::new(console) })
    }

    fn boots_within(&mut self, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && self.child.try_wait()?.is_none() {
            self.console.read()?;
            if self.console.booted().is_some() {
                return Ok(true);
            }
            sleep(POLL);
        }
        Ok(false)
    }

    /// True when QEMU has ended by itself in time.
    fn wait(&mut self, limit: Duration, stream: bool) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.child.try_wait()?.is_some();
            self.console.read()?;
            if stream {
                self.console.print(&mut std::io::stdout())?;
            }
            if ended || Instant::now() >= deadline {
                return Ok(ended);
            }
            sleep(POLL);
        }
    }
}

type Results = (BTreeMap<String, Done>, BTreeMap<String, Vec<u8>>);

/// Reads the archive that `init.sh` writes: `NAME.status` and `NAME.output` of each script, and
/// files.
fn read_results(path: &Path) -> Result<Results> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(File::open(path)?).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(name, content);
        }
    }
    if files.is_empty() {
        return Err("the archive is empty".into());
    }
    let scripts = files.keys().filter_map(|name| name.strip_suffix(".status"));
    let scripts: Vec<String> = scripts.map(str::to_owned).collect();
    let mut done = BTreeMap::new();
    for script in scripts {
        let mut take = |kind: &str| {
            let bytes = files.remove(&format!("{script}.{kind}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let status = take("status").trim().parse()?;
        done.insert(script.clone(), Done { status, output: take("output") });
    }
    Ok((done, files))
}
