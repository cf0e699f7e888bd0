//! `mqnet ynl`: the kernel's `netdev` netlink family for mqnet's netdevs, with the syntax of the
//! kernel's own ynl tool.

mod fault;
mod operation;
mod pprint;
mod request;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use clap::{ArgGroup, Args};
use mqnet_control_api::ApiError;
use serde_json::Value;

use crate::api::Api;
use fault::Fault;
use request::{Mode, Request};

/// Function that returns one connection per mqnet process.
pub(crate) type All<'a> = &'a dyn Fn() -> Result<Vec<Box<dyn Api>>, ApiError>;

/// Arguments of `mqnet ynl`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("mode").required(true)))]
pub struct YnlArgs {
    /// List all objects: queue-get, napi-get, qstats-get, page-pool-get or page-pool-stats-get.
    #[arg(long, value_name = "OPERATION", group = "mode")]
    pub(crate) dump: Option<String>,
    /// Show one object: queue-get, napi-get, page-pool-get or page-pool-stats-get.
    #[arg(long = "do", value_name = "OPERATION", group = "mode")]
    pub(crate) do_: Option<String>,
    /// Attributes of the request, such as '{"ifindex": 3}'.
    #[arg(long, value_name = "JSON")]
    pub(crate) json: Option<String>,
    /// Print JSON instead of Python's notation.
    #[arg(long)]
    pub(crate) output_json: bool,
    /// Netlink family. `netdev` is the only one; the option exists for command lines of the
    /// kernel's tool.
    #[arg(long, default_value = "netdev", value_parser = ["netdev"], hide = true)]
    pub(crate) family: String,
}

/// Runs one request and returns the exit code, which is 1 if the output cannot be written.
pub(crate) fn run(args: &YnlArgs, all: All<'_>, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    respond(args, all, out, err).unwrap_or(1)
}

fn respond(
    args: &YnlArgs,
    all: All<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (mode, name) = match (&args.dump, &args.do_) {
        (Some(name), _) => (Mode::Dump, name.as_str()),
        (None, name) => (Mode::Do, name.as_deref().unwrap_or_default()),
    };
    let json = args.json.as_deref().unwrap_or("{}");
    let answer = Request::parse(mode, name, json).and_then(|request| {
        let hosts = all().map_err(|e| Fault::Local(e.message))?;
        let answer = operation::run(&request, &hosts)?;
        Ok((request.operation.order, answer))
    });
    match answer {
        Ok((order, value)) if args.output_json => writeln!(out, "{}", dumps(&value, order))?,
        Ok((_, value)) => writeln!(out, "{}", pprint::format(&value))?,
        Err(Fault::Usage(line)) => {
            writeln!(err, "mqnet ynl: {line}")?;
            return Ok(2);
        }
        Err(Fault::Local(line)) => {
            writeln!(err, "mqnet ynl: {line}")?;
            return Ok(1);
        }
        // The error is printed on stdout, as by the kernel's tool.
        Err(Fault::Netlink(error)) => {
            writeln!(out, "{error}")?;
            return Ok(1);
        }
    }
    Ok(0)
}

/// JSON on one line with blanks after commas and colons; attributes have the order in which the
/// kernel sends them.
fn dumps(value: &Value, order: &[&str]) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| dumps(item, order)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let rank = |name: &str| order.iter().position(|known| *known == name);
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
            let fields: Vec<_> = fields
                .into_iter()
                .map(|(name, value)| {
                    format!("{}: {}", ascii(&Value::from(name.as_str())), dumps(value, order))
                })
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => ascii(other),
    }
}

/// Scalar as JSON, with every character outside printable ASCII escaped.
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() && c != '\x7f' {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
