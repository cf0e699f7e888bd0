//! Results of the runs.

use std::fs;
use std::path::PathBuf;

use mqnet_testkit::Figures;
use serde_json::{Value, json};

use super::Settings;
use crate::guest::Outcome;
use crate::{Result, programs};

/// Kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams of this size at the maximum rate of iperf3; frames per second received by its
    /// server.
    Udp(u32),
    /// Four TCP streams per channel; Mbit/s.
    Tcp,
    /// Frames of 64 bytes without sockets and IP stacks: sent by pktgen over virtio-net, and by
    /// `mqnet-bench` over a bridge in ivshmem memory. Frames per second received.
    Frames,
}

impl Kind {
    /// All measured kinds.
    pub const ALL: [Self; 4] = [Self::Udp(64), Self::Udp(1400), Self::Tcp, Self::Frames];

    fn name(self) -> String {
        match self {
            Self::Udp(size) => format!("udp{size}"),
            Self::Tcp => "tcp".to_owned(),
            Self::Frames => "frames".to_owned(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Udp(_) | Self::Frames => "frames/s",
            Self::Tcp => "Mbit/s",
        }
    }

    /// Received rate in the report; `None` for a failed run.
    fn figure(self, report: &Value) -> Option<f64> {
        let sum = match self {
            Self::Frames => report,
            Self::Udp(_) | Self::Tcp => &report["end"]["sum_received"],
        };
        let number = |name: &str| sum[name].as_f64();
        let seconds = number("seconds")?;
        let whole = match self {
            Self::Udp(size) => number("bytes")? / f64::from(size),
            Self::Tcp => number("bytes")? * 8.0 / 1e6,
            Self::Frames => number("frames")?,
        };
        (seconds > 0.0 && whole > 0.0).then(|| whole / seconds)
    }
}

/// Names of the paths in the script.
const PATHS: [&str; 3] = ["virtio", "ivshmem", "shared"];

/// Paths with an mqnet link, each with the `link` argument of [`Share::read`].
const LINKS: [(&str, usize); 2] = [(PATHS[1], 0), (PATHS[2], 1)];

/// Share of a link in the busy time of the CPUs of both guests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Fraction spent in mqnet's code.
    pub own: f64,
    /// Fraction spent in the kernel, in system calls of mqnet: the kernel's part of a TAP, the
    /// network stack, and the system calls of a polling worker (yields, empty reads).
    pub kernel: f64,
}

impl Share {
    /// Parses the clocks of both guests before and after the run. Each guest prints the busy and
    /// idle time of its CPUs, then for each link the time in mqnet's code and in the kernel. `None`
    /// if the text is truncated or the guests were idle.
    fn read(text: &str, link: usize) -> Option<Self> {
        let ticks: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let ticks: &[[[f64; 6]; 2]; 2] = ticks.as_chunks().0.as_chunks().0.first_chunk()?;
        let took =
            |i: usize| (0..2).map(|guest| ticks[1][guest][i] - ticks[0][guest][i]).sum::<f64>();
        let [busy, own, kernel] = [0, 2 + 2 * link, 3 + 2 * link].map(took);
        (busy > 0.0).then(|| Self { own: own / busy, kernel: kernel / busy })
    }

    /// Upper bound of a rate: the rate if mqnet's code took no time.
    fn without_ours(&self, rate: f64) -> f64 {
        rate / (1.0 - self.own)
    }
}

/// Results of one kind of traffic in one round, for each path.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Number of the round, from 1.
    pub round: u32,
    /// Kind of traffic.
    pub kind: Kind,
    /// Rates over virtio, ivshmem, and ivshmem with one vector; `None` for a failed run.
    pub figures: [Option<f64>; 3],
    /// CPU shares of the links over ivshmem and over ivshmem with one vector; not measured for bare
    /// frames.
    pub shares: [Option<Share>; 2],
}

impl Line {
    /// Ratio of the rate of `path` to that of `than`; `None` if either run failed.
    pub fn ratio(&self, path: usize, than: usize) -> Option<f64> {
        Some(self.figures[path]? / self.figures[than]?)
    }

    /// Ratio of ivshmem to virtio if mqnet's code took no time; `None` without the share or the
    /// ratio.
    fn without_ours(&self) -> Option<f64> {
        Some(self.shares[0]?.without_ours(self.ratio(1, 0)?))
    }
}

/// Wake-ups caused by single pings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wakes {
    /// Number of the round, from 1.
    pub round: u32,
    /// True with one vector for all queue pairs; false with a vector for each queue pair.
    pub shared: bool,
    /// Number of answered pings; each has one frame in each direction.
    pub answers: u64,
    /// Wake-ups of the threads in the process of one end.
    pub woken: u64,
    /// Interrupts of the device.
    pub interrupts: u64,
    /// Mean round-trip time in ms.
    pub rtt: f64,
}

impl Wakes {
    /// Thread wake-ups of one end per answered ping.
    pub fn of_a_ping(&self) -> f64 {
        self.woken as f64 / self.answers.max(1) as f64
    }

    fn read(round: u32, shared: bool, text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        let (answers, woken, interrupts) =
            (number("answers"), number("woken"), number("interrupts"));
        let rtt = value["rtt_ms"].as_f64().unwrap_or(0.0);
        Ok(Self { round, shared, answers, woken, interrupts, rtt })
    }

    fn json(&self) -> Value {
        let Self { round, shared, answers, woken, interrupts, rtt } = self;
        json!({
            "round": round, "vectors": if *shared { "one" } else { "each" }, "answers": answers,
            "woken": woken, "interrupts": interrupts, "rtt-ms": rtt,
            "woken-per-ping": self.of_a_ping(),
        })
    }
}

/// Results of all runs.
#[derive(Clone, Debug)]
pub struct Report {
    /// Settings of the benchmark.
    pub settings: Settings,
    /// Release of the guests' kernel.
    pub release: String,
    /// Results of the streams, by round and kind.
    pub lines: Vec<Line>,
    /// Results of the pings, by round.
    pub wakes: Vec<Wakes>,
}

/// Minimum, median and maximum; `None` if `numbers` is empty.
pub(crate) fn spread(numbers: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let mut all: Vec<f64> = numbers.collect();
    all.sort_by(f64::total_cmp);
    let (first, last) = (all.first()?, all.last()?);
    let middle = (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0;
    Some([*first, middle, *last])
}

fn show(spread: Option<[f64; 3]>) -> String {
    let text = |[least, middle, most]: [f64; 3]| format!("{least:.2} / {middle:.2} / {most:.2}");
    spread.map_or("no round".to_owned(), text)
}

impl Report {
    /// Parses the results of the script.
    pub(super) fn read(settings: Settings, outcome: &Outcome) -> Result<Self> {
        outcome.passed("bridge")?;
        let (mut lines, mut wakes) = (Vec::new(), Vec::new());
        for round in 1..=settings.rounds {
            for kind in Kind::ALL {
                let file = |path: &str, end: &str| {
                    outcome.text(&format!("{round}.{path}.{}.{end}", kind.name())).ok()
                };
                let figures = PATHS
                    .map(|path| kind.figure(&serde_json::from_str(&file(path, "json")?).ok()?));
                let shares = LINKS.map(|(path, link)| Share::read(&file(path, "clocks")?, link));
                lines.push(Line { round, kind, figures, shares });
            }
            for shared in [false, true] {
                let path = PATHS[1 + usize::from(shared)];
                let text = outcome.text(&format!("{round}.{path}.wakes.json"))?;
                wakes.push(Wakes::read(round, shared, &text)?);
            }
        }
        Ok(Self { settings, release: outcome.release.clone(), lines, wakes })
    }

    /// Minimum, median and maximum of the ratios of all rounds; `None` if no round has both rates.
    fn ratios(&self, kind: Kind, path: usize, than: usize) -> Option<[f64; 3]> {
        let lines = self.lines.iter().filter(|line| line.kind == kind);
        spread(lines.filter_map(|line| line.ratio(path, than)))
    }

    /// Minimum, median and maximum of the wake-ups per answered ping; `None` if no ping was
    /// answered.
    pub fn woken(&self, shared: bool) -> Option<[f64; 3]> {
        let wakes = self.wakes.iter().filter(|wakes| wakes.shared == shared && wakes.answers > 0);
        spread(wakes.map(Wakes::of_a_ping))
    }

    /// Writes `ivshmem.json` to the build folder; returns its path.
    pub fn write(&self) -> Result<PathBuf> {
        let file = programs::target().join("ivshmem.json");
        fs::write(&file, serde_json::to_vec_pretty(&self.json())?)?;
        Ok(file)
    }

    /// Figures for the report of `cargo xtask bench`.
    pub fn figures(&self) -> Figures {
        let part = "ivshmem";
        let name = |kind| match kind {
            Kind::Udp(size) => format!("two guests, UDP of {size} B through both kernels"),
            Kind::Tcp => "two guests, TCP through both kernels".to_owned(),
            Kind::Frames => "two guests, bare frames of 64 B".to_owned(),
        };
        let add = |figures: Figures, kind: Kind| {
            // The report expects frames per second and bits per second.
            let (unit, scale) = match kind {
                Kind::Udp(_) | Kind::Frames => ("frames", 1.0),
                Kind::Tcp => ("bits", 1e6),
            };
            let lines = || self.lines.iter().filter(move |line| line.kind == kind);
            let of = |path: usize| {
                lines().filter_map(|line| Some(line.figures[path]? * scale)).collect()
            };
            let over = |path, than| lines().filter_map(|line| line.ratio(path, than)).collect();
            let [cards, bridge, one]: [Vec<f64>; 3] = [0, 1, 2].map(of);
            let [ratios, vectors]: [Vec<f64>; 2] = [over(1, 0), over(2, 1)];
            let without: Vec<f64> = lines().filter_map(Line::without_ours).collect();
            let mut all = vec![("ivshmem / virtio cards", &ratios[..])];
            if !without.is_empty() {
                all.push(("ivshmem, our code for nothing / virtio cards", &without));
            }
            all.push(("one vector / each", &vectors));
            let contenders =
                [("ivshmem", &bridge[..]), ("virtio cards", &cards), ("one vector", &one)];
            let figures = figures.case(&name(kind), unit, &contenders, &all);
            let shares = || lines().filter_map(|line| line.shares[0]);
            let percent = |part: fn(&Share) -> f64| -> Vec<f64> {
                shares().map(|share| 100.0 * part(&share)).collect()
            };
            let [own, kernel] = [percent(|share| share.own), percent(|share| share.kernel)];
            if own.is_empty() {
                return figures;
            }
            // The name must not begin with "two guests", because the table of rates selects its
            // lines by that prefix.
            let busy = format!("busy CPUs of {}", name(kind));
            let parts = [("our code", &own[..]), ("the kernel for it", &kernel)];
            figures.case(&busy, "% of the guests' busy time", &parts, &[])
        };
        Kind::ALL.into_iter().fold(Figures::of(part, part), add)
    }

    fn json(&self) -> Value {
        let Settings { channels, queues, rounds, seconds } = self.settings;
        let line = |line: &Line| {
            let [virtio, ivshmem, shared] = line.figures;
            let share = |share: &Share| json!({ "own": share.own, "kernel": share.kernel });
            json!({
                "round": line.round, "kind": line.kind.name(), "unit": line.kind.unit(),
                "virtio": virtio, "ivshmem": ivshmem, "ivshmem-one-vector": shared,
                "ratio": line.ratio(1, 0), "ratio-without-our-code": line.without_ours(),
                "busy": line.shares[0].as_ref().map(share),
            })
        };
        let ratio = |kind: &Kind| (kind.name(), json!(self.ratios(*kind, 1, 0)));
        json!({
            "kernel": self.release, "profile": programs::profile(),
            "channels": channels, "virtio-queues": queues, "rounds": rounds, "seconds": seconds,
            "ratios": Kind::ALL.iter().map(ratio).collect::<serde_json::Map<_, _>>(),
            "streams": self.lines.iter().map(line).collect::<Vec<_>>(),
            "wakes": self.wakes.iter().map(Wakes::json).collect::<Vec<_>>(),
        })
    }

    /// Readable table.
    pub fn table(&self) -> String {
        let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), |n| format!("{n:.0}"));
        let mut out = "round kind    unit         virtio    ivshmem one vector  ratio  \
                       of busy CPUs: ours, kernel for it\n"
            .to_owned();
        for line in &self.lines {
            let [virtio, ivshmem, shared] = line.figures.map(figure);
            let ratio = line.ratio(1, 0).map_or("-".to_owned(), |n| format!("{n:.2}"));
            let percent = |share: Share| {
                format!("{:>7.0} % {:>11.0} %", 100.0 * share.own, 100.0 * share.kernel)
            };
            let busy = line.shares[0].map_or(String::new(), percent);
            let (round, name, unit) = (line.round, line.kind.name(), line.kind.unit());
            out += &format!(
                "{round:>5} {name:<7} {unit:<8} {virtio:>10} {ivshmem:>10} {shared:>10} \
                 {ratio:>6}  {busy}\n"
            );
        }
        out += "\nleast / middle / most of the rounds\n";
        for kind in Kind::ALL {
            let (name, over) = (kind.name(), show(self.ratios(kind, 1, 0)));
            let one = show(self.ratios(kind, 2, 1));
            out += &format!("{name:<7} ivshmem : virtio {over}; one vector : each {one}\n");
        }
        out += "\nround vectors  pings  woken/ping interrupts/ping  rtt-ms\n";
        for wakes in &self.wakes {
            let vectors = if wakes.shared { "one" } else { "each" };
            let interrupts = wakes.interrupts as f64 / wakes.answers.max(1) as f64;
            out += &format!(
                "{:>5} {vectors:<7} {:>6} {:>11.2} {interrupts:>15.2} {:>7.2}\n",
                wakes.round,
                wakes.answers,
                wakes.of_a_ping(),
                wakes.rtt
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the rates are those of the receiver; a failed run has neither rate nor ratio.
    #[test]
    fn reports_of_iperf3_are_read() {
        let report = json!({"end": {"sum_received": {"bytes": 128_000, "seconds": 2.0}}});
        assert_eq!(Kind::Udp(64).figure(&report), Some(1000.0));
        assert_eq!(Kind::Tcp.figure(&report), Some(0.512));
        assert_eq!(Kind::Tcp.figure(&json!({"error": "busy"})), None);
        assert_eq!(Kind::Frames.figure(&json!({"frames": 90, "seconds": 4.5})), Some(20.0));
        assert_eq!(Kind::Frames.figure(&json!({"frames": 0, "seconds": 4.5})), None);
        let line = |figures| Line { round: 1, kind: Kind::Tcp, figures, shares: [None; 2] };
        assert_eq!(line([Some(2.0), Some(5.0), None]).ratio(1, 0), Some(2.5));
        assert_eq!(line([None, Some(5.0), None]).ratio(1, 0), None);
    }

    // Goal: the share of a link in the busy time of both guests is computed from that link's
    // clocks. A truncated text gives no share.
    #[test]
    fn shares_are_those_of_a_link() {
        let text = "100 50 10 20 0 0  200 50 0 0 5 5  200 60 20 60 0 5  300 60 10 30 5 15\n";
        assert_eq!(Share::read(text, 0), Some(Share { own: 0.1, kernel: 0.35 }));
        assert_eq!(Share::read(text, 1), Some(Share { own: 0.0, kernel: 0.075 }));
        assert_eq!(Share::read(&text[..60], 0), None);
        assert_eq!(Share::read("1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", 0), None);
        let line = Line {
            round: 1,
            kind: Kind::Tcp,
            figures: [Some(4.0), Some(3.0), None],
            shares: [Some(Share { own: 0.25, kernel: 0.5 }), None],
        };
        assert_eq!(line.without_ours(), Some(1.0));
    }

    // Goal: the median of an even number of rounds is the mean of the two in the middle.
    #[test]
    fn spreads() {
        assert_eq!(spread([4.0, 1.0, 2.0, 3.0].into_iter()), Some([1.0, 2.5, 4.0]));
        assert_eq!(spread([7.0].into_iter()), Some([7.0; 3]));
        assert_eq!(spread(std::iter::empty()), None);
    }
}
