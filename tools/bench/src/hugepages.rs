//! Huge pages for DPDK, reserved while a benchmark runs.

use std::fs;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Options of DPDK's environment abstraction layer (EAL) with huge pages. Neither these options nor
/// `PLAIN` (without huge pages) leave files behind.
const HUGE: &[&str] = &["--in-memory", "--single-file-segments", "--no-telemetry"];
pub(super) const PLAIN: &[&str] = &["--no-huge", "--no-shconf", "--no-telemetry"];

/// Reservation of huge pages. The drop subtracts the added pages from the current total, which
/// other processes may have changed.
#[derive(Debug)]
pub(super) struct HugePages {
    there: bool,
    added: u64,
}

fn read(name: &str) -> Option<u64> {
    fs::read_to_string(format!("{FOLDER}/{name}")).ok()?.trim().parse().ok()
}

fn write(pages: u64) -> bool {
    fs::write(format!("{FOLDER}/nr_hugepages"), pages.to_string()).is_ok()
}

impl HugePages {
    /// Tries to make `pages` free huge pages of 2 MiB available. A failure is not an error: DPDK
    /// also runs on plain pages.
    pub(super) fn reserve(pages: u64) -> Self {
        let nothing = Self { there: false, added: 0 };
        let (Some(all), Some(free)) = (read("nr_hugepages"), read("free_hugepages")) else {
            return nothing;
        };
        if free >= pages {
            return Self { there: true, added: 0 };
        }
        if !write(all + pages - free) {
            return nothing;
        }
        // If memory is fragmented, only some pages may have been added.
        let there = read("free_hugepages").is_some_and(|free| free >= pages);
        let now = read("nr_hugepages").unwrap_or(all);
        Self { there, added: now.saturating_sub(all) }
    }

    /// True if the requested number of pages is free.
    pub(super) fn are_there(&self) -> bool {
        self.there
    }

    /// EAL options for `megabytes` of memory.
    pub(super) fn eal(&self, megabytes: u32) -> Vec<String> {
        let pages = if self.there { HUGE } else { PLAIN };
        let size = ["-m".to_owned(), megabytes.to_string()];
        size.into_iter().chain(pages.iter().map(|&option| option.to_owned())).collect()
    }

    /// Note for the reader of the results.
    pub(super) fn note(&self) -> &'static str {
        if self.there {
            "DPDK runs on 2 MiB pages"
        } else {
            "DPDK runs on 4 KiB pages: no free huge pages, and only root can reserve some"
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(all) = read("nr_hugepages").filter(|_| self.added > 0) {
            // Ignore errors: the write in `reserve` succeeded with the same privileges.
            write(all.saturating_sub(self.added));
        }
    }
}
