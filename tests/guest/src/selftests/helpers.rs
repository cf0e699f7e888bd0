//! Compiled helpers of the kernel's tests: programs in C and in BPF. The host's compiler and
//! headers are not used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::apt::run;
use crate::tools::Tools;

/// Compiled helpers, relative to the folder of the tests. Not listed are helpers for a library that
/// the kernel's build creates (ynl) or that Debian 12 lacks (liburing with zero-copy receive).
const PROGRAMS: [&str; 5] = [
    "drivers/net/napi_id_helper",
    "drivers/net/so_txtime",
    "net/lib/csum",
    "net/lib/gro",
    "net/lib/xdp_helper",
];
const BPF: [&str; 5] = [
    "drivers/net/hw/nk_forward",
    "drivers/net/hw/nk_primary_rx_redirect",
    "net/lib/xdp_dummy",
    "net/lib/xdp_metadata",
    "net/lib/xdp_native",
];

const TESTS: &str = "tools/testing/selftests";
const COMPILER: &str = "lib/llvm-14/bin/clang";
/// Folder of clang's headers.
const RESOURCES: &str = "lib/llvm-14/lib/clang/14.0.6";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LINKER: &str = "bin/x86_64-linux-gnu-ld.bfd";

/// Compiles all helpers in place, in the kernel's source at `kernel`.
pub(super) fn compile(debian: &Tools, kernel: &Path) -> Result<()> {
    println!("guest: compiling what the kernel's tests want");
    let tests = kernel.join(TESTS);
    for name in BPF {
        let mut clang = clang(debian, &tests, &format!("{name}.bpf"));
        run(clang.args(["--target=bpf", "-g"]))?;
    }
    for name in PROGRAMS {
        run(&mut clang(debian, &tests, name))?;
        run(&mut linker(debian, &tests.join(name)))?;
        fs::remove_file(object(&tests.join(name)))?;
    }
    Ok(())
}

fn object(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.o", path.display()))
}

/// Command that compiles `NAME.c` to `NAME.o`.
fn clang(debian: &Tools, tests: &Path, name: &str) -> Command {
    let mut command = debian.command(COMPILER);
    let include = debian.file("include");
    command.arg("-resource-dir").arg(debian.file(RESOURCES)).arg("-nostdlibinc");
    command.arg("-I").arg(tests);
    for folder in [include.clone(), include.join("x86_64-linux-gnu")] {
        command.arg("-isystem").arg(folder);
    }
    // Flags of the kernel's build.
    command.args(["-O2", "-D_GNU_SOURCE=", "-c", "-o"]);
    command.arg(object(&tests.join(name))).arg(tests.join(format!("{name}.c")));
    command
}

/// Command that links `PROGRAM.o` to `PROGRAM`, for the C library of guests.
fn linker(debian: &Tools, program: &Path) -> Command {
    let libraries = debian.root().join(LIBRARIES);
    let mut command = debian.command(LINKER);
    command.arg("--sysroot").arg(debian.root());
    command.args(["-dynamic-linker", "/lib64/ld-linux-x86-64.so.2", "-o"]).arg(program);
    command.arg(libraries.join("crt1.o")).arg(libraries.join("crti.o")).arg(object(program));
    command.arg("-L").arg(&libraries).arg("-L").arg(debian.root().join("lib/x86_64-linux-gnu"));
    command.arg("-lc").arg(libraries.join("crtn.o"));
    command
}
