//! Runs all rigs in parallel, each on its own thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mqnet_testkit::{Tally, World, has, until, waiting_descriptor_kinds};

use crate::judge::{self, Snapshot};
use crate::memory::{self, Kinds, Sample};
use crate::report::{self, Entry, Failure};
use crate::rig::Site;
use crate::schedule::{self, ActionText};
use crate::shape::{Rig, Shape};
use crate::traffic::Traffic;

/// Interval of the progress line if stdout is not a terminal.
const SELDOM: Duration = Duration::from_secs(10);

/// Maximum time in which a process must close unused descriptors.
const CLOSING: Duration = Duration::from_secs(10);

/// Settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// No round begins after this time.
    pub time: Duration,
    /// Seed of the schedule.
    pub seed: u64,
    /// Backends, from [`KINDS`](crate::KINDS). Empty: all.
    pub only: Vec<String>,
    /// Run only this round of the schedule.
    pub round: Option<u64>,
    /// Run only these actions of the round. Empty: all.
    pub actions: Vec<usize>,
    /// Repetitions of the round.
    pub times: u64,
    /// True if the program has the dev profile.
    pub dev: bool,
    /// Folder for the summary and the failures.
    pub folder: PathBuf,
}

struct Board<'a> {
    settings: &'a Settings,
    begin: Instant,
    stop: AtomicBool,
    entries: Vec<Mutex<Entry>>,
}

/// Samples by process and by run of the process.
type Samples = BTreeMap<(usize, u64), Vec<Sample>>;

impl Board<'_> {
    fn entry(&self, at: usize) -> MutexGuard<'_, Entry> {
        self.entries[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, at: usize, text: String) {
        // Print the actions in a replay of one round, for comparison with the original run.
        if self.settings.round.is_some() {
            println!("{:9.3} s  {text}", self.begin.elapsed().as_secs_f64());
        }
        self.entry(at).note(self.begin.elapsed(), text);
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.begin.elapsed() > self.settings.time
    }
}

/// Runs up to `runs` soaks, each with the next seed, and stops at the first failure. Returns true
/// if all succeeded. The seed also selects the processes to kill.
pub fn series(settings: &Settings, runs: u64) -> bool {
    (0..runs).all(|nth| {
        if runs > 1 {
            println!("run {} of {runs}", nth + 1);
        }
        run(&Settings { seed: settings.seed.wrapping_add(nth), ..settings.clone() })
    })
}

/// Runs one soak. Returns true if all checks passed.
pub fn run(settings: &Settings) -> bool {
    let shape = |rig: Rig| Shape::of(rig, &settings.only, settings.seed);
    let wanted: Vec<Shape> = Rig::ALL.into_iter().filter_map(shape).collect();
    assert!(!wanted.is_empty(), "nothing to do: there is {}", crate::KINDS.join(", "));
    // Skip a rig if the machine lacks a program that it needs.
    let shapes: Vec<Shape> = wanted.into_iter().filter(|shape| has(shape.rig.needs())).collect();
    std::fs::create_dir_all(&settings.folder).expect("a folder for results");
    // Remove the namespaces of killed runs here, before several threads would do so at the same
    // time.
    drop(World::create());
    let entry = |shape: &Shape| Mutex::new(Entry { name: shape.rig.name(), ..Entry::default() });
    let board = Board {
        settings,
        begin: Instant::now(),
        stop: AtomicBool::new(false),
        entries: shapes.iter().map(entry).collect(),
    };
    println!("seed {}; mqnet is {}", settings.seed, mqnet_testkit::program().display());
    std::thread::scope(|scope| {
        let rigs: Vec<_> = shapes
            .into_iter()
            .enumerate()
            .map(|(at, shape)| {
                let board = &board;
                scope.spawn(move || soak(board, at, shape))
            })
            .collect();
        progress(&board, || rigs.iter().all(std::thread::ScopedJoinHandle::is_finished));
    });
    let guards: Vec<_> = (0..board.entries.len()).map(|at| board.entry(at)).collect();
    let entries: Vec<&Entry> = guards.iter().map(|guard| &**guard).collect();
    print!("{}", report::table(&entries));
    let file = report::write(&settings.folder, settings.seed, board.begin.elapsed(), &entries);
    println!("{}", report::line(board.begin.elapsed(), &entries));
    println!("{}", file.display());
    entries.iter().all(|entry| entry.failure.is_none())
}

/// Reports progress until all rigs have finished.
fn progress(board: &Board<'_>, finished: impl Fn() -> bool) {
    let terminal = std::io::stdout().is_terminal();
    let mut told = Instant::now();
    while !finished() {
        std::thread::sleep(Duration::from_millis(200));
        let due = if terminal { Duration::from_secs(1) } else { SELDOM };
        if told.elapsed() < due {
            continue;
        }
        told = Instant::now();
        let guards: Vec<_> = (0..board.entries.len()).map(|at| board.entry(at)).collect();
        let entries: Vec<&Entry> = guards.iter().map(|guard| &**guard).collect();
        let line = report::line(board.begin.elapsed(), &entries);
        match terminal {
            true => print!("\r\x1b[K{line}"),
            false => println!("{line}"),
        }
        // Ignore the error of a closed terminal, so that the run continues.
        let _ = std::io::stdout().flush();
    }
    if terminal {
        println!();
    }
}

/// Runs one rig until the end or the first failure.
fn soak(board: &Board<'_>, at: usize, shape: Shape) {
    let (rig, only) = (shape.rig.name(), shape.kinds());
    let mut site = None;
    let mut number = board.settings.round.unwrap_or(0);
    let under_way = Cell::new(None);
    let mut done = 0;
    let held = catch_unwind(AssertUnwindSafe(|| {
        let site = site.insert(Site::start(shape));
        board.note(at, "the links are up".to_owned());
        site.warm_up();
        let mut first = First::new();
        assert_closed(site, &mut first);
        let mut samples = Samples::new();
        while !board.over() {
            under_way.set(Some(number));
            round(board, at, site, number);
            sample(board, at, site, &mut samples);
            assert_closed(site, &mut first);
            done += 1;
            match board.settings.round {
                Some(_) if done == board.settings.times => break,
                Some(_) => (),
                None => number += 1,
            }
        }
        under_way.set(None);
        assert_flat(site, &samples);
    }));
    let Err(panic) = held else { return };
    board.stop.store(true, Ordering::Relaxed);
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let error = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    let what =
        Failure { settings: board.settings, rig, only: &only, round: under_way.get(), error };
    let mut entry = board.entry(at);
    let output = report::failure(&what, &entry, site.as_ref());
    entry.failure = Some(output);
}

fn round(board: &Board<'_>, at: usize, site: &mut Site, number: u64) {
    let plan = schedule::round(board.settings.seed, &site.shape, number);
    board
        .note(at, format!("round {number}{}", if plan.flood { ", TCP at full speed" } else { "" }));
    let before = Snapshot::take(site);
    site.gave_up.set(false);
    let start = |path| Traffic::start(&site.world, path, plan.flood);
    let traffic: Vec<Traffic> = site.shape.paths.iter().map(start).collect();
    let chosen = &board.settings.actions;
    for (nth, action) in plan.actions.iter().enumerate() {
        if !chosen.is_empty() && !chosen.contains(&nth) {
            continue;
        }
        board.note(at, format!("[{nth}] {}", ActionText(action, &site.shape)));
        site.act(action);
        board.entry(at).actions += 1;
        traffic.iter().for_each(Traffic::wait_progress);
        site.assert_alive();
    }
    board.note(at, "everything is put back".to_owned());
    match plan.is_rough() {
        // Warm up again after a restart: new sessions use fewer resources than sessions that have
        // had all channels.
        true => site.warm_up(),
        false => {
            site.put_back();
            site.touch();
        }
    }
    traffic.iter().for_each(Traffic::wait_progress);
    board.note(at, "traffic ends".to_owned());
    let received: Vec<[u64; 4]> = traffic.iter().map(Traffic::received).collect();
    let tallies: Vec<[Tally; 2]> = traffic.into_iter().map(Traffic::finish).collect();
    let after = Snapshot::take(site);
    judge::round(site, &plan, &before, &after, &tallies);
    site.assert_alive();
    let mut entry = board.entry(at);
    entry.rounds += 1;
    entry.restarts = site.restarts;
    entry.datagrams += tallies.iter().flatten().map(|tally| tally.received).sum::<u64>();
    entry.reordered += tallies.iter().flatten().map(|tally| tally.reordered).sum::<u64>();
    entry.lost += tallies.iter().flatten().map(Tally::lost).sum::<u64>();
    entry.tcp_bytes += received.iter().map(|received| received[2] + received[3]).sum::<u64>();
}

/// Takes a memory sample of every process.
fn sample(board: &Board<'_>, at: usize, site: &Site, samples: &mut Samples) {
    let mut newest = Vec::new();
    for (process, life) in site.lives.iter().enumerate() {
        let sample = Sample::take(life.running.pid());
        samples.entry((process, life.number)).or_default().push(sample);
        newest.push((site.shape.processes[process].name, sample));
    }
    board.entry(at).memory = newest;
}

/// Processes that run for the whole soak, by number.
fn lasting(site: &Site) -> impl Iterator<Item = usize> {
    let all = site.shape.processes.iter().enumerate();
    all.filter(|(_, process)| !process.mortal).map(|(at, _)| at)
}

/// Reference descriptor counts of each lasting process, one while it listens on the shared socket
/// (true) and one while it does not. If the listening end of a bridge exits, the other end starts
/// to listen.
type First = BTreeMap<(usize, bool), Kinds>;

fn count(kinds: &Kinds, kind: &str) -> u64 {
    kinds.get(kind).copied().unwrap_or(0)
}

fn listens(kinds: &Kinds) -> bool {
    kinds.keys().any(|kind| kind.ends_with("x.sock.lock"))
}

/// Descriptor counts of a process, after they have not changed for 100 ms.
fn settled(pid: u32) -> Kinds {
    let mut last = waiting_descriptor_kinds(pid);
    until("descriptors that do not change", || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut last, waiting_descriptor_kinds(pid));
        (before == last).then_some(before)
    })
}

/// Asserts that no process has more descriptors than at its lowest count so far.
#[track_caller]
fn assert_closed(site: &Site, first: &mut First) {
    for at in lasting(site) {
        let pid = site.lives[at].running.pid();
        let start = Instant::now();
        loop {
            let now = waiting_descriptor_kinds(pid);
            let first = first.entry((at, listens(&now))).or_insert_with(|| settled(pid));
            let Some(more) = memory::left_open(first, &now) else {
                // Lower the reference counts to the current ones: on a busy machine the first count
                // may include descriptors that are about to be closed.
                first.iter_mut().for_each(|(kind, n)| *n = (*n).min(count(&now, kind)));
                break;
            };
            let name = site.shape.processes[at].name;
            // Wait, because a process closes a descriptor some time after its peer has closed the
            // other end.
            assert!(start.elapsed() < CLOSING, "process {name} leaves descriptors open: {more}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[track_caller]
fn assert_flat(site: &Site, samples: &Samples) {
    // Check only processes that are never restarted: a restarted process warms up again.
    let lasting: Vec<usize> = lasting(site).collect();
    for ((process, life), list) in samples.iter().filter(|((at, _), _)| lasting.contains(at)) {
        if let Some(growth) = memory::growth(list) {
            let name = site.shape.processes[*process].name;
            panic!(
                "process {name} (life {life}) grows: {growth} (medians of quarters of {list:?})"
            );
        }
    }
}
