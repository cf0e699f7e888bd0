//! Rule: plain engineering English. Words of speech, persons and household metaphors are rare in
//! comments and documents, and their number in names and messages only shrinks. GLOSSARY.md has the
//! terms.
//!
//! Limits are three times the highest rate found in five well-written code bases, per 1,000 lines.

use super::Report;
use super::lex::Kind;
use super::repository::Repository;

/// Group of words and phrases, and their maximum number per 1,000 lines.
struct Group {
    name: &'static str,
    limit: f64,
    /// Words; the words of a phrase are separated by blanks.
    words: &'static [&'static str],
}

const GROUPS: [Group; 8] = [
    Group {
        name: "persons",
        limit: 1.5,
        words: &["who", "whoever", "nobody", "somebody", "anybody", "whom", "whomever"],
    },
    Group {
        name: "speech",
        limit: 15.0,
        words: &[
            "say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard", "spoke",
            "spoken", "speak", "speaks",
        ],
    },
    Group { name: "asking", limit: 7.2, words: &["ask", "asks", "asked", "asking"] },
    Group { name: "looking", limit: 3.3, words: &["look", "looks", "looked", "looking"] },
    Group {
        name: "relative",
        limit: 7.2,
        words: &["of which", "of whom", "of those", "whose", "by which", "from which", "to which"],
    },
    Group { name: "lying", limit: 1.5, words: &["lie", "lies", "lay", "lying"] },
    Group {
        name: "fillers",
        limit: 4.2,
        words: &[
            "beside",
            "meanwhile",
            "in vain",
            "by itself",
            "at once",
            "all the same",
            "for ever",
        ],
    },
    Group {
        name: "household",
        limit: 1.8,
        words: &[
            "home",
            "door",
            "doors",
            "bell",
            "ears",
            "seat",
            "seats",
            "drawer",
            "clerk",
            "keeper",
            "letter",
            "the law",
            "crew",
            "knock",
            "stand in",
            "stands in",
        ],
    },
];

/// First words of comments that are clauses without a noun.
const OPENINGS: [&str; 7] =
    ["what ", "who ", "where ", "whether ", "by which ", "in which ", "as which "];
/// Maximum number of comments with one of the [`OPENINGS`] per 1,000 comment lines.
const OPENINGS_LIMIT: f64 = 7.2;

/// Crate, and the numbers of words of [`GROUPS`] in its names of items and in its string literals.
/// The list may only shrink: the numbers must not grow, and must be lowered when words are removed.
const KNOWN: [(&str, usize, usize); 10] = [
    ("app/client", 0, 1),
    ("app/daemon", 0, 1),
    ("runtime/address", 0, 1),
    ("tests/conformance", 1, 1),
    ("tests/guest", 4, 22),
    ("tests/netns", 7, 8),
    ("tests/soak", 2, 0),
    ("tests/testkit", 8, 1),
    ("tools/bench", 18, 22),
    ("tools/report", 0, 6),
];

/// Number of lines of one kind of text, and the words found in them.
#[derive(Default)]
struct Count {
    lines: usize,
    /// Hits of each group, followed by those of openings; `first` has the path and line of the
    /// first hit.
    hits: [usize; GROUPS.len() + 1],
    first: [Option<(String, usize)>; GROUPS.len() + 1],
}

impl Count {
    fn add(&mut self, path: &str, line: usize, text: &str) {
        self.lines += 1;
        let words = words(text);
        for (at, group) in GROUPS.iter().enumerate() {
            let hits = hits(&words, group);
            self.note(at, hits, path, line);
        }
    }

    fn note(&mut self, at: usize, hits: usize, path: &str, line: usize) {
        self.hits[at] += hits;
        if hits > 0 && self.first[at].is_none() {
            self.first[at] = Some((path.to_owned(), line));
        }
    }

    /// Reports each group with a rate above its limit.
    fn judge(&self, kind: &str, report: &mut Report) {
        let groups = GROUPS.iter().map(|group| (group.name, group.limit));
        let all = groups.chain([("openings", OPENINGS_LIMIT)]);
        for (at, (name, limit)) in all.enumerate() {
            let rate = 1000.0 * self.hits[at] as f64 / self.lines.max(1) as f64;
            if let Some((path, line)) = self.first[at].as_ref().filter(|_| rate > limit) {
                let message = format!(
                    "{name}: {rate:.1} words in 1,000 {kind} lines, at most {limit}; this is the \
                     first one; GLOSSARY.md has the terms"
                );
                report.add(path, *line, message);
            }
        }
    }
}

pub(super) fn check(repository: &Repository, report: &mut Report) {
    comments(repository, report);
    let mut documents = Count::default();
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            documents.add(path, index + 1, line);
        }
    }
    documents.judge("document", report);
    names_and_strings(repository, report, &KNOWN);
}

/// Checks the comments of all Rust files.
fn comments(repository: &Repository, report: &mut Report) {
    let mut count = Count::default();
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut inside = false;
        for (index, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                inside = false;
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            count.add(path, index + 1, comment);
            let lower = comment.to_ascii_lowercase();
            let opens = comment.starts_with(char::is_uppercase)
                && OPENINGS.iter().any(|opening| lower.starts_with(opening));
            count.note(GROUPS.len(), usize::from(opens && !inside), path, index + 1);
            inside = !comment.is_empty();
        }
    }
    count.judge("comment", report);
}

/// Compares the numbers of words in names of items and in string literals with the known numbers.
fn names_and_strings(repository: &Repository, report: &mut Report, known: &[(&str, usize, usize)]) {
    for package in &repository.packages {
        let folder = format!("{}/", package.folder);
        let mut found = (0, 0);
        let own = file!().ends_with("vocabulary.rs").then_some("tidy/vocabulary.rs");
        let sources = repository.sources.iter().filter(|source| source.path.starts_with(&folder));
        for source in sources.filter(|s| own.is_none_or(|own| !s.path.ends_with(own))) {
            let mut item = false;
            for token in &source.tokens {
                let hits = || {
                    let words = words(&token.text);
                    GROUPS.iter().map(|group| hits(&words, group)).sum::<usize>()
                };
                match token.kind {
                    Kind::Literal if token.text.contains('"') => found.1 += hits(),
                    Kind::Word if item => found.0 += hits(),
                    _ => {}
                }
                item = ITEMS.contains(&token.text.as_str()) && token.kind == Kind::Word;
            }
        }
        let entry = known.iter().find(|(folder, ..)| *folder == package.folder);
        let expected = entry.map_or((0, 0), |&(_, names, strings)| (names, strings));
        if found != expected {
            let message = format!(
                "{} names and {} strings with retired words, {} and {} in `KNOWN`: use the terms \
                 of GLOSSARY.md, and lower the numbers in the list",
                found.0, found.1, expected.0, expected.1
            );
            report.add(&package.file("Cargo.toml"), 1, message);
        }
    }
}

/// Keywords before a name.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

/// Words of a text in lower case; names are split at `_` and at capital letters.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for letter in text.chars() {
        let begins = letter.is_uppercase() && previous.is_lowercase();
        if !letter.is_alphabetic() || begins {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("one word at least").extend(letter.to_lowercase());
        }
        previous = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn hits(words: &[String], group: &Group) -> usize {
    let is_at = |at: usize, phrase: &str| {
        let mut parts = phrase.split(' ').enumerate();
        parts.all(|(n, part)| words.get(at + n).is_some_and(|word| word == part))
    };
    (0..words.len()).filter(|&at| group.words.iter().any(|phrase| is_at(at, phrase))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::{findings, repository};

    const PATH: &str = "memory/x/src/a.rs";

    #[test]
    fn words_are_split_at_underscores_and_capitals() {
        assert_eq!(words("take_seat_of HomeOf `x`"), ["take", "seat", "of", "home", "of", "x"]);
    }

    #[test]
    fn retired_words_are_found_in_comments_and_documents() {
        let found = findings("vocabulary", &[(PATH, "// Fine.\n// It is by itself.\n")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("memory/x/src/a.rs:2: fillers: 500.0 words in 1,000 comment"));
        let found = findings("vocabulary", &[("docs/a.md", "One.\n\nNobody knows.\n")]);
        assert!(found.len() == 1 && found[0].starts_with("docs/a.md:3: persons: "), "{found:?}");
        let found = findings("vocabulary", &[(PATH, "// What it is.\n// Who knows.\n")]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn names_and_strings_only_improve() {
        let tree = repository(&[(PATH, "fn take_seat() { print(\"nobody\"); let seat = 1; }")]);
        let check = |known: &[(&str, usize, usize)]| {
            let mut report = Report::default();
            names_and_strings(&tree, &mut report, known);
            report.findings.len()
        };
        assert_eq!((check(&[]), check(&[("memory/x", 1, 1)])), (1, 0));
        assert_eq!((check(&[("memory/x", 2, 1)]), check(&[("memory/x", 1, 0)])), (1, 1));
    }
}
