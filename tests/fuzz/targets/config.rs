//! Contents of two configuration files, separated by a form feed, which TOML does not allow. A
//! valid configuration has no difference to itself, and each problem of an invalid one is one line
//! of text.

#![no_main]

use mqnet_address::check;
use mqnet_address::config::{Config, Source, diff};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let source = |text: &str| Source { name: "f".to_owned(), text: text.to_owned() };
    let sources: Vec<Source> = text.splitn(2, '\u{c}').map(source).collect();
    match Config::parse(&sources, check) {
        Ok(config) => {
            let plan = diff(&config, &config);
            assert_eq!(plan.keep.len(), config.links.len());
            assert!(plan.add.is_empty() && plan.remove.is_empty() && plan.change.is_empty());
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
            }
        }
    }
});
