//! The commands that send requests to a running mqnet.

use std::io::{stderr, stdout};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use mqnet_address::{absolute, check_link_name};
use mqnet_command::Failure;
use mqnet_control::client::{Client, segment};
use mqnet_control::discover::{Search, find_device, find_link, own_netns, survey};
use mqnet_control::socket::Places;
use mqnet_control_api::{
    ApiError, Channels, Code, LinkInfo, LinkSpec, Rings, SetChannels, SetMtu, SetRings,
};
use serde::Serialize;
use serde_json::Value;

use crate::api::{self, Api};
use crate::capture::{CaptureArgs, Stream};
use crate::ethtool::EthtoolArgs;
use crate::monitor::MonitorArgs;
use crate::show::ShowArgs;
use crate::stats::StatsArgs;
use crate::tc::TcArgs;
use crate::top::TopArgs;
use crate::why::WhyArgs;
use crate::xdp::XdpArgs;
use crate::ynl::YnlArgs;
use crate::{capture, ethtool, monitor, show, stats, tc, top, why, xdp, ynl};

/// Timeout of a request for events, longer than the server's long poll.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

impl Api for Client {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        Client::get(self, path)
    }

    fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.request("PATCH", path, Some(body))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.request("POST", path, Some(body))
    }
}

impl Stream for Client {
    fn stream(&self, path: &str, out: &mut dyn std::io::Write) -> Result<(), ApiError> {
        Client::stream(self, path, out, &AtomicBool::new(false)).map(drop)
    }
}

/// Changes a setting of a netdev.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// A netdev.
    #[arg(value_name = "DEV")]
    dev: String,
    /// Setting to change.
    #[arg(value_name = "KEY", value_parser = ["channels", "mtu", "rx-ring", "tx-ring"])]
    key: String,
    /// Value of the setting.
    #[arg(value_name = "N")]
    value: u32,
}

#[derive(Args, Debug)]
pub struct DelArgs {
    /// A link, or a netdev of a link.
    #[arg(value_name = "LINK")]
    link: String,
}

#[derive(Args, Debug)]
pub struct AddArgs {
    /// Name of the link.
    #[arg(value_name = "LINK")]
    link: String,
    /// First endpoint address.
    a: String,
    /// Second endpoint address.
    b: String,
    /// Requested number of channels.
    #[arg(short, long)]
    channels: Option<u16>,
}

/// Connections to all mqnet processes. `get` concatenates the lists of several processes; changes
/// are rejected.
struct All(Vec<Client>);

impl Api for All {
    fn several(&self) -> Option<Vec<&dyn Api>> {
        (self.0.len() > 1).then(|| self.0.iter().map(|client| client as &dyn Api).collect())
    }

    fn get(&self, path: &str) -> Result<Value, ApiError> {
        match self.0.as_slice() {
            [] => Err(ApiError::new(Code::NoDevice, none_runs())),
            [one] => one.get(path),
            all => {
                let mut list = Vec::new();
                for client in all {
                    match client.get(path)? {
                        Value::Array(more) => list.extend(more),
                        other => return Ok(other),
                    }
                }
                Ok(Value::Array(list))
            }
        }
    }

    fn patch(&self, _path: &str, _body: &Value) -> Result<Value, ApiError> {
        Err(ApiError::new(Code::Invalid, "name a device"))
    }
}

fn none_runs() -> String {
    let looked: Vec<String> = match Search::new(None) {
        Ok(Search::At(socket)) => vec![socket],
        _ => Places::from_env().searched().iter().map(|at| at.display().to_string()).collect(),
    };
    format!("no mqnet process found (searched: {})", looked.join(", "))
}

fn all(search: &Search) -> Result<All, ApiError> {
    let survey = survey(search)?;
    for (socket, why) in &survey.silent {
        eprintln!("mqnet: {socket}: {why}");
    }
    Ok(All(survey.found.iter().map(|found| found.client()).collect()))
}

fn link(name: Option<&str>, search: &Search) -> Result<Box<dyn Api>, ApiError> {
    Ok(match name {
        None => Box::new(all(search)?),
        // The name selects a link or a netdev of any process.
        Some(name) => Box::new(find_link(name, own_netns(), search)?.client()),
    })
}

/// Runs `mqnet stats`.
pub fn run_stats(args: &StatsArgs, search: &Search) -> Result<(), Failure> {
    stats::run(args, &*link(args.name.as_deref(), search)?, &mut stdout())
}

/// Runs `mqnet top`.
pub fn run_top(args: &TopArgs, search: &Search) -> Result<(), Failure> {
    top::run(args, &*link(args.name.as_deref(), search)?, &mut stdout())
}

/// Runs `mqnet show`.
pub fn run_show(args: &ShowArgs, verbose: bool, search: &Search) -> Result<(), Failure> {
    show::run(args, verbose, &*link(args.name.as_deref(), search)?, &mut stdout())
}

/// Runs `mqnet why`.
pub fn run_why(args: &WhyArgs, search: &Search) -> Result<(), Failure> {
    why::run(args, &find_link(&args.name, own_netns(), search)?.client(), &mut stdout())
}

/// Deletes a link.
pub fn del(args: &DelArgs, search: &Search) -> Result<(), Failure> {
    let found = find_link(&args.link, own_netns(), search)?;
    found.client().request("DELETE", &path("links", &args.link), None)?;
    Ok(())
}

/// Makes the daemon read its configuration again.
pub fn reload(search: &Search) -> Result<(), Failure> {
    let answer = daemon(search)?.request("POST", "/v1/reload", None)?;
    if let Some(note) = answer["note"].as_str() {
        println!("{note}");
    }
    Ok(())
}

/// Links of all mqnet processes. Processes that do not respond to the search are skipped. If a
/// later request fails, a warning is logged and the list is empty.
pub fn running(search: &Search) -> Vec<LinkInfo> {
    let links = all(search).and_then(|api| api::get(&api, "/v1/links"));
    links.unwrap_or_else(|e| {
        if e.code != Code::NoDevice {
            tracing::warn!("the running links: {e}");
        }
        Vec::new()
    })
}

fn path(kind: &str, name: &str) -> String {
    format!("/v1/{kind}/{}", segment(name))
}

fn exit(code: u8) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code)) }
}

/// Runs `mqnet ethtool`.
pub fn run_ethtool(args: &EthtoolArgs, search: &Search) -> Result<(), Failure> {
    let find = |dev: &str| -> Result<Box<dyn Api>, ApiError> {
        Ok(Box::new(find_device(dev, own_netns(), search)?.client()))
    };
    exit(ethtool::run(args, &find, &mut stdout(), &mut stderr()))
}

/// Runs `mqnet ynl`.
pub fn run_ynl(args: &YnlArgs, search: &Search) -> Result<(), Failure> {
    let every = || -> Result<Vec<Box<dyn Api>>, ApiError> {
        Ok(all(search)?.0.into_iter().map(|client| Box::new(client) as Box<dyn Api>).collect())
    };
    exit(ynl::run(args, &every, &mut stdout(), &mut stderr()))
}

/// Runs `mqnet tc`.
pub fn run_tc(args: &TcArgs, search: &Search) -> Result<(), Failure> {
    let find = |dev: &str| -> Result<Box<dyn Api>, ApiError> {
        Ok(Box::new(find_device(dev, own_netns(), search)?.client()))
    };
    let every = || -> Result<Vec<Box<dyn Api>>, ApiError> {
        Ok(all(search)?.0.into_iter().map(|client| Box::new(client) as Box<dyn Api>).collect())
    };
    exit(tc::run(args, &find, &every, &mut stdout(), &mut stderr()))
}

/// Runs `mqnet monitor`.
pub fn run_monitor(args: &MonitorArgs, search: &Search) -> Result<(), Failure> {
    let clients = all(search)?.0;
    if clients.is_empty() {
        return Err(Failure::Broken(none_runs()));
    }
    std::thread::scope(|scope| {
        let watch = |client: Client| {
            scope.spawn(move || {
                monitor::run(args, &client.with_timeout(EVENT_TIMEOUT), &mut stdout())
            })
        };
        let watchers: Vec<_> = clients.into_iter().map(watch).collect();
        for watcher in watchers {
            let broken = || Failure::Broken("a watcher has ended".to_owned());
            watcher.join().map_err(|_| broken())??;
        }
        Ok(())
    })
}

/// Runs `mqnet capture`.
pub fn run_capture(args: &CaptureArgs, search: &Search) -> Result<(), Failure> {
    capture::run(args, &find_device(&args.dev, own_netns(), search)?.client())
}

/// Runs `mqnet xdp`.
pub fn run_xdp(args: &XdpArgs, search: &Search) -> Result<(), Failure> {
    xdp::run(args, &find_device(args.dev(), own_netns(), search)?.client(), &mut stdout())
}

/// Changes a setting of a netdev.
pub fn set(args: &SetArgs, search: &Search) -> Result<(), Failure> {
    let client = find_device(&args.dev, own_netns(), search)?.client();
    let value = args.value;
    let ring = |rx: bool| SetRings { rx: rx.then_some(value), tx: (!rx).then_some(value) };
    if let Some(most) = most(&client, args)?.filter(|most| !(1..=*most).contains(&value)) {
        let key = &args.key;
        return Err(Failure::BadInput(format!("{key}: {value} is not a number from 1 to {most}")));
    }
    let outcome = match args.key.as_str() {
        // The validated value has at most 16 bits.
        "channels" => patch(&client, args, "channels", &SetChannels { combined: value as u16 }),
        "mtu" => patch(&client, args, "mtu", &SetMtu { mtu: value }),
        key => patch(&client, args, "rings", &ring(key == "rx-ring")),
    }?;
    if let Some(note) = outcome["note"].as_str() {
        println!("{note}");
    }
    Ok(())
}

/// Largest value of a key that the device accepts; none for `mtu`, which the server validates, and
/// for rings without a limit. The client checks the other limits, because the server's errors state
/// no range.
fn most(client: &Client, args: &SetArgs) -> Result<Option<u32>, Failure> {
    let base = path("netdevs", &args.dev);
    Ok(match args.key.as_str() {
        "channels" => {
            let channels: Channels = api::get(client, &format!("{base}/channels"))?;
            Some(channels.combined_max.into())
        }
        "mtu" => None,
        key => {
            let rings: Rings = api::get(client, &format!("{base}/rings"))?;
            if key == "rx-ring" { rings.rx_max } else { rings.tx_max }
        }
    })
}

fn patch(
    client: &Client,
    args: &SetArgs,
    what: &str,
    body: &impl Serialize,
) -> Result<Value, Failure> {
    let body = serde_json::to_value(body)?;
    let path = format!("{}/{what}", path("netdevs", &args.dev));
    Ok(client.request("PATCH", &path, Some(&body))?)
}

fn daemon(search: &Search) -> Result<Client, ApiError> {
    let survey = survey(search)?;
    let daemon = survey.found.iter().find(|found| found.instance.mode == "daemon");
    let none = || ApiError::new(Code::NoDevice, "no mqnet daemon is running: start 'mqnet daemon'");
    daemon.map(|found| found.client()).ok_or_else(none)
}

/// Adds a link to the daemon. `check` first validates the link with the backends.
pub fn add(
    args: &AddArgs,
    search: &Search,
    check: &dyn Fn(&LinkSpec) -> Result<(), ApiError>,
) -> Result<(), Failure> {
    check_link_name(&args.link)?;
    // The client resolves relative paths: the daemon has another working directory.
    let here = std::env::current_dir()?;
    let spec = LinkSpec {
        a: absolute(&args.a, &here),
        b: absolute(&args.b, &here),
        channels: args.channels,
        workers: None,
        cpus: None,
        poll_window: None,
    };
    check(&spec).map_err(|e| Failure::BadInput(e.to_string()))?;
    let body = serde_json::to_value(&spec)?;
    daemon(search)?.request("PUT", &path("links", &args.link), Some(&body))?;
    Ok(())
}
