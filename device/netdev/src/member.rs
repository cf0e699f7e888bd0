//! Description of the members of a group.

/// Description of one member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// Endpoint address.
    pub address: String,
    /// Permanent identity.
    pub identity: String,
    /// True for the primary, which determines the table, flags and MAC address of the group.
    pub primary: bool,
    /// Reason why the member is the primary; empty for other members.
    pub why: String,
    /// True if the member can carry traffic.
    pub up: bool,
    /// Reason why the member is down; empty if the member is up.
    pub reason: String,
    /// Channels of the member in the group's fixed channel map.
    pub channels: Vec<u16>,
    /// Channels of lost members that have failed over to this member.
    pub standing_in: Vec<u16>,
}
