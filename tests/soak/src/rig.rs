//! Running rig: its hosts, its processes, and the settings to undo at the end of a round.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mqnet_testkit::{Captured, Control, Host, Running, World, has, run_command, until};
use serde_json::Value;

use crate::shape::{Rig, Shape, Side};
use crate::{testpmd, worlds};

/// Kinds of settings, in the order in which they are undone: indirection tables before channels,
/// because channels in a table cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    Discipline,
    Spread,
    Layout,
    Channels,
    Rings,
    Coalesce,
    Mtu,
}

/// Texts of temporary refusals, after which the command is repeated.
pub(crate) const NOT_NOW: [&str; 4] =
    ["under way", "try again", "not done within", "did not answer"];

/// Text of an abandoned change of the indirection table. Flows return to their old queues, so
/// frames may overtake earlier ones in the new queues. The refusal reports this possible
/// reordering.
const GAVE_UP: &str = "not consumed in time";

/// One run of a process, from its start to its end.
pub(crate) struct Life {
    pub(crate) running: Running,
    /// Number of restarts before this run.
    pub(crate) number: u64,
}

/// Running rig.
pub(crate) struct Site {
    pub(crate) shape: Shape,
    pub(crate) world: World,
    pub(crate) control: Control,
    pub(crate) lives: Vec<Life>,
    /// Commands that undo settings of netdevs.
    pub(crate) undo: BTreeMap<(Setting, usize), String>,
    pub(crate) captures: BTreeMap<usize, Running>,
    pub(crate) programs: BTreeSet<usize>,
    pub(crate) gone: BTreeSet<usize>,
    /// Number of queues of testpmd, which is also the number of channels of the virtio driver at
    /// testpmd.
    pub(crate) queues: u16,
    /// True if the daemon has an additional link.
    pub(crate) other: bool,
    /// XDP program that passes every frame.
    pub(crate) object: Option<PathBuf>,
    pub(crate) restarts: u64,
    /// True if a change of this round was abandoned.
    pub(crate) gave_up: Cell<bool>,
}

impl Site {
    /// Starts a rig and waits until its links are up.
    pub(crate) fn start(shape: Shape) -> Self {
        let (world, control) = (World::create(), Control::create());
        worlds::prepare(&shape, &world);
        control.write(worlds::CONFIG, &worlds::config_of(&shape, &world, None));
        let object = has_clang().then(|| object(&control));
        let mut site = Self {
            shape,
            world,
            control,
            lives: Vec::new(),
            undo: BTreeMap::new(),
            captures: BTreeMap::new(),
            programs: BTreeSet::new(),
            gone: BTreeSet::new(),
            queues: worlds::CHANNELS,
            other: false,
            object,
            restarts: 0,
            gave_up: Cell::new(false),
        };
        // Start order of the processes: servers first.
        let order: &[usize] = match site.shape.rig {
            Rig::Daemon => &[0],
            Rig::Ntb | Rig::Vhost => &[0, 1],
            Rig::Ivshmem | Rig::Testpmd => &[2, 0, 1],
        };
        let mut started: Vec<(usize, Life)> = Vec::new();
        for &at in order {
            started.push((at, Life { running: site.spawn(at), number: 0 }));
        }
        started.sort_by_key(|(at, _)| *at);
        site.lives = started.into_iter().map(|(_, life)| life).collect();
        site.wait_up();
        worlds::lengthen(&site.shape, &site.world);
        site
    }

    fn spawn(&self, at: usize) -> Running {
        if (self.shape.rig, at) == (Rig::Testpmd, testpmd::PROCESS) {
            let command = testpmd::command(&self.world, self.queues);
            let running = self.control.spawn_to_order(command);
            running.order("start");
            return running;
        }
        let words = worlds::words(self, at);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.control.command(&words);
        // Alternate between automatic and non-temporal stores at each start.
        let stores = ["auto", "streamed"][(at + self.restarts as usize) % 2];
        command.env("MQNET_STORES", stores);
        let running = self.control.spawn(command);
        if words[0] == "ivshmem-server" {
            until("the ivshmem server", || self.world.socket().exists().then_some(()));
        }
        running
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, at: usize) {
        self.lives[at].running.kill();
        // Settings of the process's netdevs are lost with the process.
        let devs = &self.shape.devs;
        self.undo.retain(|(_, dev), _| devs[*dev].process != at);
        self.programs.retain(|dev| devs[*dev].process != at);
        // Captures at the process's netdevs end with the process.
        self.captures.retain(|dev, _| devs[*dev].process != at);
        self.gone.retain(|dev| devs[*dev].process != at);
        self.other &= self.shape.rig != Rig::Daemon;
    }

    /// Restarts a killed process.
    pub(crate) fn revive(&mut self, at: usize) {
        if self.shape.rig == Rig::Daemon {
            self.write_config(None);
        }
        let number = self.lives[at].number + 1;
        self.assert_calm(at);
        self.lives[at] = Life { running: self.spawn(at), number };
        self.restarts += 1;
    }

    pub(crate) fn write_config(&self, other: Option<u16>) {
        let text = worlds::config_of(&self.shape, &self.world, other);
        self.control.write(worlds::CONFIG, &text);
    }

    pub(crate) fn host(&self, dev: usize) -> &Host {
        match self.shape.devs[dev].side {
            Side::A => &self.world.a,
            Side::B => &self.world.b,
        }
    }

    /// Names of the links with traffic.
    pub(crate) fn links(&self) -> Vec<&'static str> {
        self.shape.paths.iter().flat_map(|path| path.links).map(|(name, _)| *name).collect()
    }

    /// Waits until all links are up.
    #[track_caller]
    pub(crate) fn wait_up(&self) {
        let wanted = self.links();
        let mut last = String::new();
        let start = std::time::Instant::now();
        loop {
            let printed = self.control.say(&["show", "--json"]);
            let list: Value = serde_json::from_str(&printed.out).unwrap_or_default();
            let list = list.as_array().cloned().unwrap_or_default();
            let is_up = |name: &&str| {
                list.iter().any(|link| link["name"] == **name && link["state"] == "up")
            };
            if wanted.iter().all(is_up) {
                return;
            }
            last = if printed.out.len() > 4 { printed.out } else { last };
            assert!(start.elapsed() < mqnet_testkit::DEADLINE, "links {wanted:?} not up: {last}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Runs a verb, and repeats it after a temporary refusal ([`NOT_NOW`]).
    pub(crate) fn verb(&self, words: &str) -> Captured {
        until(words, || {
            let list: Vec<&str> = words.split(' ').collect();
            let printed = self.control.say(&list);
            let busy = NOT_NOW.iter().any(|words| printed.err.contains(words));
            if printed.code != Some(0) && busy {
                println!("{}: {words}: {}", self.shape.rig.name(), printed.err.trim());
                self.gave_up.set(self.gave_up.get() || printed.err.contains(GAVE_UP));
                return None;
            }
            Some(printed)
        })
    }

    /// Runs a verb that must succeed.
    #[track_caller]
    pub(crate) fn verb_ok(&self, words: &str) {
        let printed = self.verb(words);
        assert_eq!(printed.code, Some(0), "`mqnet {words}`: {}{}", printed.out, printed.err);
    }

    /// Statistics of all links with traffic, by name.
    #[track_caller]
    pub(crate) fn stats(&self) -> BTreeMap<&'static str, Value> {
        let read = |name: &'static str| {
            let printed = self.verb(&format!("stats --json {name}"));
            let list: Value = serde_json::from_str(&printed.out)
                .unwrap_or_else(|e| panic!("statistics of {name}: {e}: {printed:?}"));
            (name, list[0].clone())
        };
        self.links().into_iter().map(read).collect()
    }

    /// Asserts that a process has not panicked.
    #[track_caller]
    pub(crate) fn assert_calm(&self, at: usize) {
        let err = self.lives[at].running.err();
        let name = self.shape.processes[at].name;
        assert!(!err.contains("panicked at"), "process {name} panicked: {err}");
    }

    /// Asserts that every process runs and none panicked.
    #[track_caller]
    pub(crate) fn assert_alive(&mut self) {
        for at in 0..self.lives.len() {
            let name = self.shape.processes[at].name;
            let life = &mut self.lives[at].running;
            if let Some(status) = life.ended() {
                panic!("process {name} ended unexpectedly, {status}: {}", life.err());
            }
            self.assert_calm(at);
        }
    }
}

fn has_clang() -> bool {
    has(&[mqnet_testkit::Need::Program("clang")])
}

/// Compiles the program `pass` of `tests/xdp`; returns the path of the object.
fn object(control: &Control) -> PathBuf {
    let to = control.file("pass.o");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../xdp/pass.c");
    let mut clang = std::process::Command::new("clang");
    clang.args(["-O2", "-g", "-w", "-target", "bpf", "-c", "-o"]).arg(&to).arg(source);
    let output = run_command(&mut clang);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}
