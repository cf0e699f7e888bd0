//! Execution of actions, and restoration of the initial state of a round.

use std::time::Duration;

use mqnet_sysio::process;
use mqnet_testkit::until;
use serde_json::Value;

use crate::rig::{NOT_NOW, Setting, Site};
use crate::schedule::{Action, DISCIPLINES};
use crate::shape::{Can, Dev};
use crate::testpmd;
use crate::worlds::{CHANNELS, RING_KIB};

/// Pause that is part of an action.
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

impl Site {
    /// Runs an action.
    #[track_caller]
    pub(crate) fn act(&mut self, action: &Action) {
        match *action {
            Action::Channels { dev, to } => self.resize(dev, to),
            Action::Queues { dev, to } => self.set_queues(dev, to),
            Action::Rings { dev, kib } => {
                let undo = format!("rx {RING_KIB}");
                self.set(Setting::Rings, dev, "-G", &format!("rx {kib}"), &undo);
            }
            Action::Coalesce { dev, usecs, frames } => {
                let words = format!("rx-usecs {usecs} tx-frames {frames}");
                self.set(Setting::Coalesce, dev, "-C", &words, "rx-usecs 1000 tx-frames 0");
            }
            Action::Mtu { dev, to } => {
                let name = self.shape.devs[dev].name;
                self.verb_ok(&format!("set {name} mtu {to}"));
                self.undo.insert((Setting::Mtu, dev), format!("set {name} mtu 1500"));
            }
            Action::Spread { dev, of } => {
                let over = 1 + of % usize::from(self.channels(dev));
                self.set(Setting::Spread, dev, "-X", &format!("equal {over}"), "default");
            }
            Action::Discipline { dev, which } => {
                let name = self.shape.devs[dev].name;
                self.verb_ok(&format!("tc qdisc replace dev {name} root {}", DISCIPLINES[which]));
                let undo = format!("tc qdisc del dev {name} root");
                self.undo.insert((Setting::Discipline, dev), undo);
            }
            Action::NoDiscipline { dev } => self.undo_one((Setting::Discipline, dev)),
            Action::Program { dev } => self.program(dev),
            Action::Layout { dev } => self.layout(dev),
            Action::Capture { dev } => self.capture(dev),
            Action::Reload { channels } => self.reload(channels),
            Action::Stall { process, ms } => self.stall(process, ms),
            Action::Flap { dev, ms } => self.flap(dev, ms),
            Action::Member { dev } => self.member(dev),
            Action::Delete { path } => {
                let name = self.shape.paths[path].kind;
                self.verb_ok(&format!("del {name}"));
                self.forget(path);
                self.verb_ok("reload");
                self.wait_up();
            }
            Action::Kill { process, pause_ms } => {
                self.kill(process);
                pause(pause_ms);
                self.revive(process);
                self.wait_up();
            }
        }
    }

    fn set(&mut self, setting: Setting, dev: usize, flag: &str, words: &str, undo: &str) {
        let name = self.shape.devs[dev].name;
        self.verb_ok(&format!("ethtool {flag} {name} {words}"));
        self.undo.insert((setting, dev), format!("ethtool {flag} {name} {undo}"));
    }

    /// Current number of channels of a netdev.
    fn channels(&self, dev: usize) -> u16 {
        let shown = self.verb(&format!("ethtool --json -l {}", self.shape.devs[dev].name)).out;
        let shown: Value = serde_json::from_str(&shown).expect("JSON of ethtool -l");
        shown[0]["combined"].as_u64().expect("a number of channels") as u16
    }

    fn resize(&mut self, dev: usize, to: u16) {
        // Channels in an indirection table cannot be removed.
        let path = self.shape.devs[dev].path;
        for other in 0..self.shape.devs.len() {
            if self.shape.devs[other].path == path {
                self.undo_one((Setting::Spread, other));
            }
        }
        // A group needs at least one channel per member.
        let least = if self.shape.paths[path].kind == "group" { 2 } else { 1 };
        let to = format!("combined {}", to.max(least));
        self.set(Setting::Channels, dev, "-L", &to, &format!("combined {CHANNELS}"));
    }

    /// Sets the number of queues of testpmd and of the virtio driver connected to it.
    fn set_queues(&mut self, dev: usize, to: u16) {
        // Channels in an indirection table cannot be removed.
        for other in 0..self.shape.devs.len() {
            self.undo_one((Setting::Spread, other));
        }
        let ours = format!("ethtool -L {} combined {to}", self.shape.devs[dev].name);
        let grows = to > self.queues;
        // When the number shrinks, the driver changes first: testpmd must serve the driver's queues
        // until then.
        if !grows {
            self.verb_ok(&ours);
        }
        self.queues = to;
        testpmd::set_queues(&self.lives[testpmd::PROCESS].running, to);
        if grows {
            self.verb_ok(&ours);
        }
        self.wait_up();
    }

    fn program(&mut self, dev: usize) {
        let name = self.shape.devs[dev].name;
        if self.programs.remove(&dev) {
            self.verb_ok(&format!("xdp detach {name}"));
        } else if let Some(object) = &self.object {
            self.verb_ok(&format!("xdp attach {name} {}", object.display()));
            self.programs.insert(dev);
        }
    }

    fn layout(&mut self, dev: usize) {
        let name = self.shape.devs[dev].name;
        if self.undo.contains_key(&(Setting::Layout, dev)) {
            self.undo_one((Setting::Layout, dev));
            return;
        }
        let words = format!("ethtool --set-priv-flags {name} full-page-rx");
        let output = self.verb(&format!("{words} on"));
        // The command may be refused because the pool has too few pages; a refusal changes nothing.
        assert!(output.code == Some(0) || output.err.contains("page"), "{words} on: {output:?}");
        self.undo.insert((Setting::Layout, dev), format!("{words} off"));
    }

    fn capture(&mut self, dev: usize) {
        let name = self.shape.devs[dev].name;
        if let Some(capture) = self.captures.remove(&dev) {
            capture.stop();
            return;
        }
        let file = self.control.file(&format!("{name}.pcapng"));
        let _ = std::fs::remove_file(&file);
        let path = file.display().to_string();
        let start = || self.control.start(&["capture", name, "-s", "64", "-w", &path]);
        let mut capture = start();
        until("the capture begins", || {
            if capture.ended().is_some() {
                // A busy machine may refuse the capture temporarily.
                let output = capture.err();
                assert!(NOT_NOW.iter().any(|words| output.contains(words)), "capture: {output}");
                capture = start();
            }
            file.exists().then_some(())
        });
        self.captures.insert(dev, capture);
    }

    fn reload(&mut self, channels: u16) {
        self.other = !self.other;
        self.write_config(self.other.then_some(channels));
        self.verb_ok("reload");
    }

    fn stall(&self, at: usize, ms: u64) {
        let pid = self.lives[at].running.pid();
        process::freeze(pid).expect("SIGSTOP");
        pause(ms);
        process::thaw(pid).expect("SIGCONT");
    }

    fn flap(&self, dev: usize, ms: u64) {
        let name = self.shape.devs[dev].name;
        self.host(dev).run(&["ip", "link", "set", "dev", name, "down"]);
        pause(ms);
        self.host(dev).run(&["ip", "link", "set", "dev", name, "up"]);
        self.wait_up();
    }

    /// Removes a member of a group, or adds it again if it was removed.
    fn member(&mut self, dev: usize) {
        let name = self.shape.devs[dev].name;
        let is_back = self.gone.remove(&dev);
        let words: &[&str] = match is_back {
            true => &["ip", "tuntap", "add", "dev", name, "mode", "tap", "multi_queue"],
            false => &["ip", "link", "del", name],
        };
        self.host(dev).run(words);
        if !is_back {
            self.gone.insert(dev);
        }
        let at = self.shape.paths[self.shape.devs[dev].path].kind;
        until(&format!("the group to have noticed that {name} is back: {is_back}"), || {
            let shown = self.control.say(&["show", "--json", at]).out;
            let shown: Value = serde_json::from_str(&shown).ok()?;
            let members = shown[0]["netdevs"][1]["members"].as_array()?.clone();
            (members.get(1)?["up"] == is_back).then_some(())
        });
    }

    /// Index of each netdev with a variable number of channels, and its maximum number.
    fn resized(&self) -> Vec<(usize, u16)> {
        let most = |dev: &Dev| {
            dev.can.iter().find_map(|can| match can {
                Can::Channels(most) => Some(*most),
                _ => None,
            })
        };
        let devs = self.shape.devs.iter().enumerate();
        devs.filter_map(|(at, dev)| Some((at, most(dev)?))).collect()
    }

    /// Uses the maximum number of channels once, and returns to the initial state. Memory that
    /// remains allocated for each channel is then part of the first sample and does not count as
    /// growth.
    pub(crate) fn warm_up(&mut self) {
        self.put_back();
        for (dev, most) in self.resized() {
            self.act(&Action::Channels { dev, to: most });
        }
        self.put_back();
        self.touch();
    }

    /// Attaches a qdisc to every netdev and removes it. A worker watches the events of shared
    /// qdiscs until it leaves its lane. Each round therefore ends with lanes that have had a qdisc,
    /// so that descriptor counts of rounds can be compared exactly.
    pub(crate) fn touch(&mut self) {
        for dev in 0..self.shape.devs.len() {
            if self.shape.devs[dev].can.contains(&Can::Discipline) {
                self.act(&Action::Discipline { dev, which: 0 });
            }
        }
        self.put_back();
    }

    /// Discards the recorded settings of the netdevs of a path.
    fn forget(&mut self, path: usize) {
        let devs = &self.shape.devs;
        self.undo.retain(|(_, dev), _| devs[*dev].path != path);
        self.programs.retain(|dev| devs[*dev].path != path);
        self.captures.retain(|dev, _| devs[*dev].path != path);
        // The next link creates missing members of the group.
        self.gone.retain(|dev| devs[*dev].path != path);
    }

    fn undo_one(&mut self, key: (Setting, usize)) {
        if let Some(words) = self.undo.remove(&key) {
            self.verb_ok(&words);
        }
    }

    /// Undoes the settings of the round: captures, programs, members, and recorded settings.
    #[track_caller]
    pub(crate) fn put_back(&mut self) {
        for dev in self.captures.keys().copied().collect::<Vec<_>>() {
            self.capture(dev);
        }
        for dev in self.programs.clone() {
            self.program(dev);
        }
        for dev in self.gone.clone() {
            self.member(dev);
        }
        for key in self.undo.keys().copied().collect::<Vec<_>>() {
            self.undo_one(key);
        }
        if self.other {
            self.reload(0);
        }
        let queues = |dev: &Dev| dev.can.iter().any(|can| matches!(can, Can::Queues(_)));
        if let Some(dev) = self.shape.devs.iter().position(queues)
            && self.queues != CHANNELS
        {
            self.set_queues(dev, CHANNELS);
        }
        self.wait_up();
        for (dev, _) in self.resized() {
            until("the channels of the beginning", || {
                (self.channels(dev) == CHANNELS).then_some(())
            });
        }
    }
}
