//! The live display in a real pseudo terminal, created by `script` (util-linux).

use std::io::{IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mqnet_control_api::ApiError;
use mqnet_sysio::process;
use serde_json::Value;

use super::*;

const HOW: &str = "MQNET_TOP_TEST";
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

struct Panics;

impl Api for Panics {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        panic!("request for {path}")
    }

    fn patch(&self, path: &str, _body: &Value) -> Result<Value, ApiError> {
        panic!("request for {path}")
    }
}

// Goal: run the live display, in the child process that `in_a_terminal` starts inside a terminal.
#[test]
#[ignore = "in_a_terminal runs it in a terminal"]
fn inside() {
    let Ok(how) = std::env::var(HOW) else { return };
    assert!(std::io::stdin().is_terminal() && std::io::stdout().is_terminal());
    let paper = FakeApi::default()
        .on("/v1/links", vec![link("up")])
        .on("/v1/links/vm0/stats", stats(1))
        .on("/v1/links/vm0/stats", stats(2));
    let panics = Panics;
    let api: &dyn Api = if how == "panic" { &panics } else { &paper };
    let args = TopArgs { name: None, interval: Duration::from_millis(100), once: false };
    if how == "signal" {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            process::terminate(std::process::id()).unwrap();
        });
    }
    live(&args, api, reading(1, &link("up"))).unwrap();
}

/// Runs `inside` in a terminal and returns the terminal's output. Types `keys` after the text
/// `after` has appeared.
fn terminal(how: &str, after: &str, keys: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    let line = format!(
        "stty rows 24 cols 80; {} --exact top::tests::terminal::inside --ignored --nocapture \
         --test-threads=1; stty -a",
        exe.display()
    );
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env(HOW, how)
        .env("TERM", "xterm")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script of util-linux");
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = output.read(&mut buffer) {
            let _ = sender.send(buffer[..n].to_vec());
        }
    });
    let (mut seen, mut typed) = (String::new(), false);
    loop {
        match receiver.recv_timeout(Duration::from_secs(20)) {
            Ok(bytes) => seen += &String::from_utf8_lossy(&bytes),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                panic!("{how}: it does not end: {seen:?}");
            }
        }
        if !typed && seen.contains(after) {
            typed = true;
            input.write_all(keys.as_bytes()).unwrap();
        }
    }
    child.wait().unwrap();
    seen
}

fn assert_restored(how: &str, seen: &str) {
    let (enter, leave) = (seen.find(ENTER), seen.rfind(LEAVE));
    assert!(enter.is_some() && enter < leave, "{how}: {seen:?}");
    // The terminal settings, printed by stty after the display has ended, must be restored.
    let words: Vec<&str> = seen[leave.unwrap()..].split_whitespace().collect();
    for mode in ["icanon", "echo", "isig"] {
        assert!(words.iter().any(|word| word.trim_end_matches(';') == mode), "{how}: {words:?}");
    }
}

// Goal: the live display fills a real terminal of 80x24, obeys keys, and restores the terminal at
// every end: by a key, Ctrl-C, a signal, or a panic.
#[test]
fn in_a_terminal() {
    let seen = terminal("keys", "200.0 k", "sq");
    assert_restored("keys", &seen);
    assert!(seen.contains("mqnet top") && seen.contains("test result: ok"), "{seen:?}");
    for (how, keys, end) in
        [("interrupt", "\x03", "ok"), ("signal", "", "ok"), ("panic", "", "FAILED")]
    {
        let seen = terminal(how, "mqnet top", keys);
        assert_restored(how, &seen);
        assert!(seen.contains(&format!("test result: {end}")), "{how}: {seen:?}");
    }
}
