//! Checks for arm64 on another architecture: the cross-build, tests under user-mode emulation, and
//! guests with Debian's arm64 kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use mqnet_guest::arm64::{self, Arm64Kernel, GuestFile};
use serde_json::Value;

use crate::{Result, project};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

/// Root of the libraries for arm64, a part of the cross compiler's packages.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Libraries of a test program.
const LIBRARY_FILES: [&str; 4] =
    ["ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// Packages of the layers memory, packet, device and backend.
const TESTED: [&str; 20] = [
    "mqnet-sysio",
    "mqnet-shmem",
    "mqnet-rings",
    "mqnet-counters",
    "mqnet-topology",
    "mqnet-undo",
    "mqnet-pktbuf",
    "mqnet-wire",
    "mqnet-netdev",
    "mqnet-group",
    "mqnet-qdisc",
    "mqnet-virtio",
    "mqnet-vfio-user",
    "mqnet-ebpf",
    "mqnet-xdp",
    "mqnet-af-xdp",
    "mqnet-tap",
    "mqnet-ntb",
    "mqnet-vhost-user",
    "mqnet-virtio-user",
];

/// Packages that map memory. Their tests also run in a guest with larger pages.
const MAPPING: [&str; 6] = [
    "mqnet-sysio",
    "mqnet-shmem",
    "mqnet-pktbuf",
    "mqnet-af-xdp",
    "mqnet-vhost-user",
    "mqnet-virtio-user",
];

/// Test that cannot run under user-mode emulation.
struct Impossible {
    name: &'static str,
    reason: &'static str,
}

const fn impossible(name: &'static str, reason: &'static str) -> Impossible {
    Impossible { name, reason }
}

const IMPOSSIBLE: &[Impossible] = &[
    impossible(
        "descriptors::tests::descriptor_kinds_are_distinguished",
        "the emulator replaces /proc/self/stat by a memory file",
    ),
    impossible(
        "eventfd::signal::tests::every_signal_counts",
        "asynchronous I/O (`io_setup`) is missing",
    ),
    impossible(
        "eventfd::signal::tests::full_blocking_counter_saturates",
        "asynchronous I/O (`io_setup`) is missing",
    ),
    impossible(
        "eventfd::signal::tests::other_descriptors_are_refused",
        "asynchronous I/O (`io_setup`) is missing",
    ),
    impossible(
        "eventfd::tests::shared_full_blocking_eventfd_is_rung_without_waiting",
        "asynchronous I/O (`io_setup`) is missing",
    ),
    impossible(
        "nic::features::tests::active_features_are_named",
        "`SIOCETHTOOL` is refused with ENOTTY",
    ),
    impossible(
        "nic::tests::interfaces_are_found_by_name_and_index",
        "`SIOCETHTOOL` is refused with ENOTTY",
    ),
    impossible("queues::tests::slow_queues_retire_one_by_one", "`bpf` is missing"),
    impossible(
        "region::tests::other_faults_stay_deadly",
        "a child process would run without the emulator",
    ),
    impossible(
        "restore::tests::carrier_held_by_another_program_stays_on",
        "the carrier of a TAP cannot be set",
    ),
    impossible(
        "restore::tests::foreign_device_is_restored",
        "`SIOCETHTOOL` is refused with ENOTTY",
    ),
    impossible(
        "restore::tests::journal_restores_settings_of_a_killed_process",
        "`SIOCETHTOOL` is refused with ENOTTY",
    ),
    impossible(
        "restore::tests::persistent_own_device_keeps_only_configured_values",
        "`SIOCETHTOOL` is refused with ENOTTY",
    ),
    impossible("seccomp::tests::unlisted_calls_fail", "`seccomp` is missing"),
    impossible("steering::tests::program_and_hash_agree", "`bpf` is missing"),
    impossible("steering::tests::rules_take_precedence_over_the_table", "`bpf` is missing"),
    impossible("steering::tests::table_changes_update_the_kernel", "`bpf` is missing"),
    impossible(
        "transport::tests::random::random_runs_keep_every_frame",
        "takes more than ten minutes",
    ),
    impossible(
        "vduse::vdpa::tests::the_kernel_answers",
        "generic netlink is refused with EPROTONOSUPPORT",
    ),
];

/// Parts of the checks.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Part {
    /// Cross-build, and unit and property tests under emulation
    Emulated,
    /// `mqnet demo` and tests of mapped memory in guests with pages of 4 and 16 KiB
    Guest,
}

/// Script of a demo. The seccomp filter kills the process at a system call that the filter lacks.
const DEMO: &str = "MQNET_SECCOMP=kill mqnet demo --seconds 5";

/// Time limits of a demo, and of all test programs in a guest.
const DEMO_LIMIT: Duration = Duration::from_secs(300);
const TESTS_LIMIT: Duration = Duration::from_secs(900);

/// Runs one part.
pub(crate) fn run(part: Part) -> Result<()> {
    if !target_is_there()? {
        return Ok(());
    }
    match part {
        Part::Emulated => emulated(),
        Part::Guest => guests(),
    }
}

/// Installs the target's standard library with rustup if it is missing; returns true if it is
/// there. Without rustup: false, or an error with `MQNET_NO_SKIP=1`.
fn target_is_there() -> Result<bool> {
    let mut rustc = project::command("rustc");
    let output = rustc.args(["--print", "target-libdir", "--target", TARGET]).output()?;
    if Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(true);
    }
    let added = project::command("rustup").args(["target", "add", TARGET]).status();
    match added {
        Ok(status) if status.success() => Ok(true),
        Ok(status) => Err(format!("rustup target add {TARGET}: {status}").into()),
        Err(_) if project::no_skip() => Err(format!("rustup is missing: it has {TARGET}").into()),
        Err(_) => {
            println!("SKIP: rustup is missing");
            Ok(false)
        }
    }
}

/// Builds the workspace, and runs the tests of [`TESTED`] under emulation.
fn emulated() -> Result<()> {
    let emulator = arm64::emulator()?;
    let mut build = project::command("cargo");
    succeed(build.args(["build", "--workspace", "--target", TARGET]))?;
    for Impossible { name, reason } in IMPOSSIBLE {
        println!("not under emulation: {name}: {reason}");
    }
    let mut tests = project::command("cargo");
    tests.args(["test", "--target", TARGET, "--no-fail-fast", "--lib", "--tests"]);
    tests.args(packages(&TESTED)).args(["--", "--show-output", "--exact"]);
    tests.args(IMPOSSIBLE.iter().flat_map(|test| ["--skip", test.name]));
    tests.env(RUNNER, format!("{} -L {LIBRARIES}", emulator.display()));
    succeed(&mut tests)
}

/// Runs the demo in both guests, and the tests of [`MAPPING`] in the guest with larger pages.
fn guests() -> Result<()> {
    let program = [arm64::program()?];
    for kernel in Arm64Kernel::ALL {
        let name = format!("arm64-{}k", kernel.page_kib());
        let text = arm64::run(kernel, &name, &program, DEMO, DEMO_LIMIT)?;
        print!("{text}");
        let pages = format!("pages of {} KiB", kernel.page_kib());
        if !text.contains(&pages) {
            return Err(format!("the guest {name} does not have {pages}").into());
        }
    }
    let files = test_programs()?;
    let script = "failed=0; for test in /tests/*; do $test || failed=1; done; exit $failed";
    print!("{}", arm64::run(Arm64Kernel::Pages16, "arm64-tests", &files, script, TESTS_LIMIT)?);
    Ok(())
}

/// Builds the tests of [`MAPPING`]; returns their programs and libraries.
fn test_programs() -> Result<Vec<GuestFile>> {
    let mut cargo = project::command("cargo");
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--lib"]);
    cargo.args(["--target", TARGET]).args(packages(&MAPPING));
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", output.status).into());
    }
    let mut files = Vec::new();
    for program in String::from_utf8(output.stdout)?.lines().filter_map(executable) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("tests/{name}"), fs::read(&program)?));
    }
    for name in LIBRARY_FILES {
        let file = Path::new(LIBRARIES).join("lib").join(name);
        let content = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        files.push((format!("lib/{name}"), content));
    }
    Ok(files)
}

/// Path of the program in a message of cargo; `None` for a message without a program.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    Some(message.get("executable")?.as_str()?.into())
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: [`TESTED`] lists exactly the packages of the layers memory, packet, device and backend.
    #[test]
    fn packages_of_four_layers_are_tested() {
        let mut found = Vec::new();
        for layer in ["memory", "packet", "device", "backend"] {
            for entry in fs::read_dir(project::root().join(layer)).unwrap() {
                let path = entry.unwrap().path();
                if path.join("Cargo.toml").is_file() {
                    let name = path.file_name().unwrap().to_string_lossy().replace('_', "-");
                    found.push(format!("mqnet-{name}"));
                }
            }
        }
        found.sort();
        let mut tested = TESTED.map(str::to_owned);
        tested.sort();
        assert_eq!(found, tested);
        assert!(MAPPING.iter().all(|name| TESTED.contains(name)));
    }

    #[test]
    fn programs_are_read_from_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","executable":"/a/b-1"}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/a/b-1")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
        assert_eq!(executable("text"), None);
    }

    #[test]
    fn impossible_tests_have_reasons() {
        assert!(IMPOSSIBLE.iter().all(|test| test.name.contains("::") && test.reason.len() > 10));
    }
}
