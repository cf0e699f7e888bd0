//! Table of the steps of `cargo xtask test`, in order. A new step needs only an entry here.

/// One step: commands that run one after another until one fails.
pub(super) struct Step {
    /// Name on the command line and of the log file.
    pub(super) name: &'static str,
    /// Text of the progress line.
    pub(super) title: &'static str,
    pub(super) commands: &'static [Command],
    /// The step consists of tests, so that a run of none of them is a failure.
    pub(super) has_tests: bool,
    /// Tests that run after the commands, each in its own process.
    pub(super) each: Option<Each>,
    /// Time limit; a step that exceeds it is killed.
    pub(super) limit_seconds: u64,
}

/// Tests of a package with real kernels and traffic. Each has its own process, so that a test that
/// hangs affects no other.
pub(super) struct Each {
    pub(super) package: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// Time limit; a test that exceeds it is killed.
    pub(super) limit_seconds: u64,
    /// Number of parallel tests, given enough CPUs.
    pub(super) lanes: usize,
    /// Tests of this module belong only to the step `hostile`.
    pub(super) is_hostile: bool,
    /// Words in the names of tests that do not run in parallel.
    pub(super) apart: &'static [&'static str],
    /// A failed test gets a second attempt: it depends on other kernels and their timing.
    pub(super) second_try: bool,
}

/// Command line. `{target}` is the build folder, `{xtask}` this program.
pub(super) struct Command {
    pub(super) line: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
}

const fn run(line: &'static str) -> Command {
    Command { line, env: &[] }
}

/// The program under test, for hosts and guests, and the guests' own programs. Built in the same
/// way as by a guest's test (`tests/guest/src/programs.rs`), which then has nothing to build. For
/// x86-64, as all guests.
const PROGRAMS: Command = Command {
    line: "cargo build --quiet --bins --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet -p mqnet-guest",
    env: &[("RUSTFLAGS", "-C target-feature=+crt-static"), ("CARGO_TARGET_DIR", "{target}")],
};
/// Conformance suite for a guest, built in the same way as by its test.
const SUITE: Command = Command {
    line: "cargo build --quiet --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet-conformance --bin conformance-vduse",
    env: PROGRAMS.env,
};
const PROGRAM: (&str, &str) = ("MQNET_BIN", "{target}/x86_64-unknown-linux-gnu/tested/mqnet");

/// A system call that is missing in a seccomp filter kills the process, and fails the test.
const SECCOMP: (&str, &str) = ("MQNET_SECCOMP", "kill");

/// Built in the same way as by a test (`tests/netns/tests/library.rs`), to keep the build out of
/// its time.
const EXAMPLE: Command = run("cargo build --quiet --workspace --example vpn");

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        title: "formatting",
        commands: &[run("cargo fmt --all --check")],
        has_tests: false,
        each: None,
        limit_seconds: 60,
    },
    Step {
        name: "clippy",
        title: "clippy",
        commands: &[run("cargo clippy --workspace --all-targets -- -D warnings")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "tidy",
        title: "rules of code, documents and layers",
        commands: &[run("{xtask} tidy")],
        has_tests: false,
        each: None,
        limit_seconds: 60,
    },
    Step {
        name: "book",
        title: "the book and its links",
        commands: &[run("{xtask} book")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "deny",
        title: "licenses and sources of crates",
        commands: &[run("{xtask} deny")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "stated-rust",
        title: "check with the stated Rust version",
        commands: &[run("{xtask} stated-rust")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "unit",
        title: "unit and property tests",
        commands: &[run("cargo test --workspace --exclude mqnet-conformance \
             --exclude mqnet-netns --exclude mqnet-api --exclude mqnet-guest \
             --exclude mqnet-soak -- --show-output")],
        has_tests: true,
        each: None,
        limit_seconds: 1200,
    },
    Step {
        name: "api",
        title: "control interface under schemathesis",
        commands: &[],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-api",
            env: &[],
            limit_seconds: 600,
            lanes: 1,
            is_hostile: false,
            apart: &[],
            second_try: false,
        }),
        limit_seconds: 1800,
    },
    Step {
        name: "loom",
        title: "loom models",
        commands: &[Command {
            line: "cargo test --release --target-dir {target}/loom -p mqnet-rings \
                   -p mqnet-pktbuf --lib --tests \
                   -- --show-output",
            env: &[("RUSTFLAGS", "--cfg loom"), ("LOOM_MAX_PREEMPTIONS", "3")],
        }],
        has_tests: true,
        each: None,
        limit_seconds: 1200,
    },
    Step {
        name: "fuzz",
        title: "fuzz smoke",
        commands: &[run("{xtask} fuzz --smoke --seconds 10")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "conformance",
        title: "conformance of every backend",
        commands: &[],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-conformance",
            env: &[],
            limit_seconds: 300,
            lanes: 2,
            is_hostile: false,
            apart: &[],
            second_try: false,
        }),
        limit_seconds: 1800,
    },
    Step {
        name: "netns",
        title: "hosts in network namespaces",
        commands: &[PROGRAMS, EXAMPLE],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-netns",
            env: &[PROGRAM, SECCOMP],
            limit_seconds: 180,
            // Most of the time a test waits: for kernels, timeouts and killed peers.
            lanes: 2,
            is_hostile: false,
            // Two tests that change the queues of TAPs hundreds of times contend for the kernel's
            // network lock.
            apart: &["resize", "retune"],
            second_try: true,
        }),
        limit_seconds: 2400,
    },
    Step {
        name: "hostile",
        title: "hostile peers beside a link",
        commands: &[PROGRAMS],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-netns",
            env: &[PROGRAM, SECCOMP],
            limit_seconds: 180,
            // These tests measure delays.
            lanes: 1,
            is_hostile: true,
            apart: &[],
            second_try: true,
        }),
        limit_seconds: 1800,
    },
    Step {
        name: "soak",
        title: "a short soak of all backends",
        commands: &[PROGRAMS],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-soak",
            env: &[PROGRAM, SECCOMP],
            limit_seconds: 600,
            lanes: 1,
            is_hostile: false,
            apart: &[],
            second_try: false,
        }),
        limit_seconds: 1800,
    },
    Step {
        name: "guest",
        title: "other kernels, in virtual machines",
        commands: &[PROGRAMS, SUITE],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-guest",
            env: &[PROGRAM, SECCOMP],
            limit_seconds: 600,
            // A guest boots on one CPU, and waits about half of the time.
            lanes: 2,
            is_hostile: false,
            apart: &[],
            second_try: true,
        }),
        limit_seconds: 3000,
    },
    Step {
        name: "package",
        title: "Debian package: installation, upgrade, purge",
        commands: &[run("{xtask} package --profile tested --check")],
        has_tests: false,
        each: None,
        limit_seconds: 1800,
    },
    Step {
        name: "demo",
        title: "demo",
        commands: &[PROGRAMS, run("{target}/x86_64-unknown-linux-gnu/tested/mqnet demo")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
];
