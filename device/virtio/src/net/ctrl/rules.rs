//! Checks of control commands, and the settings that commands change.

use crate::Features;
use crate::net::filter::RxFilter;
use crate::net::rss::{Hasher, IndirectionTable, KEY_LEN, TABLE_MAX, TYPES};

use super::{CtrlCommand, CtrlError, RxMode};

/// Features and limits that apply to control commands.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Negotiated features.
    pub features: Features,
    /// Maximum number of queue pairs.
    pub pairs: u16,
}

/// State that control commands set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Queue pairs in use.
    pub pairs: u16,
    /// Receive filter.
    pub filter: RxFilter,
    /// Hash configuration, for RSS and hash reports.
    pub hasher: Hasher,
    /// RSS indirection table; `None`: the device selects queues.
    pub spread: Option<IndirectionTable>,
    /// Offloads that the driver performs.
    pub guest: Features,
    /// True while the driver should announce itself.
    pub announce: bool,
}

/// Kind of change that a command has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Queue pairs, RSS or offloads: the link must be negotiated again.
    Link,
    /// Receive filter or hash configuration.
    Receive,
    /// The device's MAC address, and with it the receive filter.
    Address,
    /// Only state of [`Settings`] that needs no further action.
    Nothing,
}

/// Feature that a command requires.
fn needs(command: &CtrlCommand) -> Features {
    match command {
        CtrlCommand::Rx(RxMode::Promisc | RxMode::AllMulti, _) => Features::CTRL_RX,
        CtrlCommand::Rx(..) => Features::CTRL_RX_EXTRA,
        CtrlCommand::MacTable { .. } => Features::CTRL_RX,
        CtrlCommand::MacAddr(_) => Features::CTRL_MAC_ADDR,
        CtrlCommand::VlanAdd(_) | CtrlCommand::VlanDel(_) => Features::CTRL_VLAN,
        CtrlCommand::AnnounceAck => Features::GUEST_ANNOUNCE,
        CtrlCommand::Pairs(_) => Features::MQ,
        CtrlCommand::Rss { .. } => Features::RSS,
        CtrlCommand::Hash(_) => Features::HASH_REPORT,
        CtrlCommand::GuestOffloads(_) => Features::CTRL_GUEST_OFFLOADS,
    }
}

fn rule<T>(what: String) -> Result<T, CtrlError> {
    Err(CtrlError::Rule(what))
}

impl Rules {
    /// Creates the settings that apply after feature negotiation.
    pub fn begin(&self, mac: [u8; 6]) -> Settings {
        Settings {
            pairs: 1,
            filter: RxFilter::open(mac, self.features.has(Features::CTRL_VLAN)),
            hasher: Hasher::default(),
            spread: None,
            guest: self.features.and(Features::GUEST),
            announce: false,
        }
    }

    /// Executes a command. Returns the kind of change. A rejected command changes nothing.
    pub fn obey(&self, settings: &mut Settings, bytes: &[u8]) -> Result<Changed, CtrlError> {
        let command = CtrlCommand::parse(bytes)?;
        let needed = needs(&command);
        if !self.features.has(needed) {
            return rule(format!("a command needs {needed}, which was not negotiated"));
        }
        match command {
            CtrlCommand::Rx(mode, on) => {
                settings.filter.modes[mode as usize] = on;
                Ok(Changed::Receive)
            }
            CtrlCommand::MacTable { unicast, multicast } => {
                settings.filter.set_table(unicast, multicast);
                Ok(Changed::Receive)
            }
            CtrlCommand::MacAddr(mac) if mac[0] & 1 == 1 || mac == [0; 6] => {
                rule(format!("{mac:02x?} is not a unicast address"))
            }
            CtrlCommand::MacAddr(mac) => {
                settings.filter.mac = mac;
                Ok(Changed::Address)
            }
            CtrlCommand::VlanAdd(vlan) => set_vlan(settings, vlan, true),
            CtrlCommand::VlanDel(vlan) => set_vlan(settings, vlan, false),
            CtrlCommand::AnnounceAck => {
                settings.announce = false;
                Ok(Changed::Nothing)
            }
            CtrlCommand::Pairs(pairs) => {
                self.check_pairs(pairs)?;
                (settings.pairs, settings.spread) = (pairs, None);
                Ok(Changed::Link)
            }
            CtrlCommand::Rss { spread, hasher, pairs } => {
                self.check_pairs(pairs)?;
                self.check_spread(&spread)?;
                check_hasher(&hasher)?;
                (settings.pairs, settings.hasher) = (pairs, hasher);
                settings.spread = Some(spread);
                Ok(Changed::Link)
            }
            CtrlCommand::Hash(hasher) => {
                check_hasher(&hasher)?;
                settings.hasher = hasher;
                Ok(Changed::Receive)
            }
            CtrlCommand::GuestOffloads(wanted) => {
                let odd = wanted.minus(self.features.and(Features::GUEST));
                if odd != Features::default() {
                    return rule(format!("offloads that were not negotiated: {odd}"));
                }
                settings.guest = wanted;
                Ok(Changed::Link)
            }
        }
    }

    fn check_pairs(&self, pairs: u16) -> Result<(), CtrlError> {
        let most = self.pairs;
        if pairs == 0 || pairs > most {
            return rule(format!("{pairs} queue pairs, allowed: 1 to {most}"));
        }
        Ok(())
    }

    fn check_spread(&self, spread: &IndirectionTable) -> Result<(), CtrlError> {
        let (entries, most) = (spread.table.len(), self.pairs);
        if !entries.is_power_of_two() || entries > usize::from(TABLE_MAX) {
            let allowed = format!("allowed are powers of two to {TABLE_MAX}");
            return rule(format!("a table of {entries} queues, {allowed}"));
        }
        let queues = spread.table.iter().chain([&spread.unclassified]);
        match queues.copied().find(|&queue| queue >= most) {
            Some(queue) => rule(format!("queue {queue} in a table of {most} queues")),
            None => Ok(()),
        }
    }
}

fn set_vlan(settings: &mut Settings, vlan: u16, on: bool) -> Result<Changed, CtrlError> {
    if settings.filter.set_vlan(vlan, on) {
        return Ok(Changed::Receive);
    }
    rule(format!("VLAN {vlan}, allowed: 0 to 4095"))
}

fn check_hasher(hasher: &Hasher) -> Result<(), CtrlError> {
    let (len, odd) = (usize::from(hasher.key_len), hasher.types & !TYPES);
    if odd != 0 {
        return rule(format!("unknown hash types: {odd:#x}"));
    }
    if len > KEY_LEN || hasher.types != 0 && len != KEY_LEN {
        return rule(format!("a key of {len} bytes, allowed: {KEY_LEN}"));
    }
    Ok(())
}
