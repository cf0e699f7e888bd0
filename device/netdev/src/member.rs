//! The parts of a function that is made of several.

/// One of the functions that a function is made of, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// Its endpoint address.
    pub address: String,
    /// What it is told by for ever.
    pub identity: String,
    /// Table, flags and address of all are its.
    pub primary: bool,
    /// Why it is the primary; empty for others.
    pub why: String,
    /// It carries traffic, or could.
    pub up: bool,
    /// Why not; empty while it does.
    pub reason: String,
    /// Channels that are on it, by the map that never changes.
    pub channels: Vec<u16>,
    /// Channels of lost members for which it stands in.
    pub standing_in: Vec<u16>,
}
