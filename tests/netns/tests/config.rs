//! `mqnet config check` as a command.

use std::path::Path;
use std::process::Command;

use mqnet_testkit::{Folder, program, run_command};

/// Exit code, stdout and stderr of a check.
fn check(file: &Path) -> (Option<i32>, String, String) {
    let output = run_command(Command::new(program()).args(["config", "check"]).arg(file));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn write(folder: &Folder, name: &str, text: &str) {
    let path = folder.file(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("writing a file");
}

// Goal: a valid configuration gives one line with its links, including those of conf.d/. Files of
// conf.d/ that are hidden or not *.toml are ignored.
#[test]
fn valid_configuration_is_summarized() {
    let folder = Folder::create();
    write(&folder, "mqnet.toml", "[link.one]\na = 'tap:a'\nb = 'null:'\n");
    write(&folder, "conf.d/20.toml", "[link.two]\na = 'tap:b'\nb = 'null:'\n");
    write(&folder, "conf.d/20.toml.orig", "nonsense");
    write(&folder, "conf.d/.30.toml", "nonsense");
    let (code, out, err) = check(&folder.file("mqnet.toml"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.ends_with("valid: 2 links (one, two) in 2 files\n"), "{out}");
}

// Goal: each problem is one line on stderr with file, line and column, and the exit code is 2.
// Problems that only backends detect have their position, too.
#[test]
fn problems_are_reported_with_their_positions() {
    let folder = Folder::create();
    let bad = "[link.one]\na = 'tap:a'\nb = 'ntb:/x,window=64K'\nchannels = 64\n[link.c]\nq = 1\n";
    write(&folder, "mqnet.toml", bad);
    write(&folder, "conf.d/10.toml", "[link.x]\na = 'tap:x'\nb = 'null:'\n");
    write(&folder, "conf.d/20.toml", "\n[link.x]\na = 'tap:b'\nb = 'null:'\n");
    let (code, out, err) = check(&folder.file("mqnet.toml"));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let lines: Vec<&str> = err.lines().collect();
    let main = folder.file("mqnet.toml").display().to_string();
    let first = folder.file("conf.d/10.toml").display().to_string();
    let second = folder.file("conf.d/20.toml").display().to_string();
    assert_eq!(lines.len(), 5, "{err}");
    assert!(lines[0].starts_with(&format!("{main}:3:5: [link.one] b: window=")), "{err}");
    assert!(lines[0].contains("--channels"), "{err}");
    assert!(lines[1..3].iter().all(|line| line.starts_with(&format!("{main}:5:7: "))), "{err}");
    assert!(lines[3].starts_with(&format!("{main}:6:1: [link.c] unknown key")), "{err}");
    let twice = format!("{second}:2:7: [link.x] is defined twice, first at {first}:1:7");
    assert_eq!(lines[4], twice);
}

// Goal: the error for a file that is missing or not UTF-8 names the file.
#[test]
fn unreadable_files_are_named() {
    let folder = Folder::create();
    let (code, _, err) = check(&folder.file("none.toml"));
    assert_eq!(code, Some(2));
    assert!(err.contains("none.toml: No such file"), "{err}");
    std::fs::write(folder.file("x.toml"), [0xff, 0xfe]).expect("writing a file");
    let (code, _, err) = check(&folder.file("x.toml"));
    assert_eq!(code, Some(2));
    assert!(err.contains("x.toml: ") && !err.contains("panicked"), "{err}");
}
