//! Measured figures of a test, stored for the report of `cargo xtask bench`. Measurements that need
//! guests or network namespaces run as tests; the report shows their results.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use serde_json::{Value, json};

/// Environment variable with the folder of the stored figures. Without this variable nothing is
/// stored.
const FOLDER: &str = "MQNET_FIGURES";
/// Environment variables with the commit of the figures and with the build profile of the program
/// under test.
const COMMIT: &str = "MQNET_COMMIT";
const PROFILE: &str = "MQNET_PROFILE";

/// Figures of one test for one section of the report, in the format of `mqnet-bench SECTION -j`.
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
    // Omit contenders without samples: they did not take part.
    lines.iter().filter(|(_, samples)| !samples.is_empty()).map(line).collect()
}

impl Figures {
    /// Creates the figures of one part of a section. Each part has its own file.
    pub fn of(section: &str, part: &str) -> Self {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let file = format!("{section}.{}.json", part.chars().map(word).collect::<String>());
        Self { file, part: part.to_owned(), notes: Vec::new(), cases: Vec::new() }
    }

    /// Name of the file with these figures.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Adds a case: the samples of each contender in `unit` (`ms`, `s`, `MiB` or any counted unit),
    /// and the ratios between contenders.
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

    /// Adds a note that states whether a promise was kept.
    pub fn verdict(mut self, kept: bool, words: &str) -> Self {
        self.notes.push(format!("{}: {words}", if kept { "kept" } else { "MISSED" }));
        self
    }

    /// If `MQNET_FIGURES` is set, stores the figures and replaces those of an earlier run. `cargo
    /// xtask test` sets the variable, and discards the figures of a failed test.
    #[track_caller]
    pub fn keep(self) {
        if let Some(folder) = env::var_os(FOLDER) {
            let [commit, profile] =
                [COMMIT, PROFILE].map(|name| env::var(name).unwrap_or_default());
            let kept = self.keep_in(Path::new(&folder), &commit, &profile);
            kept.unwrap_or_else(|error| panic!("{FOLDER}={}: {error}", folder.display()));
        }
    }

    /// Stores the figures in `folder` with a commit and a profile; an error if the file cannot be
    /// written.
    pub fn keep_in(self, folder: &Path, commit: &str, profile: &str) -> io::Result<()> {
        let Self { file, part, notes, cases } = self;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let kept = json!({
            "part": part, "unix-time": now, "commit": commit, "profile": profile,
            "notes": notes, "cases": cases,
        });
        fs::create_dir_all(folder)?;
        // The rename makes the update atomic: a concurrent reader gets the complete old or the
        // complete new file.
        let (draft, file) = (folder.join(format!(".{file}")), folder.join(file));
        fs::write(&draft, format!("{kept:#}\n"))?;
        fs::rename(draft, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: stored figures replace only those of the same part, and are read back unchanged.
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
