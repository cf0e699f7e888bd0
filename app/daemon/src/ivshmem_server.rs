//! `mqnet ivshmem-server`: shared memory for guests and for bridge ends on the host.

use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, value_parser};
use mqnet_address::parse_size;
use mqnet_command::Failure;
use mqnet_ntb::hw::ivshmem::{MEMORY, VECTORS};
use mqnet_ntb::{IvshmemServer, ServerConfig};
use mqnet_sysio::signal::StopSignals;
use mqnet_sysio::{clock, poll};

use crate::args::AccessArgs;

#[derive(Args, Debug)]
pub struct ServerArgs {
    /// Path of the socket to listen on.
    #[arg(value_name = "SOCKET")]
    path: PathBuf,
    /// Size of the memory: a power of two from 1M to 1G.
    #[arg(long, default_value = "16M", value_parser = size)]
    size: u64,
    /// Interrupt vectors of each peer, equal to vectors= of QEMU's device. Best is 1 for the link
    /// and one for each queue pair; with 0, peers poll.
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = vectors())]
    vectors: u16,
    #[command(flatten)]
    access: AccessArgs,
}

fn vectors() -> impl TypedValueParser<Value = u16> {
    let [least, most] = [VECTORS.start(), VECTORS.end()].map(|n| i64::from(*n));
    value_parser!(u16).range(least..=most)
}

fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).filter(|size| size.is_power_of_two() && MEMORY.contains(size));
    size.ok_or_else(|| "must be a power of two from 1M to 1G, like 16M".to_owned())
}

/// Options for QEMU, and commands for the guest and the host.
fn flags(args: &ServerArgs) -> String {
    let (path, vectors) = (args.path.display(), args.vectors);
    let server = match vectors {
        0 => String::new(),
        n => format!(",vectors={n}"),
    };
    format!(
        "-chardev socket,id=iv0,path={path} -device ivshmem-doorbell,chardev=iv0{server}\n\
         in the guest: mqnet link tap:t0 ntb:ivshmem=pci    on the host: ntb:ivshmem={path}"
    )
}

pub fn run(args: &ServerArgs) -> Result<(), Failure> {
    let signals = StopSignals::take()?;
    let config = ServerConfig { path: args.path.clone(), size: args.size, vectors: args.vectors };
    let mut server = IvshmemServer::new_as(config, args.access.get()?).map_err(Failure::Broken)?;
    println!("{}", flags(args));
    while !signals.pending() {
        for text in server.turn(clock::monotonic()) {
            println!("{text}");
        }
        let mut fds = server.events();
        fds.push(signals.as_fd());
        poll::wait_readable(&fds, server.patience())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn parse(words: &[&str]) -> Result<ServerArgs, String> {
        let all = ["x", "/run/iv.sock"].iter().chain(words);
        Words::try_parse_from(all).map(|words| words.server).map_err(|e| e.to_string())
    }

    // Goal: invalid sizes and vector counts are refused with the range, and the QEMU options have
    // the numbers of the server.
    #[test]
    fn numbers_are_checked() {
        let server = parse(&["--size", "64M", "--vectors", "5"]).unwrap();
        assert_eq!((server.size, server.vectors), (64 << 20, 5));
        assert!(
            flags(&server)
                .contains("path=/run/iv.sock -device ivshmem-doorbell,chardev=iv0,vectors=5")
        );
        for (option, value, words) in [
            ("--size", "3M", "power of two from 1M to 1G"),
            ("--size", "2G", "power of two from 1M to 1G"),
            ("--size", "512K", "power of two from 1M to 1G"),
            ("--vectors", "66", "0..=65"),
        ] {
            let text = parse(&[option, value]).unwrap_err();
            assert!(text.contains(words), "{option} {value}: {text}");
        }
    }
}
