//! Disk space. If space is missing, a run fails with misleading errors (a bus error of the linker).

use std::fs;
use std::path::Path;

use crate::project;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Disk space of all steps on a clone without any build, with a reserve (see
/// book/src/measurements/measurements.md).
const WHOLE_RUN: u64 = 6 * GIB;
/// Free space below which a failed step is attributed to a full disk.
const NEARLY_NONE: u64 = 256 * MIB;

/// Prints a warning if the disk has too little space for all steps.
pub(super) fn warn_before() {
    let target = project::target();
    let missing = WHOLE_RUN.saturating_sub(held(&target));
    match free(&target) {
        Some(free) if free < missing => println!(
            "warning: {} free at {}, and the tests write about {} more: make room, or build \
             elsewhere (CARGO_TARGET_DIR)",
            gib(free),
            target.display(),
            gib(missing)
        ),
        _ => {}
    }
}

/// Prints a note after a failed step if less than [`NEARLY_NONE`] is free.
pub(super) fn explain_failure() {
    let target = project::target();
    if let Some(free) = free(&target).filter(|&free| free < NEARLY_NONE) {
        let folder = target.display();
        println!("the disk is full ({} MiB free at {folder}): that may be why", free / MIB);
    }
}

fn free(folder: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(folder).ok()?;
    Some(found.blocks_available() * found.fragment_size())
}

/// Bytes of all files below a folder; unreadable files count as zero.
fn held(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => held(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}
