//! Rule: some calls are allowed only in certain files; each has a replacement.

use super::Report;
use super::repository::Repository;

/// Banned sequence of tokens.
struct Ban {
    /// Blank-separated tokens.
    pattern: &'static str,
    /// Path prefixes that the ban covers; empty for all paths.
    only_in: &'static [&'static str],
    /// Path prefixes that the ban does not cover.
    owners: &'static [&'static str],
    instead: &'static str,
}

/// Path prefixes of programs, which interact with users and the system; tests and xtask are
/// programs too.
const PROGRAMS: &[&str] = &["app/", "tools/", "bin/", "xtask/", "tests/"];
const CLOCK_OWNERS: &[&str] = &["memory/sysio/", "app/", "tools/", "bin/", "xtask/", "tests/"];
const SLEEPERS: &[&str] = &[
    "app/",
    "tools/",
    "bin/",
    "xtask/",
    "tests/",
    "runtime/control/",
    "runtime/engine/src/control",
];
const TESTS: &[&str] = &["tests/"];
const EXPECTERS: &[&str] = &["tests/", "xtask/"];
const CLOCK: &str = "take the time as an argument; sysio reads the clock";
const PRINT: &str = "use tracing; only programs print";
const UNWRAP: &str = "return the error, or `let ... else` with a stated reason";
const UNFINISHED: &str = "finish it, or return an error that names the missing part";
const DEVICE_IO: &str = "device/ does no I/O; take what it needs as an argument";

const fn ban(pattern: &'static str, owners: &'static [&'static str], instead: &'static str) -> Ban {
    Ban { pattern, only_in: &[], owners, instead }
}

const fn ban_in(
    only_in: &'static [&'static str],
    pattern: &'static str,
    instead: &'static str,
) -> Ban {
    Ban { pattern, only_in, owners: &[], instead }
}

const BANS: [Ban; 16] = [
    ban("Instant :: now", CLOCK_OWNERS, CLOCK),
    ban("SystemTime :: now", CLOCK_OWNERS, CLOCK),
    ban("thread :: sleep", SLEEPERS, "wait on a doorbell or poll with a timeout"),
    ban("println !", PROGRAMS, PRINT),
    ban("eprintln !", PROGRAMS, PRINT),
    ban("print !", PROGRAMS, PRINT),
    ban("eprint !", PROGRAMS, PRINT),
    ban("dbg !", TESTS, PRINT),
    ban("todo !", TESTS, UNFINISHED),
    ban("unimplemented !", TESTS, UNFINISHED),
    ban(". unwrap ( )", TESTS, UNWRAP),
    ban(". expect (", EXPECTERS, UNWRAP),
    ban_in(&["device/", "backend/"], "HashMap", "BTreeMap, or an array: this is hot"),
    ban_in(&["device/"], "std :: fs", DEVICE_IO),
    ban_in(&["device/"], "thread :: spawn", DEVICE_IO),
    ban_in(&["device/"], "thread :: Builder", DEVICE_IO),
];

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for source in &repository.sources {
        let within = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
        for ban in &BANS {
            if within(ban.owners) || !(ban.only_in.is_empty() || within(ban.only_in)) {
                continue;
            }
            for at in source.find(ban.pattern) {
                let line = source.tokens[at].line;
                if !source.is_test_line(line) {
                    let call = ban.pattern.replace(' ', "");
                    report.add(&source.path, line, format!("`{call}`: {}", ban.instead));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::findings;

    fn count(path: &str, text: &str) -> usize {
        findings("banned-call", &[(path, text)]).len()
    }

    #[test]
    fn each_ban_can_fail() {
        for ban in &super::BANS {
            assert_eq!(count("device/x/src/a.rs", ban.pattern), 1, "{}", ban.pattern);
        }
    }

    #[test]
    fn owners_may() {
        assert_eq!(count("memory/sysio/src/clock.rs", "Instant::now()"), 0);
        assert_eq!(count("runtime/engine/src/worker.rs", "std::time::Instant::now()"), 1);
        assert_eq!(count("runtime/engine/src/control/a.rs", "thread::sleep(a)"), 0);
        assert_eq!(count("runtime/engine/src/worker.rs", "thread::sleep(a)"), 1);
        assert_eq!(count("xtask/src/a.rs", "a.expect(\"b\"); println!()"), 0);
        assert_eq!(count("xtask/src/a.rs", "a.unwrap()"), 1);
        assert_eq!(count("bin/mqnet/src/a.rs", "a.expect(\"b\")"), 1);
        assert_eq!(count("runtime/engine/src/a.rs", "HashMap::new()"), 0);
    }

    #[test]
    fn tests_wrapping_and_relatives() {
        assert_eq!(count("memory/x/src/a.rs", "#[cfg(test)]\nmod t { fn f() { a.unwrap() } }"), 0);
        assert_eq!(count("memory/x/tests/a.rs", "a.unwrap()"), 0);
        assert_eq!(count("memory/x/src/a.rs", "a\n    .unwrap(\n)"), 1);
        assert_eq!(count("memory/x/src/a.rs", "a.unwrap_or(b); a.expect_err(c); // .unwrap()"), 0);
    }
}
