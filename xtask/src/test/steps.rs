//! The steps of `cargo xtask test`, in order. This table is all there is to change.

/// One step: commands that run one after another until one fails.
pub(super) struct Step {
    /// Name on the command line and of the log file.
    pub(super) name: &'static str,
    /// What the progress line says.
    pub(super) title: &'static str,
    pub(super) commands: &'static [Command],
    /// It is made of tests, so that a run of none of them is a failure.
    pub(super) has_tests: bool,
    /// Tests that run after the commands, each in a process of its own.
    pub(super) each: Option<Each>,
    /// A step that takes longer hangs, and is killed.
    pub(super) limit_seconds: u64,
}

/// The tests of a package: real kernels and traffic. Each has a process of its own, so that one
/// that hangs costs its own time and nothing else.
pub(super) struct Each {
    pub(super) package: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// A test that takes longer hangs, and is killed.
    pub(super) limit_seconds: u64,
    /// How many run at a time, where there are so many CPUs.
    pub(super) lanes: usize,
    /// Tests of this module belong to the step `hostile`, and to no other.
    pub(super) is_hostile: bool,
    /// Of tests whose names have one of these words no two run at a time.
    pub(super) apart: &'static [&'static str],
    /// A test that fails has a second try: it needs other kernels, whose time is not ours.
    pub(super) second_try: bool,
}

/// A command line. `{target}` is the build folder, `{xtask}` this program.
pub(super) struct Command {
    pub(super) line: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
}

const fn run(line: &'static str) -> Command {
    Command { line, env: &[] }
}

/// The program under test, for hosts and guests alike, and the guests' own: built as a guest's test
/// builds them (`tests/guest/src/programs.rs`), which finds nothing to do then. For x86-64, as all
/// guests are.
const PROGRAMS: Command = Command {
    line: "cargo build --quiet --bins --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet -p mqnet-guest",
    env: &[("RUSTFLAGS", "-C target-feature=+crt-static"), ("CARGO_TARGET_DIR", "{target}")],
};
/// The conformance suite for a guest, built as its test builds it.
const SUITE: Command = Command {
    line: "cargo build --quiet --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet-conformance --bin conformance-vduse",
    env: PROGRAMS.env,
};
const PROGRAM: (&str, &str) = ("MQNET_BIN", "{target}/x86_64-unknown-linux-gnu/tested/mqnet");

/// A system call that is missing in a seccomp filter ends the process, and fails the test.
const SECCOMP: (&str, &str) = ("MQNET_SECCOMP", "kill");

/// As a test builds it (`tests/netns/tests/library.rs`), which has its time for itself then.
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
        title: "law of the rooms",
        commands: &[run("{xtask} tidy")],
        has_tests: false,
        each: None,
        limit_seconds: 60,
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
            // Most of a test's time it waits: for kernels, timeouts and peers that were killed.
            lanes: 2,
            is_hostile: false,
            // Two that change the queues of TAPs hundreds of times keep each other from the
            // kernel's network lock (8 to 60 s for one step).
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
            // They measure delays.
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
            // A guest boots on one CPU, and waits as often as not.
            lanes: 2,
            is_hostile: false,
            apart: &[],
            second_try: true,
        }),
        limit_seconds: 3000,
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
