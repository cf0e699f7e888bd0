//! Commands sent to running links.

use serde_json::Value;

use crate::control::{Captured, captured};
use crate::world::{Folder, World};

impl Folder {
    /// Runs `mqnet` with `words` for the processes with a control socket in this folder.
    #[track_caller]
    pub fn ask(&self, words: &str) -> Captured {
        captured(self.program().args(words.split(' ')))
    }

    /// Runs a command that must succeed. Returns the notes on its stderr.
    #[track_caller]
    pub fn tell(&self, words: &str) -> String {
        let mut output = self.ask(words);
        for _ in 0..5 {
            // A busy kernel takes seconds to detach one queue of a TAP (RCU grace periods). The
            // change is then rolled back without loss, so the command is repeated.
            let is_late = |why: &str| output.err.contains(why);
            if output.code == Some(0)
                || !(is_late("not done within 10 s") || is_late("did not answer within 8 s"))
            {
                break;
            }
            print!("{words}: {}", output.err);
            output = self.ask(words);
        }
        assert_eq!(output.code, Some(0), "{words}: {}{}", output.out, output.err);
        // Notes about waiting are printed and not returned, because they depend on the machine and
        // not on the link.
        let (waits, notes): (Vec<&str>, Vec<&str>) = output
            .err
            .split_inclusive('\n')
            .partition(|line| line.contains("waiting for mqnet at"));
        waits.iter().for_each(|line| print!("{words}: {line}"));
        notes.concat()
    }

    /// Runs a command that prints JSON; returns the parsed JSON.
    #[track_caller]
    pub fn ask_json(&self, words: &str) -> Value {
        let output = self.ask(words);
        let value = serde_json::from_str(&output.out);
        value.unwrap_or_else(|e| panic!("{words}: {e}: {}{}", output.out, output.err))
    }

    /// Number of channels of a netdev, from `mqnet ethtool -l`.
    #[track_caller]
    pub fn channels(&self, dev: &str) -> u16 {
        let shown = self.ask_json(&format!("ethtool --json -l {dev}"));
        let combined = shown[0]["combined"].as_u64();
        combined.unwrap_or_else(|| panic!("no number of channels: {shown}")) as u16
    }
}

impl World {
    /// Runs `mqnet` with `words`, for the processes of this world.
    #[track_caller]
    pub fn ask(&self, words: &str) -> Captured {
        self.folder().ask(words)
    }

    /// Runs a command that must succeed. Returns the notes on its stderr.
    #[track_caller]
    pub fn tell(&self, words: &str) -> String {
        self.folder().tell(words)
    }

    /// Number of channels of a netdev.
    #[track_caller]
    pub fn channels(&self, dev: &str) -> u16 {
        self.folder().channels(dev)
    }
}
