//! Steps of `cargo xtask test`, in order. A new step needs an entry here only.

/// One step: commands that run one after the other until one fails.
pub(super) struct Step {
    /// Name on the command line and of the log file.
    pub(super) name: &'static str,
    /// Text of the progress line.
    pub(super) title: &'static str,
    pub(super) commands: &'static [Command],
    /// True if the step consists of tests; a run without any test is then a failure.
    pub(super) has_tests: bool,
    /// Tests that run after the commands, each in its own process.
    pub(super) each: Option<Each>,
    /// Time limit. A step that exceeds the limit is killed.
    pub(super) limit_seconds: u64,
    /// True if the step runs only when named, because it takes minutes and few changes affect it.
    pub(super) by_choice: bool,
}

/// Tests of a package with real kernels and traffic. Each test has a separate process, so that a
/// test that hangs does not affect others.
pub(super) struct Each {
    pub(super) package: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// Time limit. A test that exceeds the limit is killed.
    pub(super) limit_seconds: u64,
    /// Maximum number of parallel tests; fewer if there are fewer CPUs.
    pub(super) lanes: usize,
    /// True for the step `hostile`, which runs only the tests of the module `hostile`; other steps
    /// omit them.
    pub(super) is_hostile: bool,
    /// Words in names of tests: tests with any of these words never run in parallel with each
    /// other.
    pub(super) apart: &'static [&'static str],
    /// True if a failed test gets a second attempt, because the tests depend on other kernels and
    /// their timing.
    pub(super) second_try: bool,
}

/// Command line. `{target}` stands for the build folder, `{xtask}` for this program.
pub(super) struct Command {
    pub(super) line: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
}

const fn run(line: &'static str) -> Command {
    Command { line, env: &[] }
}

/// Build of the program under test, for hosts and guests, and of the guests' programs. A guest test
/// uses the same build command (`tests/guest/src/programs.rs`) and then has nothing to build. All
/// guests are x86-64.
const PROGRAMS: Command = Command {
    line: "cargo build --quiet --bins --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet -p mqnet-guest",
    env: &[("RUSTFLAGS", "-C target-feature=+crt-static"), ("CARGO_TARGET_DIR", "{target}")],
};
/// Build of the conformance suite for a guest, with the build command of its test.
const SUITE: Command = Command {
    line: "cargo build --quiet --profile tested --target x86_64-unknown-linux-gnu \
           -p mqnet-conformance --bin conformance-vduse",
    env: PROGRAMS.env,
};
const PROGRAM: (&str, &str) = ("MQNET_BIN", "{target}/x86_64-unknown-linux-gnu/tested/mqnet");

/// Makes the seccomp filter kill the process at a system call that the filter lacks, so that the
/// test fails.
const SECCOMP: (&str, &str) = ("MQNET_SECCOMP", "kill");

/// Build with the command of a test (`tests/netns/tests/library.rs`), so that the time limit of the
/// test does not include the build.
const EXAMPLE: Command = run("cargo build --quiet --workspace --example vpn");

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        title: "formatting",
        commands: &[run("cargo fmt --all --check")],
        has_tests: false,
        each: None,
        limit_seconds: 60,
        by_choice: false,
    },
    Step {
        name: "clippy",
        title: "clippy",
        commands: &[run("cargo clippy --workspace --all-targets -- -D warnings")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
    },
    Step {
        name: "tidy",
        title: "rules of code, documents and layers",
        commands: &[run("{xtask} tidy")],
        has_tests: false,
        each: None,
        limit_seconds: 60,
        by_choice: false,
    },
    Step {
        name: "book",
        title: "the book and its links",
        commands: &[run("{xtask} book")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
    },
    Step {
        name: "deny",
        title: "licenses and sources of crates",
        commands: &[run("{xtask} deny")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
    },
    Step {
        name: "stated-rust",
        title: "check with the stated Rust version",
        commands: &[run("{xtask} stated-rust")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
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
        by_choice: false,
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
        by_choice: false,
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
        by_choice: false,
    },
    Step {
        name: "fuzz",
        title: "fuzz smoke",
        commands: &[run("{xtask} fuzz --smoke --seconds 10")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
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
        by_choice: false,
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
            // Run two tests at a time: a test mostly waits for kernels, timeouts and killed peers.
            lanes: 2,
            is_hostile: false,
            // These tests change the queues of TAPs hundreds of times and contend for the kernel's
            // network lock.
            apart: &["resize", "retune"],
            second_try: true,
        }),
        limit_seconds: 2400,
        by_choice: false,
    },
    Step {
        name: "hostile",
        title: "hostile peers next to a link",
        commands: &[PROGRAMS],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-netns",
            env: &[PROGRAM, SECCOMP],
            limit_seconds: 180,
            // Run one test at a time: the tests measure delays.
            lanes: 1,
            is_hostile: true,
            apart: &[],
            second_try: true,
        }),
        limit_seconds: 1800,
        by_choice: false,
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
        by_choice: false,
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
            // Run two guests at a time: each boots on one CPU and is idle about half of the time.
            lanes: 2,
            is_hostile: false,
            apart: &[],
            second_try: true,
        }),
        limit_seconds: 3000,
        by_choice: false,
    },
    Step {
        name: "package",
        title: "Debian package: installation, upgrade, purge",
        commands: &[run("{xtask} package --profile tested --check")],
        has_tests: false,
        each: None,
        limit_seconds: 1800,
        by_choice: false,
    },
    Step {
        name: "demo",
        title: "demo",
        commands: &[PROGRAMS, run("{target}/x86_64-unknown-linux-gnu/tested/mqnet demo")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
        by_choice: false,
    },
    Step {
        name: "arm64",
        title: "arm64: build, tests under emulation",
        commands: &[run("{xtask} arm64 emulated")],
        has_tests: true,
        each: None,
        limit_seconds: 2400,
        by_choice: true,
    },
    Step {
        name: "arm64-guest",
        title: "arm64: guests",
        commands: &[run("{xtask} arm64 guest")],
        has_tests: true,
        each: None,
        limit_seconds: 3600,
        by_choice: true,
    },
];
