//! `cargo xtask generate`: writes pages and files that are generated from tables in the code.

use std::fmt::Write;
use std::path::Path;

use mqnet_netdev::stats::{Check, LaneCounter, LaneSide, RxBufferTotals, Unit, WorkerTotals};
use mqnet_netdev::{DropReason, LaneCounters, RxStats, TxStats, XdpStats};
use mqnet_pktbuf::PoolStats;

use crate::{Result, dashboard, project};

/// Path of a page or other file, path of its table, and function that returns the text.
pub(crate) type Page = (&'static str, &'static str, fn() -> String);

/// Every generated page.
pub(crate) const PAGES: [Page; 5] = [
    ("book/src/reference/counters.md", "device/netdev/src/stats/table.rs", counters),
    ("book/src/reference/endpoints.md", "runtime/address/src/endpoint", mqnet_address::document),
    (
        "book/src/reference/configuration.md",
        "runtime/address/src/config/settings.rs",
        mqnet_address::config::configuration_page,
    ),
    (
        "book/src/reference/errors.md",
        "runtime/control_api/src/error.rs",
        mqnet_control_api::errors_page,
    ),
    ("packaging/grafana/mqnet.json", "device/netdev/src/stats/table.rs", dashboard::text),
];

/// Tests of the program that write the pages of the commands and of the HTTP API.
const WRITERS: [&str; 6] = ["test", "--quiet", "-p", "mqnet", "--", "reference::"];

/// Writes the pages below `root`.
pub(crate) fn run(root: &Path) -> Result<()> {
    for (page, _, text) in PAGES {
        std::fs::write(root.join(page), text()).map_err(|e| format!("{page}: {e}"))?;
    }
    let mut cargo = project::command("cargo");
    let output = cargo.args(WRITERS).env("MQNET_WRITE_PAGES", "1").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(())
}

const HEAD: &str = "\
# Counters

Generated from `device/netdev/src/stats/` by `cargo xtask generate`.

A lane is one direction of one channel: from the RX queue of one netdev to the TX queue of the
other. `mqnet stats -j` and `mqnet link -j` have the counters of each lane, `mqnet ethtool -S DEV`
those of each queue (`#` is its number), `/metrics` the metrics with the prefix `mqnet_` and the
labels `device`, `link`, `side` and `channel`. A counter that consists of several queue counters is
their sum.
";

const DROPS: &str = "
## Drop reasons

Every dropped frame has one reason: `drops` of a lane in JSON, `mqnet_drops_total{reason}` as a
metric, `drop_*`, `rx_queue_#_drops` and `tx_queue_#_drops` in `ethtool -S`. A frame goes from
netdev A to netdev B.

| reason | meaning | what to do |
|---|---|---|
";

const RX_BUFFERS: &str = "
## RX buffers and page pools

Counters of queues that give buffers to a device. Page pools: `mqnet ynl` (`page-pool-stats-get`)
and `ethtool -S`; buffers: `mqnet show -j` and `ethtool -S`.

| JSON | `ethtool -S` | unit | meaning | when it grows |
|---|---|---|---|---|
";

const WORKERS: &str = "
## Workers

Labels of the metrics: `link` and `worker`.

| JSON (`mqnet show -j`) | metric | unit | meaning | when it grows |
|---|---|---|---|---|
";

fn counters() -> String {
    let mut out = HEAD.to_owned();
    let terms = |check| {
        let rows = LaneCounters::TABLE.iter().filter(move |row| row.check == check);
        rows.map(|row| format!("`{}`", row.json())).collect::<Vec<_>>().join(" + ")
    };
    let _ = writeln!(
        out,
        "\nConservation check of a lane, with `in-flight` 0 at rest:\n\
         {} = {} + `drops` + `in-flight`.",
        terms(Check::In),
        terms(Check::Out)
    );
    for (side, title) in [(LaneSide::Rx, "RX queue"), (LaneSide::Tx, "TX queue")] {
        let _ = writeln!(
            out,
            "\n## {title}\n\n| JSON | metric | `ethtool -S` | unit | meaning | when it grows |\n\
             |---|---|---|---|---|---|"
        );
        for row in LaneCounters::TABLE.iter().filter(|row| row.side == side) {
            let _ = writeln!(out, "{}", line(row));
        }
    }
    out += DROPS;
    for reason in DropReason::ALL {
        let mut action = reason.action().replace("{mtu}", "the MTU");
        for (name, netdev) in [("{from}", "A"), ("{to}", "B"), ("{here}", "the netdev")] {
            action = action.replace(name, netdev);
        }
        let _ = writeln!(out, "| `{}` | {} | {action} |", reason.name(), reason.help());
    }
    out += RX_BUFFERS;
    for row in PoolStats::TABLE {
        let names = format!("`rx_{0}`, `rx#_{0}`", row.ethtool);
        let _ = writeln!(
            out,
            "| `{}` | {names} | {} |",
            row.name,
            rest(row.unit, row.help, row.action)
        );
    }
    for row in RxBufferTotals::TABLE {
        let ethtool = match row.pattern {
            "" => "-".to_owned(),
            pattern => format!("`{pattern}`"),
        };
        let (name, rest) = (row.name.replace('_', "-"), rest(row.unit, row.help, row.action));
        let _ = writeln!(out, "| `{name}` | {ethtool} | {rest} |");
    }
    out += WORKERS;
    for row in WorkerTotals::TABLE {
        let rest = rest(row.unit, row.help, row.action);
        let _ = writeln!(out, "| `{}` | `{}` | {rest} |", row.name, row.pattern);
    }
    out
}

fn line(row: &LaneCounter) -> String {
    let queues = [RxStats::COUNTERS, XdpStats::COUNTERS, TxStats::COUNTERS].concat();
    let parts = queues.iter().filter(|part| part.lane == row.name);
    let parts: Vec<String> = parts.map(|part| format!("`{}`", part.pattern)).collect();
    let unit = match row.unit {
        Unit::Frames => "frames",
        Unit::Bytes => "bytes",
        Unit::Events => "events",
        Unit::Nanoseconds => "ns",
    };
    let (json, parts, rest) = (row.json(), parts.join(", "), rest(unit, row.help, row.action));
    format!("| `{json}` | `{}` | {parts} | {rest} |", row.metric)
}

/// Columns that all tables of counters have: unit, meaning and advice.
fn rest(unit: &str, help: &str, action: &str) -> String {
    let action = if action.is_empty() { "normal" } else { action };
    format!("{unit} | {help} | {action}")
}
