//! Asking running links, as their users do.

use serde_json::Value;

use crate::control::{Said, said};
use crate::world::{Folder, World};

impl Folder {
    /// Runs `mqnet` with these words, for the processes whose control sockets are here.
    #[track_caller]
    pub fn ask(&self, words: &str) -> Said {
        said(self.program().args(words.split(' ')))
    }

    /// The same; it must succeed. Returns what it wrote to stderr: notes.
    #[track_caller]
    pub fn tell(&self, words: &str) -> String {
        let mut said = self.ask(words);
        for _ in 0..5 {
            // A kernel that is out of breath takes seconds to detach one queue of a TAP (its grace
            // periods): the change is undone, nothing is lost, and the user asks again.
            let is_late = |why: &str| said.err.contains(why);
            if said.code == Some(0)
                || !(is_late("not done within 10 s") || is_late("did not answer within 8 s"))
            {
                break;
            }
            print!("{words}: {}", said.err);
            said = self.ask(words);
        }
        assert_eq!(said.code, Some(0), "{words}: {}{}", said.out, said.err);
        // For whom it had to wait says something of this machine's kernel, not of the link.
        let (waits, notes): (Vec<&str>, Vec<&str>) =
            said.err.split_inclusive('\n').partition(|line| line.contains("waiting for mqnet at"));
        waits.iter().for_each(|line| print!("{words}: {line}"));
        notes.concat()
    }

    /// The same for one that prints JSON.
    #[track_caller]
    pub fn ask_json(&self, words: &str) -> Value {
        let said = self.ask(words);
        let value = serde_json::from_str(&said.out);
        value.unwrap_or_else(|e| panic!("{words}: {e}: {}{}", said.out, said.err))
    }

    /// `mqnet ethtool -l`: how many channels a netdev has.
    #[track_caller]
    pub fn channels(&self, dev: &str) -> u16 {
        let shown = self.ask_json(&format!("ethtool --json -l {dev}"));
        let combined = shown[0]["combined"].as_u64();
        combined.unwrap_or_else(|| panic!("no number of channels: {shown}")) as u16
    }
}

impl World {
    /// See [`Folder::ask`].
    #[track_caller]
    pub fn ask(&self, words: &str) -> Said {
        self.folder().ask(words)
    }

    /// See [`Folder::tell`].
    #[track_caller]
    pub fn tell(&self, words: &str) -> String {
        self.folder().tell(words)
    }

    /// See [`Folder::channels`].
    #[track_caller]
    pub fn channels(&self, dev: &str) -> u16 {
        self.folder().channels(dev)
    }
}
