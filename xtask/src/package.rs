//! Packages of a release: `.deb`, `.rpm` and a static tarball, with a bill of materials, licenses
//! of all crates, and checksums.

mod build;
mod check;
mod deb;
mod notices;
mod others;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::{Result, project};

/// Build the packages of a release below target/packages
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Architectures
    #[arg(long = "arch", value_enum, value_delimiter = ',', default_value = "amd64")]
    architectures: Vec<Arch>,
    /// Formats
    #[arg(long = "format", value_enum, value_delimiter = ',', default_value = "deb")]
    formats: Vec<Format>,
    /// Build for all architectures in all formats
    #[arg(long, conflicts_with_all = ["architectures", "formats"])]
    all: bool,
    /// Cargo profile: `dist`, or `tested`, which is faster to build
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Check the amd64 .deb: lintian, then installation, upgrade and purge in a container with
    /// systemd (needs root)
    #[arg(long)]
    check: bool,
    /// Build twice, in two folders, and compare the files
    #[arg(long)]
    twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Deb,
    Rpm,
    Tar,
}

impl Arch {
    /// Debian's name of the architecture.
    fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Name of the architecture in the kernel, in Rust and in RPM.
    fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}

/// Parameters of one run.
struct Release {
    version: String,
    /// Commit time in seconds since 1970, used as the time of all files.
    epoch: String,
    profile: String,
    /// Folder of the packages.
    out: PathBuf,
    /// Build folder of cargo.
    target: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (architectures, formats) = match arguments.all {
        true => (vec![Arch::Amd64, Arch::Arm64], vec![Format::Deb, Format::Rpm, Format::Tar]),
        false => (arguments.architectures.clone(), arguments.formats.clone()),
    };
    let out = project::target().join("packages");
    let release = Release::new(&arguments.profile, &out, "package")?;
    let made = make(&release, &architectures, &formats)?;
    if arguments.twice {
        let folder = project::target().join("packages.again");
        let again = Release::new(&arguments.profile, &folder, "package.again")?;
        // Remove the build folder of an earlier run: cargo would reuse the programs in it.
        let _ = fs::remove_dir_all(&again.target);
        compare(&made, &make(&again, &architectures, &formats)?)?;
    }
    if arguments.check {
        check::deb(&release)?;
    }
    Ok(())
}

impl Release {
    /// Reads version and time of the release and creates an empty folder `out`. `target` is the
    /// name of cargo's build folder.
    fn new(profile: &str, out: &Path, target: &str) -> Result<Self> {
        let text = fs::read_to_string(project::root().join("Cargo.toml"))?;
        let manifest: toml::Table = text.parse()?;
        let version = manifest.get("workspace").and_then(|w| w.get("package"));
        let version = version.and_then(|p| p.get("version")).and_then(|v| v.as_str());
        let version = version.ok_or("Cargo.toml: no workspace.package.version")?.to_owned();
        // Errors are ignored: the folder may not exist.
        let _ = fs::remove_dir_all(out);
        fs::create_dir_all(out)?;
        Ok(Self {
            version,
            epoch: epoch()?,
            profile: profile.to_owned(),
            out: out.to_owned(),
            target: project::target().join(target),
        })
    }

    /// Creates an empty working folder with this name.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.out.join(".work").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// `$SOURCE_DATE_EPOCH`, or the time of the commit.
fn epoch() -> Result<String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let mut git = project::command("git");
    Ok(output(git.args(["log", "-1", "--format=%ct"]))?.trim().to_owned())
}

/// Builds all packages and the checksums; returns the files.
fn make(release: &Release, architectures: &[Arch], formats: &[Format]) -> Result<Vec<PathBuf>> {
    let notices = notices::write(release)?;
    let mut made = vec![notices.materials.clone()];
    // Man pages and completions are the same for all architectures, so an amd64 program prints
    // them.
    let texts = build::program(release, Arch::Amd64, build::Libc::Gnu, &notices)?;
    for &arch in architectures {
        if formats.iter().any(|&format| format != Format::Tar) {
            let other = match arch {
                Arch::Amd64 => None,
                Arch::Arm64 => Some(build::program(release, arch, build::Libc::Gnu, &notices)?),
            };
            let program = other.as_ref().unwrap_or(&texts);
            let stage = build::stage(release, arch, program, &texts, &notices)?;
            if formats.contains(&Format::Deb) {
                made.extend(deb::write(release, arch, &stage, &release.version)?);
            }
            if formats.contains(&Format::Rpm) {
                made.push(others::rpm(release, arch, &stage)?);
            }
        }
        if formats.contains(&Format::Tar) {
            let program = build::program(release, arch, build::Libc::Musl, &notices)?;
            let stage = build::stage(release, arch, &program, &texts, &notices)?;
            made.push(others::tarball(release, arch, &stage)?);
        }
    }
    made.push(checksums(release, &made)?);
    made.iter().for_each(|file| println!("{}", file.display()));
    Ok(made)
}

fn checksums(release: &Release, made: &[PathBuf]) -> Result<PathBuf> {
    let mut command = Command::new("sha256sum");
    command.current_dir(&release.out).args(made.iter().filter_map(|file| file.file_name()));
    let file = release.out.join("SHA256SUMS");
    fs::write(&file, output(&mut command)?)?;
    Ok(file)
}

/// Compares the files of two runs; a difference is an error.
fn compare(one: &[PathBuf], other: &[PathBuf]) -> Result<()> {
    for (a, b) in one.iter().zip(other) {
        if fs::read(a)? != fs::read(b)? {
            return Err(format!("{} and {} differ", a.display(), b.display()).into());
        }
    }
    println!("built twice: {} files are the same", one.len());
    Ok(())
}

/// Output of a command. A failure is an error with the whole output.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return Err(format!("{command:?}: {}\n{text}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
