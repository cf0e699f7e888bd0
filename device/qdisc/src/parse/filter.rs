//! Parser of filters: the words after `flower`, `matchall` and `fw`.

use std::net::IpAddr;

use crate::cls::{Address, Flower, Matcher, Ports};
use crate::command::Errno;
use crate::filters::{ETH_P_ALL, Plan};
use crate::parse::{Words, action, invalid, number, unknown, usage};
use crate::{Handle, TcError};

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const TPIDS: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOLS: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Properties of a filter that precede its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) protocol: u16,
    /// Handle of the filter; for fw, the mark to match.
    pub(crate) handle: Option<Handle>,
}

/// Parses a filter of kind `kind`. The caller assigns the indexes of the actions later.
pub(crate) fn filter(kind: &str, options: &[String], known: Keys) -> Result<Plan, TcError> {
    let mut words = Words::new(options);
    let mut plan = Plan {
        protocol: known.protocol,
        matcher: Matcher::Matchall,
        class: None,
        actions: Vec::new(),
    };
    match kind {
        "matchall" => common(&mut words, &mut plan, |word, _| Err(unknown(word)))?,
        "fw" => {
            let Some(Handle(mark)) = known.handle else {
                return Err(invalid("fw: its handle, which is the mark to match, is missing"));
            };
            let mut mask = u32::MAX;
            common(&mut words, &mut plan, |word, words| match word {
                "mask" => words.read("handle\" mask \"", number::number).map(|read| mask = read),
                _ => Err(unknown(word)),
            })?;
            plan.matcher = Matcher::Fw { mark, mask };
        }
        "flower" => {
            let mut flower = Flower::default();
            if known.protocol != ETH_P_ALL && !TPIDS.contains(&known.protocol) {
                flower.ethertype = Some(known.protocol);
            }
            common(&mut words, &mut plan, |word, words| {
                key(&mut flower, word, words, known.protocol)
            })?;
            plan.matcher = Matcher::Flower(Box::new(flower));
        }
        _ => {
            let message = "TC classifier not found".to_owned();
            return Err(TcError { errno: Errno::NotFound, message, usage: false });
        }
    }
    Ok(plan)
}

/// Parses the options that all kinds have, and passes other words to `own`.
fn common<'a>(
    words: &mut Words<'a>,
    plan: &mut Plan,
    mut own: impl FnMut(&'a str, &mut Words<'a>) -> Result<(), TcError>,
) -> Result<(), TcError> {
    while let Some(word) = words.next() {
        match word {
            "classid" | "flowid" => plan.class = Some(words.read(word, number::class)?),
            "action" => plan.actions.push(action::action(words)?),
            // Accepted without effect: there is no hardware offload.
            "skip_hw" => {}
            _ => own(word, words)?,
        }
    }
    Ok(())
}

fn key(f: &mut Flower, word: &str, words: &mut Words<'_>, protocol: u16) -> Result<(), TcError> {
    if word.starts_with("vlan_") && !TPIDS.contains(&protocol) {
        let text = format!("Can't set \"{word}\" if ethertype isn't 802.1Q or 802.1AD");
        return Err(usage(text));
    }
    let about_ip = ["ip_proto", "ip_tos", "src_ip", "dst_ip"].contains(&word);
    if about_ip && ![Some(ETH_P_IP), Some(ETH_P_IPV6)].contains(&f.ethertype) {
        let text = format!("Illegal \"{word}\": it needs protocol (or vlan_ethtype) ip or ipv6");
        return Err(usage(text));
    }
    let has_ports = f.ip_proto.is_some_and(|proto| WITH_PORTS.contains(&proto));
    if ["src_port", "dst_port"].contains(&word) && !has_ports {
        return Err(usage(format!("Illegal \"{word}\": it needs ip_proto tcp, udp or sctp")));
    }
    let v6 = f.ethertype == Some(ETH_P_IPV6);
    match word {
        "vlan_id" => f.vlan_id = Some(words.read(word, |w| at_most(w, 4095))?),
        "vlan_prio" => f.vlan_prio = Some(words.read(word, |w| at_most(w, 7))? as u8),
        "vlan_ethtype" => {
            f.ethertype = Some(words.read(word, ethertype)?);
            f.in_vlan = true;
        }
        "dst_mac" => f.dst_mac = Some(words.read(word, mac)?),
        "src_mac" => f.src_mac = Some(words.read(word, mac)?),
        "ip_proto" => f.ip_proto = Some(words.read(word, proto)?),
        "ip_tos" => f.ip_tos = Some(words.read(word, tos)?),
        "dst_ip" => f.dst_ip = Some(address(words, v6)?),
        "src_ip" => f.src_ip = Some(address(words, v6)?),
        "dst_port" => f.dst_port = Some(words.read(word, ports)?),
        "src_port" => f.src_port = Some(words.read(word, ports)?),
        _ => return Err(unknown(word)),
    }
    Ok(())
}

fn at_most(word: &str, most: u16) -> Option<u16> {
    number::decimal(word).filter(|number| *number <= most)
}

fn hex(word: &str) -> Option<u8> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn ethertype(word: &str) -> Option<u16> {
    match word {
        "ip" | "ipv4" => Some(ETH_P_IP),
        "ipv6" => Some(ETH_P_IPV6),
        "arp" => Some(0x0806),
        _ => number::number(word).and_then(|number| number.try_into().ok()),
    }
}

/// Parses an IP protocol: a name, or a hexadecimal number as in tc.
fn proto(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word);
    named.map(|(_, proto)| *proto).or_else(|| hex(word))
}

/// Parses a value with an optional mask, both in hexadecimal; the default mask is 0xff.
fn tos(word: &str) -> Option<(u8, u8)> {
    match word.split_once('/') {
        Some((value, mask)) => Some((hex(value)?, hex(mask)?)),
        None => Some((hex(word)?, 0xff)),
    }
}

fn address(words: &mut Words<'_>, v6: bool) -> Result<Address, TcError> {
    let word = words.value()?;
    let read = || {
        let (address, prefix) = match word.split_once('/') {
            Some((address, prefix)) => (address, Some(number::decimal(prefix)?)),
            None => (word, None),
        };
        let address: IpAddr = address.parse().ok()?;
        Address::new(address, prefix).filter(|_| address.is_ipv6() == v6)
    };
    let family = if v6 { "inet6" } else { "inet" };
    read().ok_or_else(|| usage(format!("{family} prefix is expected rather than \"{word}\"")))
}

/// Parses a port, or a range `FROM-TO` with FROM less than TO.
fn ports(word: &str) -> Option<Ports> {
    match word.split_once('-') {
        Some((first, last)) => {
            let (first, last): (u16, u16) = (number::decimal(first)?, number::decimal(last)?);
            (first < last).then_some(first..=last)
        }
        None => number::decimal(word).map(|port| port..=port),
    }
}

/// Parses a MAC address with an optional mask, which is six bytes or a number of bits. Returns the
/// address and the mask.
fn mac(word: &str) -> Option<([u8; 6], [u8; 6])> {
    let six = |word: &str| -> Option<[u8; 6]> {
        let bytes: Option<Vec<u8>> = word.split(':').map(hex).collect();
        bytes?.try_into().ok()
    };
    let (address, mask) = word.split_once('/').unwrap_or((word, "48"));
    let mask = match number::decimal::<u32>(mask).filter(|bits| *bits <= 48) {
        Some(bits) => {
            let bits = u64::MAX << (48 - bits) & 0xffff_ffff_ffff;
            bits.to_be_bytes()[2..].try_into().ok()?
        }
        None => six(mask)?,
    };
    Some((six(address)?, mask))
}
