//! QEMU and the programs of guests: a minimal Debian in a folder. Programs run with this Debian's C
//! library, so that the host's versions do not matter.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::apt::{Apt, run};
use crate::store::Store;

/// Packages, which are unpacked with their dependencies.
const PACKAGES: [&str; 10] = [
    "qemu-system-x86",
    "seabios",
    "busybox-static",
    "bash",
    "iproute2",
    "ethtool",
    "iperf3",
    "iputils-ping",
    "kmod",
    "xz-utils",
];

const LIBRARIES: [&str; 3] =
    ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio"];
const LOADER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

/// Folder with unpacked packages.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    root: PathBuf,
}

impl Tools {
    pub(crate) fn get(store: &Store) -> Result<Self> {
        let root = store.folder("tools", &PACKAGES.join(" "), |root| {
            Apt::update(store)?.unpack_with_dependencies(&PACKAGES, root)
        })?;
        Ok(Self { root })
    }

    /// Packages that are already unpacked in a folder, with their C library.
    pub(crate) fn unpacked(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Path of the folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Path of a file in this Debian, with or without `/usr`.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        let plain = self.root.join(path);
        if plain.exists() { plain } else { self.root.join("usr").join(path) }
    }

    /// Command that runs a program of this Debian on the host, with this Debian's libraries.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.library_path()).arg(self.file(program));
        command
    }

    /// Command that runs kmod as `depmod`: kmod selects its function by `argv[0]`.
    pub(crate) fn depmod(&self) -> Command {
        let mut command = Command::new(self.loader());
        command.args(["--argv0", "depmod", "--library-path"]).arg(self.library_path());
        command.arg(self.file("bin/kmod"));
        command
    }

    /// Paths of the shared libraries of a program.
    pub(crate) fn libraries(&self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut command = Command::new(self.loader());
        let listing = command.arg("--library-path").arg(self.library_path()).arg("--list");
        let text = run(listing.arg(program))?;
        let path = |line: &str| Some(line.split_once("=> ")?.1.split(" (").next()?.into());
        Ok(text.lines().filter_map(path).collect())
    }

    pub(crate) fn loader(&self) -> PathBuf {
        self.file(LOADER)
    }

    fn library_path(&self) -> String {
        LIBRARIES.map(|folder| self.root.join(folder).display().to_string()).join(":")
    }
}
