//! `mqnet xdp`: XDP programs that process each frame received by a netdev.

mod words;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mqnet_command::Failure;
use mqnet_control::client::segment;
use mqnet_control_api::{
    Outcome, SetXdp, XdpEntry, XdpInfo, XdpMap, XdpMapRequest, XdpMapVerb, XdpMode,
};

use crate::api::{self, Api};

/// Largest accepted object file, in bytes.
const OBJECT_MAX: usize = 480 << 10;

#[derive(Args, Debug)]
pub struct XdpArgs {
    #[command(subcommand)]
    command: XdpCommand,
}

#[derive(Debug, Subcommand)]
enum XdpCommand {
    /// Verify a program and attach it to the receive path of a netdev.
    Attach(AttachArgs),
    /// Detach the program.
    Detach {
        /// A netdev.
        dev: String,
    },
    /// Show the program, its counters and its maps.
    Show {
        /// A netdev.
        dev: String,
        /// Print JSON.
        #[arg(short, long)]
        json: bool,
    },
    /// Read and write maps of the program.
    #[command(subcommand)]
    Map(MapCommand),
}

#[derive(Args, Debug)]
struct AttachArgs {
    /// A netdev.
    dev: String,
    /// Object file, compiled with `clang -O2 -g -target bpf -c`.
    object: PathBuf,
    /// Section with the program [default: the section with a name that begins with xdp].
    #[arg(long, value_name = "NAME")]
    section: Option<String>,
    /// Function of the program, if the section has several functions.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Run the program as machine code (x86-64 only; default on x86-64).
    #[arg(long, conflicts_with = "interpret")]
    jit: bool,
    /// Interpret the program, with a check of every memory access.
    #[arg(long)]
    interpret: bool,
}

#[derive(Debug, Subcommand)]
enum MapCommand {
    /// Print all entries.
    Dump {
        /// A netdev.
        dev: String,
        /// Name of a map.
        map: String,
        /// Print JSON.
        #[arg(short, long)]
        json: bool,
    },
    /// Print the value of a key.
    Get {
        /// A netdev.
        dev: String,
        /// Name of a map.
        map: String,
        /// A number (little endian), or bytes like 0a:00:00:01.
        key: String,
    },
    /// Set the value of a key.
    Set {
        /// A netdev.
        dev: String,
        /// Name of a map.
        map: String,
        /// A number (little endian), or bytes like 0a:00:00:01.
        key: String,
        /// Value: a number (little endian), or bytes like 0a:00:00:01.
        value: String,
    },
    /// Delete an entry.
    Delete {
        /// A netdev.
        dev: String,
        /// Name of a map.
        map: String,
        /// A number (little endian), or bytes like 0a:00:00:01.
        key: String,
    },
}

impl XdpArgs {
    /// Netdev of the command.
    pub(crate) fn dev(&self) -> &str {
        match &self.command {
            XdpCommand::Attach(args) => &args.dev,
            XdpCommand::Detach { dev } | XdpCommand::Show { dev, .. } => dev,
            XdpCommand::Map(
                MapCommand::Dump { dev, .. }
                | MapCommand::Get { dev, .. }
                | MapCommand::Set { dev, .. }
                | MapCommand::Delete { dev, .. },
            ) => dev,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &XdpArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    let path = format!("/v1/netdevs/{}/xdp", segment(args.dev()));
    match &args.command {
        XdpCommand::Attach(args) => attach(args, api, &path),
        XdpCommand::Detach { .. } => {
            let _: Outcome = api::post(api, &path, &SetXdp::default())?;
            Ok(())
        }
        XdpCommand::Show { dev, json } => show(dev, *json, api, &path, out),
        XdpCommand::Map(command) => map(command, api, &path, out),
    }
}

fn attach(args: &AttachArgs, api: &dyn Api, path: &str) -> Result<(), Failure> {
    let file = args.object.display();
    let bytes = std::fs::read(&args.object)
        .map_err(|e| Failure::BadInput(format!("object {file}: {e}")))?;
    if bytes.len() > OBJECT_MAX {
        let why = format!("object {file}: more than {OBJECT_MAX} bytes; llvm-strip -g helps");
        return Err(Failure::BadInput(why));
    }
    let mode = match (args.jit, args.interpret) {
        (true, _) => XdpMode::Jit,
        (_, true) => XdpMode::Interpret,
        _ => XdpMode::Auto,
    };
    let object = Some(words::hex(&bytes));
    let (section, program) = (args.section.clone(), args.program.clone());
    let want = SetXdp { object, section, program, mode };
    let _: Outcome = api::post(api, path, &want).map_err(|e| match e.field.as_deref() {
        Some("object") => Failure::BadInput(format!("{file}: {e}")),
        _ => Failure::from(e),
    })?;
    Ok(())
}

fn show(
    dev: &str,
    json: bool,
    api: &dyn Api,
    path: &str,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let info: XdpInfo = api::get(api, path)?;
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&info)?)?;
        return Ok(());
    }
    let Some(program) = info.program else {
        writeln!(out, "{dev}: no program")?;
        return Ok(());
    };
    writeln!(
        out,
        "{dev}: {} (section {}), {}, {} instructions, {} walked by the verifier",
        program.name, program.section, program.mode, program.insns, program.verified_insns
    )?;
    writeln!(
        out,
        "  xdp_packets {}  xdp_drops {}  xdp_tx {}  xdp_redirects {}",
        program.packets, program.drops, program.tx, program.redirects
    )?;
    for map in &program.maps {
        writeln!(
            out,
            "  map {}: {}, key {} B, value {} B, max_entries {}",
            map.name, map.kind, map.key_size, map.value_size, map.max_entries
        )?;
    }
    Ok(())
}

fn map(
    command: &MapCommand,
    api: &dyn Api,
    path: &str,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (name, verb, key, value, json) = match command {
        MapCommand::Dump { map, json, .. } => (map, XdpMapVerb::Dump, None, None, *json),
        MapCommand::Get { map, key, .. } => (map, XdpMapVerb::Get, Some(key), None, false),
        MapCommand::Set { map, key, value, .. } => {
            (map, XdpMapVerb::Set, Some(key), Some(value), false)
        }
        MapCommand::Delete { map, key, .. } => (map, XdpMapVerb::Delete, Some(key), None, false),
    };
    let info: XdpInfo = api::get(api, path)?;
    let maps = info.program.map(|program| program.maps).unwrap_or_default();
    // The map's definition contains the sizes of key and value. For an unknown map, both are left
    // out of the request, and the server's error lists the existing maps.
    let found = maps.into_iter().find(|map| map.name == *name);
    let is_known = found.is_some();
    let def = found.unwrap_or_default();
    let part = |what: &str, text: Option<&String>, size: u32| {
        let text = text.filter(|_| is_known);
        let bytes = text.map(|text| words::bytes(what, text, size)).transpose();
        bytes.map_err(Failure::BadInput)
    };
    let want = XdpMapRequest {
        map: name.clone(),
        verb,
        key: part("key", key, def.key_size)?.map(|bytes| words::hex(&bytes)),
        value: part("value", value, def.value_size)?.map(|bytes| words::hex(&bytes)),
    };
    let entries: Vec<XdpEntry> = api::post(api, &format!("{path}/map"), &want)?;
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&entries)?)?;
        return Ok(());
    }
    entries.iter().try_for_each(|entry| write_entry(entry, &def, out))
}

fn write_entry(entry: &XdpEntry, def: &XdpMap, out: &mut dyn Write) -> Result<(), Failure> {
    let key = words::readable(&entry.key);
    if !def.kind.contains("percpu") {
        let value = entry.values.first().map(|value| words::readable(value));
        writeln!(out, "{key}: {}", value.unwrap_or_default())?;
        return Ok(());
    }
    for (channel, value) in entry.values.iter().enumerate() {
        // The map has a value for each possible channel. Zero values are printed for channel 0
        // only.
        if value.bytes().any(|b| b != b'0') || channel == 0 {
            writeln!(out, "{key}: channel {channel}: {}", words::readable(value))?;
        }
    }
    Ok(())
}
