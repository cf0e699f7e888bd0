//! Peer programs: C sources that use DPDK, compiled when first needed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Result;
use super::child::{self, Child, RunFolder};
use super::hugepages::HugePages;
use super::pingpong::Slice;

/// Source of a C program that is embedded in this program.
#[derive(Debug)]
pub(super) struct Source {
    name: &'static str,
    text: &'static str,
    flags: &'static [&'static str],
}

/// Rings and pools in time slices. DPDK's hot loops are inlined from headers, so the peer is
/// compiled for all instructions of this CPU.
pub(super) const SLICES: Source =
    Source { name: "slices", text: include_str!("../peers/slices.c"), flags: &["-march=native"] };

/// Note on the instruction sets of mqnet and of the peer. They decide the rate of copies of a few
/// hundred bytes.
pub(super) const COMPILED: &str = if cfg!(target_feature = "avx2") {
    "the peer is compiled with -march=native, mqnet at least for AVX2"
} else {
    "the peer is compiled with -march=native, mqnet without AVX2 \
     (RUSTFLAGS=-Ctarget-cpu=native gives both the same)"
};

/// Rings, pools, a memif link and vhost-user on one core, for callgrind. Callgrind does not support
/// the newest instructions, so the program is compiled for DPDK's minimum.
pub(super) const ONECORE: Source = Source {
    name: "onecore",
    text: include_str!("../peers/onecore.c"),
    flags: &["-DALLOW_EXPERIMENTAL_API", "-lrte_bus_vdev", "-lrte_vhost"],
};

/// Runs a short command; the error names the package to install.
fn output(program: &str, package: &str, args: &[&str]) -> Result<String> {
    let run = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = run.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{program} is missing: apt-get install {package}"),
        _ => format!("cannot run {program}: {error}"),
    })?;
    if !done.status.success() {
        let why = child::last_lines(&String::from_utf8_lossy(&done.stderr));
        return Err(format!("{program} failed: {why} (apt-get install {package})").into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Checks that a program is installed.
pub(super) fn needs(program: &str, package: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(format!("{program} is missing: apt-get install {package}").into())
}

/// Compiles a source unless the cache contains the program; returns the path of the program.
pub(super) fn build(source: &Source) -> Result<PathBuf> {
    needs("gcc", "gcc")?;
    let query = ["--cflags", "--libs", "libdpdk"];
    needs("pkg-config", "pkg-config")?;
    let dpdk = output("pkg-config", "libdpdk-dev", &query)?;
    let version = output("pkg-config", "libdpdk-dev", &["--modversion", "libdpdk"])?;
    let mut hasher = DefaultHasher::new();
    (source.text, source.flags, &dpdk, version).hash(&mut hasher);
    let folder = child::cache_folder()?;
    let program = folder.join(format!("{}-{:016x}", source.name, hasher.finish()));
    if program.is_file() {
        return Ok(program);
    }
    // The program is renamed after compilation, so that an interrupted compilation leaves no
    // partial program.
    let stem = format!("{}.{}", source.name, std::process::id());
    let (text, fresh) = (folder.join(format!("{stem}.c")), folder.join(format!("{stem}.new")));
    let failed = |error| format!("cannot write to {}: {error}", folder.display());
    std::fs::write(&text, source.text).map_err(failed)?;
    let (input, result) = (text.to_string_lossy(), fresh.to_string_lossy());
    let mut args = vec!["-O3", "-std=gnu11", "-Wall", "-o", &result, &input];
    args.extend(dpdk.split_whitespace());
    args.extend(source.flags);
    let compiled = output("gcc", "gcc libdpdk-dev", &args);
    std::fs::remove_file(&text).map_err(failed)?;
    compiled?;
    std::fs::rename(&fresh, &program).map_err(failed)?;
    Ok(program)
}

/// Compiles a program that needs no library.
pub(super) fn build_plain(folder: &RunFolder, name: &str, text: &str) -> Result<PathBuf> {
    needs("gcc", "gcc libc6-dev")?;
    let (source, program) = (folder.path.join(format!("{name}.c")), folder.path.join(name));
    std::fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
    let (input, result) = (source.to_string_lossy(), program.to_string_lossy());
    let args = ["-O3", "-std=gnu11", "-Wall", "-pthread", "-o", &result, &input];
    output("gcc", "gcc libc6-dev", &args)?;
    Ok(program)
}

/// Process with DPDK's rings and pools, which sleeps between its slices.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
}

impl Peer {
    /// Compiles and starts the peer, and waits until it is ready.
    pub(super) fn start(cpus: [usize; 2], pages: &HugePages) -> Result<Self> {
        let program = build(&SLICES)?;
        let mut command = child::guarded(program)?;
        let [a, b] = cpus;
        command.arg("--lcores").arg(format!("0@{a},1@{b}")).args(["--no-pci", "--log-level", "4"]);
        command.args(pages.eal(128));
        let child = Child::spawn("the DPDK peer", command, Stdio::piped())?;
        let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
        child.wait_for(0, Duration::from_secs(30), ready)?;
        Ok(Self { child })
    }

    /// Runs one slice of `what`.
    pub(super) fn slice(&mut self, what: &str, length: Duration) -> Result<Slice> {
        let mark = self.child.mark();
        self.child.say(&format!("{what} {}", length.as_millis()))?;
        let answer = |text: &str| {
            let (line, _) = text.split_once('\n')?;
            Some(line.to_owned())
        };
        let line = self.child.wait_for(mark, length + Duration::from_secs(10), answer)?;
        parse(&line).ok_or_else(|| format!("the DPDK peer printed {line:?} to {what}").into())
    }
}

/// Parses `ok OBJECTS SECONDS [BEFORE_NS AFTER_NS]`; none for any other text.
fn parse(line: &str) -> Option<Slice> {
    let mut words = line.strip_prefix("ok ")?.split_whitespace();
    let objects = words.next()?.parse().ok()?;
    let seconds = words.next()?.parse().ok()?;
    let distances = words.map(str::parse).collect::<std::result::Result<Vec<f64>, _>>().ok()?;
    (distances.is_empty() || distances.len() == 2).then_some(Slice { objects, seconds, distances })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only the peer's own format is accepted as a result.
    #[test]
    fn answers_are_parsed_strictly() {
        let slice = parse("ok 640 0.02 41.5 250").unwrap();
        assert_eq!((slice.objects, slice.seconds), (640, 0.02));
        assert_eq!(slice.distances, [41.5, 250.0]);
        assert!(parse("ok 640 0.02").unwrap().distances.is_empty());
        for line in ["error no pool", "ok", "ok 1", "ok 1 2 3", "ok x 2", "EAL: ok 1 2"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }

    // Goal: the error for a missing program names its package.
    #[test]
    fn missing_programs_are_named() {
        let why = needs("mqnet-no-such-program", "package").unwrap_err().to_string();
        assert_eq!(why, "mqnet-no-such-program is missing: apt-get install package");
    }
}
