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

/// The tests of a package, one at a time: real kernels and traffic, which want the whole machine.
/// Each has a process of its own, so that one that hangs costs its own time and nothing else.
pub(super) struct Each {
    pub(super) package: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// A test that takes longer hangs, and is killed.
    pub(super) limit_seconds: u64,
}

/// A command line. `{target}` is the build folder, `{xtask}` this program.
pub(super) struct Command {
    pub(super) line: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
}

const fn run(line: &'static str) -> Command {
    Command { line, env: &[] }
}

/// The program as users get it.
const BUILD: Command = run("cargo build --release -p mqnet");

/// What tests run, built as they build it (`tests/netns/tests/library.rs`,
/// `tests/guest/src/programs.rs`): theirs finds nothing to do, and a test has its time for itself.
const EXAMPLE: Command = run("cargo build --quiet -p mqnet-lib --example vpn");
const GUEST_PROGRAMS: Command = Command {
    line: "cargo build --quiet --bins --profile guest --target x86_64-unknown-linux-gnu \
           -p mqnet -p mqnet-guest",
    env: &[("RUSTFLAGS", "-C target-feature=+crt-static"), ("CARGO_TARGET_DIR", "{target}")],
};

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
        commands: &[run("cargo test -p mqnet-api -- --show-output")],
        has_tests: true,
        each: None,
        limit_seconds: 600,
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
        commands: &[run("cargo test -p mqnet-conformance -- --show-output")],
        has_tests: true,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "netns",
        title: "hosts in network namespaces",
        commands: &[BUILD, EXAMPLE],
        has_tests: true,
        each: Some(Each {
            package: "mqnet-netns",
            env: &[("MQNET_BIN", "{target}/release/mqnet")],
            limit_seconds: 180,
        }),
        limit_seconds: 2400,
    },
    Step {
        name: "soak",
        title: "a short soak of all backends",
        commands: &[
            BUILD,
            Command {
                line: "cargo test -p mqnet-soak -- --test-threads=1 --show-output",
                env: &[("MQNET_BIN", "{target}/release/mqnet")],
            },
        ],
        has_tests: true,
        each: None,
        limit_seconds: 900,
    },
    Step {
        name: "guest",
        title: "other kernels, in virtual machines",
        commands: &[BUILD, GUEST_PROGRAMS],
        has_tests: true,
        each: Some(Each { package: "mqnet-guest", env: &[], limit_seconds: 600 }),
        limit_seconds: 3000,
    },
    Step {
        name: "demo",
        title: "demo",
        commands: &[BUILD, run("{target}/release/mqnet demo")],
        has_tests: false,
        each: None,
        limit_seconds: 900,
    },
];
