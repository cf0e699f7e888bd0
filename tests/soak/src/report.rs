//! Reports: a progress line, a summary, and the details of a failure.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::memory::Sample;
use crate::rig::Site;
use crate::runner::Settings;

/// Number of logged actions per rig.
const LOG: usize = 100;

/// Progress of a rig.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) rounds: u64,
    pub(crate) actions: u64,
    pub(crate) datagrams: u64,
    pub(crate) tcp_bytes: u64,
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
    pub(crate) restarts: u64,
    /// Newest sample of each process, with its name.
    pub(crate) memory: Vec<(&'static str, Sample)>,
    /// Time and text of the last actions, at most [`LOG`].
    pub(crate) log: VecDeque<(Duration, String)>,
    pub(crate) failure: Option<Value>,
}

impl Entry {
    pub(crate) fn note(&mut self, at: Duration, text: String) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back((at, text));
    }

    fn kib(&self) -> u64 {
        self.memory.iter().map(|(_, sample)| sample.own).sum()
    }

    fn json(&self) -> Value {
        let memory = |(name, s): &(&str, Sample)| {
            json!({ "process": name, "own-kib": s.own, "resident-kib": s.all,
                    "descriptors": s.descriptors, "threads": s.threads })
        };
        json!({
            "rig": self.name, "rounds": self.rounds, "actions": self.actions,
            "datagrams": self.datagrams, "lost": self.lost, "late": self.reordered,
            "tcp-bytes": self.tcp_bytes, "restarts": self.restarts, "failure": self.failure,
            "memory": self.memory.iter().map(memory).collect::<Vec<_>>(),
        })
    }
}

/// Totals of all rigs in one line.
pub(crate) fn line(elapsed: Duration, entries: &[&Entry]) -> String {
    let sum = |of: fn(&Entry) -> u64| entries.iter().map(|entry| of(entry)).sum::<u64>();
    format!(
        "{:.0} s: {} rounds, {} actions, {} datagrams, {} MiB of TCP, {} restarts, {} MiB resident",
        elapsed.as_secs_f64(),
        sum(|e| e.rounds),
        sum(|e| e.actions),
        sum(|e| e.datagrams),
        sum(|e| e.tcp_bytes) >> 20,
        sum(|e| e.restarts),
        sum(Entry::kib) >> 10,
    )
}

/// Table at the end of a run.
pub(crate) fn table(entries: &[&Entry]) -> String {
    let mut text = format!(
        "{:8} {:>7} {:>8} {:>10} {:>7} {:>7} {:>9} {:>9} {:>8}  {}\n",
        "rig",
        "rounds",
        "actions",
        "datagrams",
        "lost",
        "late",
        "TCP MiB",
        "restarts",
        "own MiB",
        "result"
    );
    for e in entries {
        let result = if e.failure.is_some() { "FAILED" } else { "ok" };
        text += &format!(
            "{:8} {:>7} {:>8} {:>10} {:>7} {:>7} {:>9} {:>9} {:>8}  {result}\n",
            e.name,
            e.rounds,
            e.actions,
            e.datagrams,
            e.lost,
            e.reordered,
            e.tcp_bytes >> 20,
            e.restarts,
            e.kib() >> 10,
        );
    }
    text
}

/// Writes the summary of a run to `soak.json`; returns its path.
pub(crate) fn write(folder: &Path, seed: u64, elapsed: Duration, entries: &[&Entry]) -> PathBuf {
    let rigs: Vec<Value> = entries.iter().map(|entry| entry.json()).collect();
    let all = json!({ "seed": seed, "seconds": elapsed.as_secs_f64(), "rigs": rigs });
    let file = folder.join("soak.json");
    put(&file, &all);
    file
}

fn put(file: &Path, value: &Value) {
    let text = format!("{value:#}\n");
    std::fs::write(file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// Failure, with the data to reproduce it.
pub(crate) struct Failure<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) rig: &'static str,
    pub(crate) only: &'a str,
    /// Round in progress; `None` if the failure concerns all rounds.
    pub(crate) round: Option<u64>,
    pub(crate) error: &'a str,
}

impl Failure<'_> {
    /// Command that replays the failure with the same schedule.
    fn replay(&self) -> String {
        let Settings { seed, time, actions, dev, .. } = self.settings;
        let dev = if *dev { " --dev" } else { "" };
        let command = format!("cargo xtask soak{dev} --seed {seed} --only {}", self.only);
        let Some(round) = self.round else {
            return format!("{command} --minutes {}", time.as_secs_f64() / 60.0);
        };
        let actions: Vec<String> = actions.iter().map(usize::to_string).collect();
        match actions.is_empty() {
            true => format!("{command} --round {round}"),
            false => format!("{command} --round {round} --actions {}", actions.join(",")),
        }
    }
}

/// Writes the details of a failure to a folder: the last actions with their times, the reported
/// state of the links, and the output of the processes. Returns the failure's entry for the
/// summary.
pub(crate) fn failure(what: &Failure<'_>, entry: &Entry, site: Option<&Site>) -> Value {
    let seed = what.settings.seed;
    let round = what.round.map_or("s".to_owned(), |round| round.to_string());
    let place = what.settings.folder.join(format!("{}-seed{seed}-round{round}", what.rig));
    std::fs::create_dir_all(&place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let log: Vec<Value> =
        entry.log.iter().map(|(at, text)| json!([at.as_secs_f64(), text])).collect();
    let replay = what.replay();
    let printed = json!({
        "rig": what.rig, "seed": seed, "round": what.round, "error": what.error,
        "replay": replay, "last-actions": log,
    });
    put(&place.join("failure.json"), &printed);
    if let Some(site) = site {
        for (file, words) in [("show.json", &["show", "--json"][..]), ("show.txt", &["show"])] {
            let _ = std::fs::write(place.join(file), dump(site, words));
        }
        for link in site.links() {
            let _ =
                std::fs::write(place.join(format!("why-{link}.txt")), dump(site, &["why", link]));
            let stats = dump(site, &["stats", "--json", link]);
            let _ = std::fs::write(place.join(format!("stats-{link}.json")), stats);
        }
        for (life, process) in site.lives.iter().zip(&site.shape.processes) {
            let text = format!("{}\n---- stderr\n{}", life.running.out(), life.running.err());
            let _ = std::fs::write(place.join(format!("{}.log", process.name)), text);
        }
    }
    println!("---- {}: {}", what.rig, what.error);
    for (at, text) in entry.log.iter().skip(entry.log.len().saturating_sub(12)) {
        println!("     {:9.3} s  {text}", at.as_secs_f64());
    }
    println!("     all about it: {}\n     again: {replay}", place.display());
    printed
}

fn dump(site: &Site, words: &[&str]) -> String {
    let printed = site.control.say(words);
    format!("{}{}", printed.out, printed.err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule;
    use crate::shape::{Rig, Shape};

    /// Value after `word` in a command.
    fn after<'a>(command: &'a str, word: &str) -> &'a str {
        let (_, rest) = command.split_once(word).expect("the word");
        rest.split_whitespace().next().expect("a value")
    }

    // Goal: for all settings the replay command of a failed round reproduces that round.
    #[test]
    fn a_replay_is_the_same_round() {
        for (rig, only) in Rig::ALL.into_iter().flat_map(|rig| {
            let kinds: [&[&str]; 4] = [&[], &["tap", "group"], &["vhost-resize"], &["xdp", "ntb"]];
            kinds.map(|only| (rig, only.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>()))
        }) {
            let settings = Settings { seed: 7, only, dev: true, ..Settings::default() };
            let Some(shape) = Shape::of(rig, &settings.only, settings.seed) else { continue };
            let only = shape.kinds();
            let round = Some(5);
            let what =
                Failure { settings: &settings, rig: rig.name(), only: &only, round, error: "" };
            let command = what.replay();
            assert!(command.contains(" --dev "), "{command}");
            let seed = after(&command, "--seed").parse().expect("a seed");
            let only: Vec<String> =
                after(&command, "--only").split(',').map(str::to_owned).collect();
            let number = after(&command, "--round").parse().expect("a round");
            let again = Shape::of(rig, &only, seed).expect("a shape");
            let rounds =
                [schedule::round(settings.seed, &shape, 5), schedule::round(seed, &again, number)];
            assert_eq!(rounds[0], rounds[1], "{command}");
            assert_eq!(format!("{shape:?}"), format!("{again:?}"), "{command}");
        }
    }

    // Goal: the replay command of a failure that concerns all rounds runs the whole schedule for
    // the same time.
    #[test]
    fn growth_is_replayed_at_length() {
        let time = Duration::from_secs(90);
        let settings = Settings { seed: 3, time, ..Settings::default() };
        let what =
            Failure { settings: &settings, rig: "ntb", only: "ntb", round: None, error: "grows" };
        assert_eq!(what.replay(), "cargo xtask soak --seed 3 --only ntb --minutes 1.5");
    }
}
