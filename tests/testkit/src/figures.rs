//! Figures that a test has measured, kept for the report of `cargo xtask bench`: what needs guests
//! or worlds is measured where these are, and shown there.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use serde_json::{Value, json};

/// The folder where they are kept; nothing is kept when it is not set.
const FOLDER: &str = "MQNET_FIGURES";
/// The commit that they are of, and the profile of the program under test.
const COMMIT: &str = "MQNET_COMMIT";
const PROFILE: &str = "MQNET_PROFILE";

/// What one test has measured, of one section of the report. As `mqnet-bench SECTION -j` prints it.
#[derive(Debug)]
#[must_use = "figures are lost when they are not kept"]
pub struct Figures {
    file: String,
    part: String,
    notes: Vec<String>,
    cases: Vec<Value>,
}

fn lines(lines: &[(&str, &[f64])]) -> Value {
    let line = |(who, samples): &(&str, &[f64])| {
        let sample = |value: &f64| json!({ "value": value, "class": "single" });
        json!({ "who": who, "samples": samples.iter().map(sample).collect::<Vec<_>>() })
    };
    // Who has no samples did not take part.
    lines.iter().filter(|(_, samples)| !samples.is_empty()).map(line).collect()
}

impl Figures {
    /// Of a section, and which part of it: another part is kept beside it.
    pub fn of(section: &str, part: &str) -> Self {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let file = format!("{section}.{}.json", part.chars().map(word).collect::<String>());
        Self { file, part: part.to_owned(), notes: Vec::new(), cases: Vec::new() }
    }

    /// The name of their file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What was measured, in this unit (`ms`, `s`, `MiB` or what else is counted): contenders and
    /// their samples, and ratios of them.
    pub fn case(
        mut self,
        name: &str,
        unit: &str,
        contenders: &[(&str, &[f64])],
        ratios: &[(&str, &[f64])],
    ) -> Self {
        let (contenders, ratios) = (lines(contenders), lines(ratios));
        let unit = json!({ "kind": unit });
        self.cases
            .push(json!({ "name": name, "unit": unit, "lines": contenders, "ratios": ratios }));
        self
    }

    /// Whether a promise was kept, and in which words.
    pub fn verdict(mut self, kept: bool, words: &str) -> Self {
        self.notes.push(format!("{}: {words}", if kept { "kept" } else { "MISSED" }));
        self
    }

    /// Keeps them in place of those of an earlier run, if anybody has asked for them: `cargo xtask
    /// test`, which forgets them if the test fails.
    #[track_caller]
    pub fn keep(self) {
        if let Some(folder) = env::var_os(FOLDER) {
            let [commit, profile] =
                [COMMIT, PROFILE].map(|name| env::var(name).unwrap_or_default());
            let kept = self.keep_in(Path::new(&folder), &commit, &profile);
            kept.unwrap_or_else(|error| panic!("{FOLDER}={}: {error}", folder.display()));
        }
    }

    /// The same in this folder, as of this commit and profile.
    pub fn keep_in(self, folder: &Path, commit: &str, profile: &str) -> io::Result<()> {
        let Self { file, part, notes, cases } = self;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let kept = json!({
            "part": part, "unix-time": now, "commit": commit, "profile": profile,
            "notes": notes, "cases": cases,
        });
        fs::create_dir_all(folder)?;
        // Whoever reads meanwhile finds the older ones whole.
        let (draft, file) = (folder.join(format!(".{file}")), folder.join(file));
        fs::write(&draft, format!("{kept:#}\n"))?;
        fs::rename(draft, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is kept replaces what was kept of the same part and nothing else, and is read
    // again as it was given.
    #[test]
    fn figures_are_kept() {
        let folder = env::temp_dir().join(format!("mqnet-figures-{}", std::process::id()));
        let keep = |part: &str, value: f64| {
            let samples: &[f64] = &[value];
            let figures = Figures::of("resize", part).verdict(true, "a: 1 ms");
            let figures = figures.case("a", "ms", &[("silence", samples)], &[]);
            figures.keep_in(&folder, "0123", "tested").unwrap();
        };
        keep("64 channels", 1.0);
        keep("MTU", 2.0);
        keep("64 channels", 3.0);
        let read = |name: &str| -> Value {
            serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
        };
        let kept = read("resize.64-channels.json");
        assert_eq!(kept["cases"][0]["lines"][0]["samples"][0]["value"], 3.0);
        assert_eq!((&kept["notes"][0], &kept["commit"]), (&json!("kept: a: 1 ms"), &json!("0123")));
        assert_eq!(read("resize.mtu.json")["part"], "MTU");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
