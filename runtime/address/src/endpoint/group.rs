//! `A+B[+C...]`: several endpoints that form one netdev.
//!
//! A '+' separates members only if a known kind and ':' follow, so names and paths may contain '+'.
//! Options of the group follow its last member.

use mqnet_engine::EgressConfig;

use super::declaration::KindDecl;
use super::option::{Custom, OptionDecl, ValueType, option};
use super::options::Options;
use super::value::Value;
use super::{Endpoint, EndpointConfig, KINDS, parse_both};

/// Allowed numbers of members in a group.
const MEMBERS: std::ops::RangeInclusive<usize> = 2..=8;

/// Several functions that form one netdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Members of the group, in the order of their channels.
    pub members: Vec<Endpoint>,
    /// True to continue when a member is lost; false to close the group.
    pub degrade: bool,
    /// Index of the primary; `None`: the member with the smallest stable id.
    pub primary: Option<usize>,
}

const OPTIONS: &[OptionDecl] = &[
    option(
        "on-member-loss",
        ValueType::Choice(&["destroy", "degrade"]),
        "the group goes down with a lost member, or continues without it",
    )
    .or("destroy")
    .once(),
    option(
        "primary",
        ValueType::Custom(&Custom {
            syntax: "N|ADDRESS",
            allowed: "the number of a member from 0, or its address without options",
            example: "1",
            read: |text| Some(Value::Text(text.to_owned())),
        }),
        "member that gives the group its identity; otherwise the one with the smallest id",
    )
    .once(),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "",
    target: "A+B[+C...]",
    summary: "2 to 8 endpoints as one netdev, all of them bridges or none",
    notes: "Options of the group, and those of all kinds, follow its last member. \
            xdp:IFNAME,group=auto is the group of all functions of the port, or of all ports of \
            the switch.",
    document: "groups.md",
    example: "tap:a+tap:b,on-member-loss=degrade",
    driver: "mqnet-group",
    rings: "has no rings",
    is_interface: true,
    is_path: |_| false,
    options: &[OPTIONS],
    parse,
};

impl EndpointConfig for Group {
    /// Returns the name of the first member: the primary is known only when all members are open.
    fn netdev_name(&self) -> String {
        self.members.first().map(|member| member.config().netdev_name()).unwrap_or_default()
    }
}

/// Splits an address into members; `None` if the address is no group.
pub(super) fn members_of(address: &str) -> Option<Vec<&str>> {
    let begins = |text: &str| {
        let is_kind = |name: &str| text.strip_prefix(name).is_some_and(|t| t.starts_with(':'));
        KINDS.iter().any(|kind| is_kind(kind.name()))
    };
    let (mut members, mut from) = (Vec::new(), 0);
    for (at, _) in address.match_indices('+') {
        if begins(&address[at + 1..]) {
            members.push(&address[from..at]);
            from = at + 1;
        }
    }
    members.push(&address[from..]);
    (members.len() > 1).then_some(members)
}

/// True for an option of the group, which follows the last member.
pub(super) fn is_of_group(option: &str) -> bool {
    KIND.options().any(|decl| decl.matches(option))
}

/// Separates an address into the text of its members and the options of the group.
pub(super) fn split(address: &str) -> (String, String) {
    let start = members_of(address).and_then(|members| members.last().map(|last| last.len()));
    let (members, last) = address.split_at(address.len() - start.unwrap_or_default());
    let mut parts = last.split(',');
    let target = parts.next().unwrap_or_default();
    let (of_group, of_last): (Vec<&str>, Vec<&str>) = parts.partition(|option| is_of_group(option));
    let of_last: String = of_last.iter().flat_map(|option| [",", option]).collect();
    (format!("{members}{target}{of_last}"), of_group.join(","))
}

/// True if two members refer to the same device. `null` members never do.
fn same(one: (&Endpoint, &str), other: (&Endpoint, &str)) -> bool {
    match (one.0, other.0) {
        (Endpoint::Tap(one), Endpoint::Tap(other)) => {
            one.name == other.name && one.netns == other.netns && !one.name.contains('%')
        }
        (Endpoint::Null, Endpoint::Null) => false,
        // For the other kinds, the text before the options identifies the device.
        _ => target(one.1) == target(other.1),
    }
}

fn target(address: &str) -> &str {
    address.split(',').next().unwrap_or_default()
}

/// Returns the index of the member that the user selected as primary, by its address without
/// options or by its index.
fn number_of(wanted: &str, texts: &[&str]) -> Result<usize, String> {
    let numbers = 0..texts.len();
    let named = texts.iter().position(|text| target(text) == wanted);
    let found = named.or_else(|| wanted.parse().ok().filter(|number| numbers.contains(number)));
    found.ok_or_else(|| {
        let members: Vec<&str> = texts.iter().map(|text| target(text)).collect();
        let (most, members) = (texts.len() - 1, members.join(", "));
        format!("primary={wanted}: must be a number from 0 to {most}, or one of {members}")
    })
}

fn parse(text: &str, options: &Options) -> Result<Endpoint, String> {
    let texts = members_of(text).unwrap_or_default();
    let count = texts.len();
    if !MEMBERS.contains(&count) {
        let (least, most) = (MEMBERS.start(), MEMBERS.end());
        return Err(format!("group: {count} members, allowed: {least} to {most}"));
    }
    let primary: Option<String> = options.optional("primary");
    let primary = primary.map(|wanted| number_of(&wanted, &texts)).transpose()?;
    let mut members = Vec::<Endpoint>::new();
    for (at, text) in texts.iter().copied().enumerate() {
        let (member, egress) = parse_both(text).map_err(|e| format!("member {at}: {e}"))?;
        let why = match &member {
            Endpoint::NtbVfioUser(_) => {
                Some("its peer is a kernel's ntb_transport, which does not support groups")
            }
            _ if !member.config().inherited().is_empty() => Some("fd= is not possible in a group"),
            _ if egress != EgressConfig::default() => Some(
                "qdisc=, full= and rx-locality= are the group's: write them after the last member",
            ),
            _ => None,
        };
        if let Some(why) = why {
            return Err(format!("member {at}, {}: {why}", target(text)));
        }
        let twice = |(other, its): (&Endpoint, &&str)| same((other, *its), (&member, text));
        if members.iter().zip(&texts).any(twice) {
            return Err(format!("member {at}, {}: is a member already", target(text)));
        }
        members.push(member);
    }
    let bridge = members.iter().position(Endpoint::is_bridge);
    if let (Some(at), false) = (bridge, members.iter().all(Endpoint::is_bridge)) {
        let what = "the other end of a bridge is a group of as many bridges, so all members are";
        return Err(format!("member {at}, {}: {what} bridges, or none", target(texts[at])));
    }
    let degrade = options.pick("on-member-loss", [false, true]).unwrap_or_default();
    Ok(Endpoint::Group(Group { members, degrade, primary }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse;

    fn group(address: &str) -> Group {
        match parse(address) {
            Ok(Endpoint::Group(group)) => group,
            other => panic!("{address}: {other:?}"),
        }
    }

    // Goal: members keep their own options, and options of the group follow the last member. A '+'
    // in a name or a path does not separate members.
    #[test]
    fn good_groups() {
        let plain = group("tap:a0,mtu=9000+tap:a1");
        assert_eq!(plain.members, [parse("tap:a0,mtu=9000").unwrap(), parse("tap:a1").unwrap()]);
        assert_eq!((plain.degrade, plain.primary), (false, None));
        let all =
            group("vhost-user:/run/a+b.sock+tap:c+d,primary=1,persist,on-member-loss=degrade");
        assert_eq!(all.members[0], parse("vhost-user:/run/a+b.sock").unwrap());
        assert_eq!(all.members[1], parse("tap:c+d,persist").unwrap());
        assert_eq!((all.degrade, all.primary), (true, Some(1)));
        assert_eq!(group("tap:a+tap:b,primary=tap:b").primary, Some(1));
        assert!(!group("null:+null:,on-member-loss=destroy").degrade);
        assert!(matches!(parse("tap:a+b"), Ok(Endpoint::Tap(tap)) if tap.name == "a+b"));
        assert_eq!(parse("tap:x0+tap:x1").unwrap().config().netdev_name(), "x0");
        let (_, egress) = parse_both("tap:a+tap:b,qdisc=fq_codel").unwrap();
        assert_eq!(egress.qdisc.as_deref(), Some("fq_codel"));
        // A name in two namespaces refers to two devices.
        assert_eq!(group("tap:a,netns=x+tap:a,netns=y").members.len(), 2);
    }

    // Goal: the error of an invalid group contains the wrong member or option and the allowed
    // values.
    #[test]
    fn bad_groups_name_the_error() {
        let nine = ["null:"; 9].join("+");
        for (address, words) in [
            (&nine[..], "group: 9 members, allowed: 2 to 8"),
            ("tap:a+tap:a", "member 1, tap:a: is a member already"),
            ("tap:a+tap:b+tap:a,persist", "member 2, tap:a: is a member already"),
            ("vhost-user:/x,queues=2+vhost-user:/x", "member 1, vhost-user:/x: is a member"),
            ("tap:a+tap:", "member 1: endpoint 'tap:': '' is not a valid interface name"),
            ("tap:a,mtu=1+tap:b", "member 0: endpoint 'tap:a,mtu=1': mtu=1: must be"),
            ("tap:a,primary=0+tap:b", "unknown option 'primary=0'"),
            ("tap:a,primary=0", "unknown option 'primary=0'"),
            ("tap:a+tap:b,primary=2", "primary=2: must be a number from 0 to 1, or one of tap:a,"),
            ("tap:a+tap:b,primary=tap:c", "or one of tap:a, tap:b"),
            ("tap:a+tap:b,primary=0,primary=0", "primary= is given twice"),
            ("tap:a+tap:b,on-member-loss=park", "must be destroy or degrade"),
            ("tap:a+tap:b,on-member-loss", "unknown option 'on-member-loss'"),
            ("tap:a,full=drop+tap:b", "write them after the last member"),
            ("tap:a,fd=5+tap:b", "fd= is not possible in a group"),
            ("tap:a+ntb:/x", "member 1, ntb:/x: the other end of a bridge is a group of as many"),
            ("ntb:ivshmem=/y+tap:a", "so all members are bridges, or none"),
        ] {
            let text = parse(address).unwrap_err().to_string();
            assert!(text.starts_with(&format!("endpoint '{address}': ")), "{text}");
            assert!(text.contains(words), "{address}: {text}");
        }
    }

    proptest! {
        // Goal: a group of generated members is split into these members, and no text makes the
        // parser panic.
        #[test]
        fn members_are_found(
            names in prop::collection::vec("[a-z][a-z0-9+]{0,6}", 2..=8),
            noise in "(tap|null)?[:+,=a-z0-9]{0,30}(\\+tap:)?[:+,=a-z0-9]{0,30}",
        ) {
            let _ = parse(&noise);
            let unique: std::collections::BTreeSet<_> = names.iter().collect();
            prop_assume!(unique.len() == names.len());
            let text: Vec<String> = names.iter().map(|name| format!("tap:{name}")).collect();
            let members: Vec<Endpoint> = text.iter().map(|one| parse(one).unwrap()).collect();
            prop_assert_eq!(group(&text.join("+")).members, members);
        }
    }
}
