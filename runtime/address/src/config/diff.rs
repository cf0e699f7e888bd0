//! Difference of two configurations.

use super::{Config, ConfiguredLink};

/// Action for each link, by name, in alphabetical order. A link that must be recreated is in
/// `remove` and in `add`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkActions {
    /// Links that stay as they are.
    pub keep: Vec<String>,
    /// Links to create.
    pub add: Vec<String>,
    /// Links to remove, before others are created.
    pub remove: Vec<String>,
    /// Links to modify while they run: channels, poll window and the behaviour at a full sink.
    pub change: Vec<String>,
}

/// True if the old link can become the new one while it runs.
fn differs_in_knobs_only(old: &ConfiguredLink, new: &ConfiguredLink) -> bool {
    let (old, new) = (&old.checked, &new.checked);
    let mut same = old.clone();
    (same.channels, same.poll_window) = (new.channels, new.poll_window);
    for (same, new) in same.egress.iter_mut().zip(&new.egress) {
        same.full = new.full;
    }
    same == *new
}

/// Computes the actions that lead from `old` to `new`. Links are compared by meaning, not by
/// notation.
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
