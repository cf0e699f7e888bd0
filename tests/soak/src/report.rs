//! What is told: a line while it runs, a summary, and everything about a failure.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::memory::Sample;
use crate::rig::Site;

/// Actions that are remembered of each rig.
const LOG: usize = 100;

/// What a rig has done so far.
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
    /// The newest look at each process: its name, and the look.
    pub(crate) memory: Vec<(&'static str, Sample)>,
    /// Time and text of the last actions.
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

/// Sums over all rigs in one line.
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

/// The table at the end.
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

/// Writes the summary of a run.
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

/// What failed, and how to do it again.
pub(crate) struct Failure<'a> {
    pub(crate) seed: u64,
    pub(crate) rig: &'static str,
    pub(crate) only: &'a str,
    pub(crate) round: u64,
    pub(crate) error: &'a str,
}

/// Writes everything about a failure: the last actions with their times, what the links say of
/// themselves, and what the processes have written.
pub(crate) fn failure(
    folder: &Path,
    what: &Failure<'_>,
    entry: &Entry,
    site: Option<&Site>,
) -> Value {
    let place = folder.join(format!("{}-seed{}-round{}", what.rig, what.seed, what.round));
    std::fs::create_dir_all(&place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let log: Vec<Value> =
        entry.log.iter().map(|(at, text)| json!([at.as_secs_f64(), text])).collect();
    let replay = format!(
        "cargo xtask soak --seed {} --only {} --round {}",
        what.seed, what.only, what.round
    );
    let said = json!({
        "rig": what.rig, "seed": what.seed, "round": what.round, "error": what.error,
        "replay": replay, "last-actions": log,
    });
    put(&place.join("failure.json"), &said);
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
    said
}

fn dump(site: &Site, words: &[&str]) -> String {
    let said = site.control.say(words);
    format!("{}{}", said.out, said.err)
}
