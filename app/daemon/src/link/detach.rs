//! `mqnet link ... --detach`: passes the link to the daemon, or runs it in a detached process.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mqnet_address::{absolute, check_link_name};
use mqnet_command::Failure;
use mqnet_control::client::{Client, segment};
use mqnet_control::discover::{Search, survey};
use mqnet_control::socket::Places;
use mqnet_control_api::LinkSpec;

use crate::args::LinkArgs;

/// Time limit for the first reply of the new process.
const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &LinkArgs, spec: &LinkSpec) -> Result<(), Failure> {
    let there = survey(&Search::new(None)?)?;
    let daemon = there.found.iter().find(|found| found.instance.mode == "daemon");
    if let (Some(daemon), false) = (daemon, args.control.is_explicit()) {
        let name =
            mqnet_address::parse(&spec.a).map(|end| end.config().netdev_name()).unwrap_or_default();
        check_link_name(&name)?;
        // Relative paths are resolved here: the daemon has another working directory.
        let here = std::env::current_dir()?;
        let [a, b] = [&spec.a, &spec.b].map(|end| absolute(end, &here));
        let body = serde_json::to_value(LinkSpec { a, b, ..spec.clone() })?;
        let path = format!("/v1/links/{}", segment(&name));
        Client::new(&daemon.socket).request("PUT", &path, Some(&body))?;
        println!("{name}: handed to the daemon, pid {}", daemon.instance.pid);
        return Ok(());
    }
    let folder = Places::from_env().writable()?;
    let log = folder.join(format!("detached-{}.log", std::process::id()));
    let rest = std::env::args_os().skip(1).filter(|word| word != "--detach");
    let mut child = Command::new(std::env::current_exe()?)
        .args(rest)
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .spawn()?;
    let begin = Instant::now();
    while begin.elapsed() < START_TIMEOUT {
        if child.try_wait()?.is_some() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let _ = std::fs::remove_file(&log);
            return Err(Failure::Broken(said.trim_start_matches("mqnet: ").trim().to_owned()));
        }
        let all = survey(&Search::new(args.control.control.as_deref())?)?;
        if let Some(found) = all.found.iter().find(|found| found.instance.pid == child.id()) {
            let names: Vec<&str> = found.links.iter().map(|link| link.name.as_str()).collect();
            println!("{}: pid {}, log {}", names.join(","), child.id(), log.display());
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Failure::Broken(format!("pid {} does not answer; see {}", child.id(), log.display())))
}
