//! The soak of the test command: short, with a seed that is always the same.

use std::path::Path;
use std::time::Duration;

use mqnet_soak::{Settings, run};
use mqnet_testkit::{Need, has};

/// How long rounds begin; the last ones end some seconds later.
const TIME: Duration = Duration::from_secs(35);

/// Of each rig the second process is the one that is killed; the daemon lives.
const SEED: u64 = 4;

// Goal: all backends at once hold the law, the order and the content of everything while they are
// resized, retuned, stalled and killed; no process ends or panics by itself.
#[test]
fn a_short_soak_holds() {
    if !has(&[Need::Root, Need::Program("ethtool"), Need::Program("clang")]) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/soak/short");
    let settings = Settings {
        time: TIME,
        seed: SEED,
        only: Vec::new(),
        round: None,
        actions: Vec::new(),
        times: 1,
        dev: true,
        folder,
    };
    assert!(run(&settings), "the soak failed: see above, and {}", settings.folder.display());
}
