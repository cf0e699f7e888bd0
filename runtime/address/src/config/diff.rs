//! Difference between two configurations.

use super::{Config, ConfiguredLink};

/// Names of links by required action, each list in alphabetical order. A link that must be
/// recreated is in both `remove` and `add`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkActions {
    /// Links without a change.
    pub keep: Vec<String>,
    /// Links to create.
    pub add: Vec<String>,
    /// Links to remove before others are created.
    pub remove: Vec<String>,
    /// Links to modify while they run: channels, poll window or behaviour at a full sink.
    pub change: Vec<String>,
}

/// True if `old` and `new` differ only in settings that can change while the link runs.
fn differs_in_knobs_only(old: &ConfiguredLink, new: &ConfiguredLink) -> bool {
    let (old, new) = (&old.checked, &new.checked);
    let mut same = old.clone();
    (same.channels, same.poll_window) = (new.channels, new.poll_window);
    for (same, new) in same.egress.iter_mut().zip(&new.egress) {
        same.full = new.full;
    }
    same == *new
}

/// Determines the actions that lead from `old` to `new`. Links are compared by their checked
/// values, not by their text.
pub fn diff(old: &Config, new: &Config) -> LinkActions {
    let mut plan = LinkActions::default();
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
