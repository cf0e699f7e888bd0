//! Instructions per frame and per object, counted by callgrind. The counts are the same in every
//! run and independent of the load of the machine.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mqnet_rings::spsc;
use mqnet_shmem::{Span, SpanMut};

use super::child::{self, Child, RunFolder};
use super::group::burst;
use super::hugepages;
use super::report::{Case, Line, Report, Unit};
use super::rxbuf::life::{Kind, Life};
use super::scaling::lanes;
use super::section::Section;
use super::stats::{Class, Sample};
use super::{
    LinkPlug, Result, Session, ntb_transport, peers, pool, profile, ring, virtio_ends, xdp,
};

/// Number of counted bursts, after a warm-up that is not counted.
const BURSTS: u64 = 1000;
const WARM_UP: u64 = 400;
/// Number of counted bursts per channel for cache misses: the cache simulation is slower than the
/// count of instructions.
const MISSING: u64 = 100;
/// Time limit: Valgrind is slow, and starting DPDK takes most of the time.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Attached discipline, which stays empty.
pub(super) const EMPTY_QDISC: &str = "fq_codel";

/// Arguments of `mqnet-bench instr`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Count these sections only, out of link, ring, pool, xdp-drop, xdp-pass, ntb-send,
    /// ntb-receive and the virtio ones [default: all]
    #[arg(long = "only", value_enum, value_name = "PART", value_delimiter = ',')]
    only: Vec<Section>,
}

/// Arguments of the hidden subcommand `bench-instr`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InstrArgs {
    section: Section,
    bytes: usize,
    bursts: u64,
    /// Number of channels, for the section `lanes`.
    #[arg(default_value_t = 1)]
    channels: usize,
}

/// Counted section: callgrind counts while this function runs, and finds it by its name.
#[inline(never)]
fn measured_section(burst: &mut dyn FnMut() -> usize, bursts: u64) -> u64 {
    let mut units = 0;
    for _ in 0..bursts {
        units += burst() as u64;
    }
    units
}

/// Runs the hidden command that callgrind executes.
pub(super) fn run_section(args: &InstrArgs, plug: Option<&LinkPlug>) -> Result<()> {
    // Fix the choice of stores: callgrind's timing makes every reader seem to be far, which would
    // change the choice during a count.
    mqnet_shmem::prefer(mqnet_shmem::Preference::Cached);
    match args.section {
        Section::Ring => {
            let (mut producer, mut consumer) = spsc::ring(ring::ENTRIES);
            measure(&mut ring::both_ways(&mut producer, &mut consumer), args.bursts);
        }
        Section::Pool => {
            let mut pool = pool::new_pool()?;
            measure(&mut pool::alloc_and_free(&mut pool), args.bursts);
            pool.close()?;
        }
        Section::XdpDrop | Section::XdpPass => {
            measure(&mut xdp::burst(args.bytes, args.section == Section::XdpDrop)?, args.bursts);
        }
        Section::Group | Section::GroupDegrade | Section::GroupNone => {
            measure(&mut burst::burst(args.section, args.bytes)?, args.bursts);
        }
        Section::Lanes => {
            let mut link = lanes::Link::new(args.bytes, 1, args.channels)?;
            measure(&mut || link.workers[0].burst(), args.bursts);
        }
        Section::RxFragment => receive(Kind::Fragment(1536), args)?,
        Section::RxFullPage => receive(Kind::FullPage, args)?,
        Section::RxNone => receive(Kind::Nobody, args)?,
        Section::Copy => measure(&mut copies(args.bytes), args.bursts),
        Section::Link | Section::LinkQdisc => {
            let plug = plug.ok_or("this program has no link to measure")?;
            let qdisc = (args.section == Section::LinkQdisc).then_some(EMPTY_QDISC);
            measure(&mut (plug.burst)(args.bytes, qdisc)?, args.bursts);
        }
        Section::NtbSend | Section::NtbReceive => {
            measure_end(ntb_transport::ends(args.section, args.bytes)?, args.bursts);
        }
        section => measure(&mut virtio(section, args.bytes)?, args.bursts),
    }
    Ok(())
}

/// Both mqnet ends of a vhost-user connection.
fn virtio(section: Section, bytes: usize) -> Result<super::Burst> {
    let packed = matches!(section, Section::PackedToDevice | Section::PackedToDriver);
    let to_device = matches!(section, Section::SplitToDevice | Section::PackedToDevice);
    virtio_ends::burst(&virtio_ends::Shape { bytes, packed, to_device })
}

fn measure(burst: &mut dyn FnMut() -> usize, bursts: u64) {
    for _ in 0..WARM_UP {
        burst();
    }
    println!("units {}", measured_section(burst, bursts));
}

/// Counts the instructions of `counted` only; `before` and `after` run uncounted for each burst.
fn measure_end(ends: ntb_transport::Ends, bursts: u64) {
    let ntb_transport::Ends { mut before, mut counted, mut after } = ends;
    let mut units = 0;
    for round in 0..WARM_UP + bursts {
        before();
        match round < WARM_UP {
            true => _ = counted(),
            false => units += measured_section(&mut counted, 1),
        }
        after();
    }
    println!("units {units}");
}

/// Counts allocation, reception and return of RX buffers.
fn receive(kind: Kind, args: &InstrArgs) -> Result<()> {
    let mut life = Life::new(kind, args.bytes, 1, 32)?;
    measure(&mut || life.burst(), args.bursts);
    Ok(())
}

/// Copies a bulk of frames into a slot and out of it.
fn copies(bytes: usize) -> impl FnMut() -> usize {
    let (from, mut slot, mut to) = (vec![1; bytes], vec![0; bytes], vec![0; bytes]);
    move || {
        for _ in 0..ring::BULK {
            SpanMut::of(&mut slot).copy_from(Span::of(black_box(&from)));
            SpanMut::of(&mut to).copy_from(Span::of(black_box(&slot)));
            black_box(&mut to);
        }
        ring::BULK
    }
}

pub(super) fn run(
    session: &Session,
    report: &mut Report,
    plug: Option<&LinkPlug>,
    args: &RunArgs,
) -> Result<()> {
    peers::needs("valgrind", "valgrind")?;
    let wanted = |section| args.only.is_empty() || args.only.contains(&section);
    let folder = RunFolder::new()?;
    let program = peers::build(&peers::ONECORE).map_err(|error| error.to_string());
    let cases = [
        (Section::Link, 64, "DPDK memif copy"),
        (Section::Link, 1514, "DPDK memif copy"),
        (Section::Ring, 8, "rte_ring SP/SC"),
        (Section::Pool, 8, "rte_mempool cache 512"),
    ];
    let virtio = Section::VIRTIO
        .into_iter()
        .flat_map(|section| [64, 1514].map(|bytes| (section, bytes, "DPDK virtio-user, vhost")));
    let cases = cases.into_iter().chain(virtio);
    for (section, bytes, who) in cases.filter(|&(section, ..)| wanted(section)) {
        session.check()?;
        session.progress.show(&format!("counting {} {bytes} B", section.word()));
        let mut lines = vec![match (section, plug) {
            (Section::Link, None) => Line::skipped("mqnet", "this program has no link to measure"),
            _ => line("mqnet", ours(&folder.path, section, bytes)),
        }];
        let spent = profile::read(&folder.path.join("ours")).filter(|_| lines[0].skipped.is_none());
        let peer = program.clone().map_err(Into::into);
        lines.push(line(who, peer.and_then(|p| theirs(&folder.path, &p, section, bytes))));
        if section == Section::Link {
            lines.push(line("copies alone", ours(&folder.path, Section::Copy, bytes)));
        }
        let name = match section {
            Section::Link => format!("link {bytes} B, both ends, bulk 32"),
            _ if Section::VIRTIO.contains(&section) => {
                format!("virtio {} {bytes} B, both ends", section.word())
            }
            _ => format!("{}, both ways, bulk 32", section.word()),
        };
        report.cases.push(Case::new(&*name, Unit::Instructions, lines));
        report.cases.extend(spent.map(|shares| profile(&name, shares)));
    }
    let mut xdp = |name, section| {
        if !wanted(section) {
            return;
        }
        let lines = vec![line("mqnet", ours(&folder.path, section, 64))];
        report.cases.push(Case::new(name, Unit::Instructions, lines));
    };
    xdp("XDP_DROP 64 B, compiled program, bulk 32", Section::XdpDrop);
    xdp("XDP_PASS 64 B, compiled program, bulk 32", Section::XdpPass);
    for (section, bytes) in Section::NTB.into_iter().flat_map(|s| [(s, 64), (s, 1514)]) {
        if wanted(section) {
            let lines = vec![line("mqnet", ours(&folder.path, section, bytes))];
            let name = format!("{} {bytes} B, one end, slots of 64 KiB", section.word());
            report.cases.push(Case::new(&*name, Unit::Instructions, lines));
        }
    }
    Ok(())
}

/// Case with the share of each layer in the instructions of a frame.
fn profile(name: &str, shares: Vec<(&str, f64)>) -> Case {
    let lines = shares.into_iter().map(|(room, percent)| line(room, Ok(percent))).collect();
    // Layers are parts of one contender, so ratios between them have no meaning.
    Case { name: format!("profile of {name}"), unit: Unit::Share, lines, ratios: Vec::new() }
}

pub(super) fn line(who: &str, counted: Result<f64>) -> Line {
    match counted {
        Ok(value) => Line::of(who, vec![Sample { value, class: Class::Single }]),
        Err(reason) => Line::skipped(who, reason.to_string()),
    }
}

fn valgrind(folder: &Path, name: &str) -> Result<Command> {
    let mut command = child::guarded("valgrind")?;
    command.args(["--tool=callgrind", "--collect-atstart=no"]);
    // Pattern, because mangled names contain the path and a hash.
    command.arg("--toggle-collect=*measured_section*");
    command.arg(format!("--callgrind-out-file={}", folder.join(name).display()));
    Ok(command)
}

/// Instructions of mqnet per frame or object.
pub(super) fn ours(folder: &Path, section: Section, bytes: usize) -> Result<f64> {
    let mut command = valgrind(folder, "ours")?;
    command.arg(child::own_path()?).arg("bench-instr").arg(section.word());
    command.arg(bytes.to_string()).arg(BURSTS.to_string());
    count(command, "our one-core program", parse)
}

/// Cache lines per frame that enter a typical server's first-level data cache, with `channels`
/// channels. Both ends of the link run on one CPU.
pub(super) fn misses(folder: &Path, bytes: usize, channels: usize) -> Result<f64> {
    let mut command = valgrind(folder, "lanes")?;
    command.args(["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64"]);
    command.arg(child::own_path()?).arg("bench-instr").arg(Section::Lanes.word());
    // Each channel gets the same number of bursts, independent of the number of channels.
    let bursts = MISSING * channels as u64;
    command.args([bytes.to_string(), bursts.to_string(), channels.to_string()]);
    count(command, "our lanes", parse_misses)
}

/// First-level data misses per unit. Callgrind prints the number of instructions, reads and writes,
/// then the misses of each, in this order.
fn parse_misses(text: &str) -> Option<f64> {
    let (units, counts) = (*after(text, "units ")?.first()?, after(text, "Collected")?);
    let (reads, writes) = (counts.get(4)?, counts.get(5)?);
    (units > 0.0).then(|| (reads + writes) / units)
}

fn theirs(folder: &Path, program: &Path, section: Section, bytes: usize) -> Result<f64> {
    let mut command = valgrind(folder, "theirs")?;
    // Plain pages: Valgrind does not support huge pages.
    command.arg(program).args(["--lcores", "0", "--no-pci"]).args(hugepages::PLAIN);
    command.args(["-m", "256", "--log-level", "3", "--"]);
    command.arg(section.word()).arg(bytes.to_string()).arg(BURSTS.to_string());
    command.arg(folder.join(format!("{}-{bytes}.sock", section.word())));
    count(command, "the DPDK one-core program", parse)
}

fn count(command: Command, name: &str, parse: fn(&str) -> Option<f64>) -> Result<f64> {
    let mut child = Child::spawn(&format!("valgrind of {name}"), command, Stdio::null())?;
    let (status, text) = child.finish(TIMEOUT)?;
    parse(&text).ok_or_else(|| {
        format!("callgrind of {name} counted nothing ({status}): {}", child.tail()).into()
    })
}

/// Numbers after the last occurrence of `mark`, up to the end of the line.
fn after(text: &str, mark: &str) -> Option<Vec<f64>> {
    let (_, rest) = text.rsplit_once(mark)?;
    let words = rest.lines().next()?.trim_start_matches([' ', ':']).split_whitespace();
    Some(words.map_while(|word| word.parse().ok()).collect())
}

/// Instructions per unit, from the program's `units N` and callgrind's summary; none if either
/// number is missing or 0.
fn parse(text: &str) -> Option<f64> {
    let first = |mark: &str| after(text, mark)?.first().copied();
    let (units, counted) = (first("units ")?, first("Collected")?);
    (units > 0.0 && counted > 0.0).then(|| counted / units)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the figure is instructions over units; a program that failed yields none.
    #[test]
    fn counts_are_parsed() {
        let text = "==7== Callgrind\nunits 32000\n==7== \n==7== Collected : 640000\n";
        assert_eq!(parse(text), Some(20.0));
        assert_eq!(parse("units 32000\n==7== Collected : 0\n"), None);
        assert_eq!(parse("error: no link\n==7== Collected : 99\n"), None);
    }

    // Goal: only data misses count, per unit; output without a cache simulation yields no figure.
    #[test]
    fn misses_are_parsed() {
        let text = "units 100\n==7== Collected : 9000 400 300 5 60 40 1 2 3\n==7== x";
        assert_eq!(parse_misses(text), Some(1.0));
        assert_eq!(parse_misses("units 100\n==7== Collected : 9000\n"), None);
    }

    // Goal: a counted section reports exactly the units of its bursts.
    #[test]
    fn sections_count_units() {
        assert_eq!(measured_section(&mut copies(64), 10), 320);
    }
}
