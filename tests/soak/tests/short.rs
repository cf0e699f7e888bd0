//! Short soak with a constant seed, for `cargo xtask test`.

use std::path::Path;
use std::time::Duration;

use mqnet_soak::{Settings, run};
use mqnet_testkit::{Need, has};

/// No round begins after this time; rounds in progress end some seconds later.
const TIME: Duration = Duration::from_secs(35);

/// With this seed the second process of each rig is killed; the daemon is not.
const SEED: u64 = 4;

// Goal: all backends run at the same time while they are resized, reconfigured, stalled and killed.
// The conservation check holds, order and content of frames are kept, and no process exits or
// panics.
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
