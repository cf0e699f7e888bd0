//! What a new configuration changes.

use super::{Config, Link};

/// What to do with each link, by name, each list in alphabetical order. A link that must be made
/// anew is in `remove` and in `add`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Not to be touched.
    pub keep: Vec<String>,
    /// To be made.
    pub add: Vec<String>,
    /// To be ended, before others are made.
    pub remove: Vec<String>,
    /// To be set while it runs: channels, poll window and what happens at a full sink.
    pub change: Vec<String>,
}

/// Whether one can become the other while it runs.
fn differs_in_knobs_only(old: &Link, new: &Link) -> bool {
    let (old, new) = (&old.checked, &new.checked);
    let mut same = old.clone();
    (same.channels, same.poll_window) = (new.channels, new.poll_window);
    for (same, new) in same.egress.iter_mut().zip(&new.egress) {
        same.full = new.full;
    }
    same == *new
}

/// Finds what must be done to get from `old` to `new`. What the links mean is compared, not how
/// they are written.
pub fn diff(old: &Config, new: &Config) -> Plan {
    let mut plan = Plan::default();
    for (name, link) in &new.links {
        match old.links.get(name) {
            Some(before) if before.checked == link.checked => plan.keep.push(name.clone()),
            Some(before) if differs_in_knobs_only(before, link) => plan.change.push(name.clone()),
            Some(_) => {
                plan.remove.push(name.clone());
                plan.add.push(name.clone());
            }
            None => plan.add.push(name.clone()),
        }
    }
    let gone = old.links.keys().filter(|name| !new.links.contains_key(*name));
    plan.remove.extend(gone.cloned());
    plan.remove.sort_unstable();
    plan
}
