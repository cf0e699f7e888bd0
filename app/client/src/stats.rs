//! `mqnet stats`: every counter, and the conservation check.

mod conservation;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod rates;
pub(crate) mod show;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use mqnet_command::{Failure, put};
use mqnet_control::client::segment;
use mqnet_control::discover::names;
use mqnet_control_api::{LinkInfo, LinkStats};

use crate::api::{self, Api};

/// Time between two readings that distinguish frames in flight from missing frames.
const MOMENT: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub struct StatsArgs {
    /// A netdev or a link [default: every link].
    #[arg(value_name = "DEV|LINK")]
    pub(crate) name: Option<String>,
    /// Print JSON; with --interval, one line for each reading.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Repeat every S seconds, with rates.
    #[arg(short, long, value_name = "S", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// End after N intervals.
    #[arg(short, long, value_name = "N", requires = "interval",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Parses a number of seconds from 0.1 to 3600.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number (0.1 to 3600 seconds)".to_owned())?;
    if !(0.1..=3600.0).contains(&value) {
        return Err("allowed are 0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(value))
}

/// Runs the command.
pub(crate) fn run(args: &StatsArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    run_with(args, api, out, &std::thread::sleep)
}

fn run_with(
    args: &StatsArgs,
    api: &dyn Api,
    out: &mut dyn Write,
    pause: &dyn Fn(Duration),
) -> Result<(), Failure> {
    let Some(interval) = args.interval else {
        let before = read(api, args.name.as_deref())?;
        pause(MOMENT);
        let now = read(api, args.name.as_deref())?;
        let text =
            if args.json { show::json(&before, &now, true)? } else { show::text(&before, &now) };
        return put(out, &text);
    };
    let mut before = read(api, args.name.as_deref())?;
    let mut done = 0;
    while args.count.is_none_or(|count| done < count) {
        pause(interval);
        let now = read(api, args.name.as_deref())?;
        if args.json {
            put(out, &show::json(&before, &now, false)?)?;
        } else {
            let gap = if done > 0 { "\n" } else { "" };
            put(out, &format!("{gap}{}", show::rates(&before, &now)))?;
        }
        before = now;
        done += 1;
    }
    Ok(())
}

/// Counters of the link with this name, of the link of the netdev with this name, or of every link.
pub(crate) fn read(api: &dyn Api, name: Option<&str>) -> Result<Vec<LinkStats>, Failure> {
    if let Some(several) = api.several() {
        // Each process is read separately: links of two processes may have the same name.
        let all = several.into_iter().map(|one| read(one, name));
        return Ok(all.collect::<Result<Vec<_>, _>>()?.concat());
    }
    match name {
        Some(name) => Ok(vec![of_name(api, name)?]),
        None => {
            let links: Vec<LinkInfo> = api::get(api, "/v1/links")?;
            links.iter().map(|link| of_link(api, link, &links)).collect()
        }
    }
}

fn of_name(api: &dyn Api, name: &str) -> Result<LinkStats, Failure> {
    Ok(api::get(api, &format!("/v1/links/{}/stats", segment(name)))?)
}

/// Counters of a listed link, even if another link or a netdev has the same name.
pub(crate) fn of_link(
    api: &dyn Api,
    link: &LinkInfo,
    all: &[LinkInfo],
) -> Result<LinkStats, Failure> {
    let named = names::of_links(all);
    match names::links(&link.name, names::own_netns(), &named)[..] {
        [at] if named[at].link == link.name => of_name(api, &link.name),
        // The name is ambiguous: select the link as `LINK/NETDEV`.
        _ => {
            let netdev = link.netdevs.first().map(|dev| format!("{}/{}", link.name, dev.name));
            of_name(api, &netdev.unwrap_or_else(|| link.name.clone()))
        }
    }
}

#[cfg(test)]
mod tests;
