//! Runs one command with a log file and a time limit.

use std::fs::File;
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::steps::Command;
use crate::{Result, project};

const POLL: Duration = Duration::from_millis(100);

/// Runs `command` to its end, or kills it with all its descendants at `deadline`. `tick` is called
/// while the command runs. Returns `None` if the command was killed.
pub(super) fn run(
    command: &Command,
    log: &File,
    deadline: Instant,
    tick: impl FnMut(),
) -> Result<Option<ExitStatus>> {
    let line = fill(command.line)?;
    let mut words = line.split_whitespace();
    let mut program = project::command(words.next().ok_or("an empty command")?);
    program.args(words).stdout(log.try_clone()?).stderr(log.try_clone()?);
    set_env(&mut program, command.env)?;
    run_program(&mut program, deadline, tick)
}

/// Sets the environment variables of a step.
pub(super) fn set_env(program: &mut Program, env: &[(&str, &str)]) -> Result<()> {
    for (name, value) in env {
        program.env(name, fill(value)?);
    }
    Ok(())
}

/// Does the work of [`run`] for a program with arguments and output files already set.
pub(super) fn run_program(
    program: &mut Program,
    deadline: Instant,
    mut tick: impl FnMut(),
) -> Result<Option<ExitStatus>> {
    let mut child =
        program.stdin(Stdio::null()).spawn().map_err(|error| format!("{program:?}: {error}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_family(&mut child)?;
            return Ok(None);
        }
        tick();
        sleep(POLL);
    }
}

/// Replaces `{target}` and `{xtask}` by the paths of this run.
fn fill(text: &str) -> Result<String> {
    let xtask = std::env::current_exe()?;
    let target = project::target();
    Ok(text
        .replace("{target}", &target.to_string_lossy())
        .replace("{xtask}", &xtask.to_string_lossy()))
}

/// Kills a child and its descendants, because the tests of a killed cargo would continue to run.
fn kill_family(child: &mut Child) -> Result<()> {
    let mut family = vec![child.id()];
    let mut next = 0;
    while next < family.len() {
        family.extend(children(family[next]));
        next += 1;
    }
    let pids = family.iter().map(u32::to_string);
    // Ignore the status: `kill` fails for processes that have ended, but kills all others.
    project::command("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status()?;
    child.wait()?;
    Ok(())
}

fn children(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

/// Parent pid: the second field after `pid (name)`. The name may contain any character, including
/// brackets.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(line: &'static str, milliseconds: u64) -> Option<ExitStatus> {
        let log = File::create("/dev/null").unwrap();
        let deadline = Instant::now() + Duration::from_millis(milliseconds);
        run(&Command { line, env: &[] }, &log, deadline, || {}).unwrap()
    }

    #[test]
    fn the_exit_status_comes_back() {
        assert!(run_line("true", 5_000).unwrap().success());
        assert!(!run_line("false", 5_000).unwrap().success());
    }

    #[test]
    fn a_hanging_command_dies_with_its_children() {
        // `timeout --foreground` stands for cargo, and `sleep` for a test that hangs. The odd
        // duration identifies this sleep.
        assert!(run_line("timeout --foreground 600 sleep 598.125", 300).is_none());
        let is_alive = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let command = std::fs::read_to_string(entry.path().join("cmdline"));
                command.is_ok_and(|text| text.split('\0').eq(["sleep", "598.125", ""]))
            })
        };
        // The kernel removes a killed process after a delay.
        let patience = Instant::now() + Duration::from_secs(5);
        while is_alive() && Instant::now() < patience {
            sleep(POLL);
        }
        assert!(!is_alive());
    }
}
