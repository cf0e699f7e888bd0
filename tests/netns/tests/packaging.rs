//! Installed files of a distribution, checked by systemd's own tools and by the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use mqnet_testkit::{Folder, Need, has, program, run_command};

const UNITS: [&str; 3] = ["mqnet.service", "mqnet.socket", "mqnet@.service"];

/// Maximum exposure level of `systemd-analyze security`, in tenths. The rest comes from root, IP
/// and the devices that a TAP needs.
const EXPOSURE_MAX: &str = "24";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Units in a temporary folder, with the path of the built program.
fn units() -> Folder {
    let folder = Folder::create();
    let program = program().display().to_string();
    for unit in UNITS {
        let text = std::fs::read_to_string(packaging().join("systemd").join(unit));
        let text = text.expect("a unit").replace("/usr/bin/mqnet", &program);
        // A template unit is checked as an instance of it.
        let name = unit.replace('@', "@x");
        std::fs::write(folder.file(&name), text).expect("writing a unit");
    }
    folder
}

#[track_caller]
fn analyze(folder: &Folder, verb: &[&str], units: &[&str]) -> String {
    let mut command = Command::new("systemd-analyze");
    command.args(verb);
    command.args(units.iter().map(|unit| folder.file(&unit.replace('@', "@x"))));
    let output = run_command(&mut command);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{verb:?} {units:?}: {text}");
    text
}

// Goal: systemd accepts every section, key and value of the units, and finds their programs.
#[test]
fn systemd_takes_the_units() {
    if !has(&[Need::Program("systemd-analyze")]) {
        return;
    }
    let text = analyze(&units(), &["verify", "--man=no"], &UNITS);
    assert_eq!(text, "");
}

// Goal: the exposure level of each service is at most `EXPOSURE_MAX`.
#[test]
fn the_services_are_hardened() {
    if !has(&[Need::Program("systemd-analyze")]) {
        return;
    }
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    for unit in ["mqnet.service", "mqnet@.service"] {
        let text = analyze(&units(), &["security", "--offline=true", &threshold], &[unit]);
        assert!(text.contains("Overall exposure level"), "{text}");
    }
}

// Goal: the program accepts the arguments in the units, and clients find the control socket of each
// unit.
#[test]
fn the_program_takes_the_units_arguments() {
    for unit in UNITS.iter().filter(|unit| unit.ends_with(".service")) {
        let text = std::fs::read_to_string(packaging().join("systemd").join(unit));
        let text = text.expect("a unit").replace("%i", "office");
        let starts = text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/mqnet "));
        let starts: Vec<Vec<&str>> = starts.map(|line| line.split(' ').collect()).collect();
        assert_eq!(starts.len(), 1, "{unit}");
        let output = run_command(Command::new(program()).args(&starts[0]).arg("--help"));
        assert!(output.status.success(), "{unit}: {}", String::from_utf8_lossy(&output.stderr));
        let socket = starts[0].iter().skip_while(|word| **word != "--control-socket").nth(1);
        if let Some(socket) = socket {
            let name = socket.strip_prefix("/run/mqnet/link-");
            assert!(name.is_some_and(|name| name.ends_with(".sock")), "{unit}: {socket}");
        }
    }
}

/// Text of an example with its commented keys enabled. A commented key follows `#` without a space.
fn uncommented(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

// Goal: the example configuration is valid, unchanged and with all commented keys enabled.
#[test]
fn the_example_is_right() {
    let text = std::fs::read_to_string(packaging().join("mqnet.toml")).expect("the example");
    let all = uncommented(&text);
    let folder = Folder::create();
    for (text, links) in [(&text, "valid: 0 links"), (&all, "valid: 1 link (vm0)")] {
        let file = folder.file("mqnet.toml");
        std::fs::write(&file, text).expect("writing the example");
        let output = run_command(Command::new(program()).args(["config", "check"]).arg(&file));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains(links), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    }
    for key in ["control-socket", "socket-mode", "socket-owner", "metrics", "poll-window"] {
        assert!(all.lines().any(|line| line.starts_with(key)), "no {key} in the example");
    }
}
