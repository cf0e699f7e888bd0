//! Completion of addresses in a shell.

use super::option::ValueType;
use super::{KINDS, group, kind_of};

/// Returns possible continuations of a partial address with their meanings: kinds, options, and
/// values of an option. Names and paths are not completed.
pub fn complete(text: &str) -> Vec<(String, &'static str)> {
    let members = group::members_of(text);
    let member = members.as_ref().and_then(|members| members.last()).copied().unwrap_or(text);
    let Some((_, options)) = member.split_once(',') else {
        // The last member begins after a '+'.
        let start = text.rfind('+').map_or(0, |at| at + 1);
        let start = if text[start..].contains(':') { text.len() - member.len() } else { start };
        let (before, address) = text.split_at(start);
        let begun = KINDS.into_iter().filter(|kind| kind.prefix.starts_with(address));
        return begun.map(|kind| (format!("{before}{}", kind.prefix), kind.summary)).collect();
    };
    let Some((kind, _)) = kind_of(member) else { return Vec::new() };
    let last = options.rsplit(',').next().unwrap_or_default();
    let before = &text[..text.len() - last.len()];
    let of_group = members.iter().flat_map(|_| group::KIND.own_options());
    let mut found = Vec::new();
    for option in kind.options().chain(of_group) {
        let words = match option.value {
            ValueType::Flag => &[][..],
            ValueType::Switch { .. } => &["on", "off"],
            ValueType::Choice(words) => words,
            _ => &[],
        };
        if last.contains('=') {
            let all = words.iter().map(|word| format!("{}={word}", option.name));
            found.extend(all.map(|written| (written, option.help)));
        } else {
            let sign = if option.value.fits(Some("")) { "=" } else { "" };
            found.push((format!("{}{sign}", option.name), option.help));
        }
    }
    found.retain(|(written, _)| written.starts_with(last));
    found.iter().map(|(written, help)| (format!("{before}{written}"), *help)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        complete(text).into_iter().map(|(word, _)| word).collect()
    }

    // Goal: kinds are completed up to their target, also in groups, and options are completed with
    // their allowed values.
    #[test]
    fn addresses_are_completed() {
        for (text, wanted) in [
            ("ta", &["tap:"][..]),
            ("ntb:", &["ntb:", "ntb:ivshmem=", "ntb:vfio-user="]),
            ("v", &["vduse:", "vhost-user:", "virtio-user:"]),
            ("tap:a+nu", &["tap:a+null:"]),
            ("tap:a,mt", &["tap:a,mtu="]),
            ("tap:a,mtu=9000,per", &["tap:a,mtu=9000,persist"]),
            ("vhost-user:/x,packed=", &["vhost-user:/x,packed=on", "vhost-user:/x,packed=off"]),
            ("xdp:e,mode=n", &["xdp:e,mode=native"]),
            (
                "tap:a+tap:b,on-member-loss=de",
                &["tap:a+tap:b,on-member-loss=destroy", "tap:a+tap:b,on-member-loss=degrade"],
            ),
            ("tap:a", &[]),
            ("tap:a,mtu=9", &[]),
            ("foo:a,", &[]),
        ] {
            assert_eq!(words(text), wanted, "{text}");
        }
    }

    // Goal: completion offers every option of every kind.
    #[test]
    fn all_options_are_offered() {
        for kind in KINDS {
            let offered = words(&format!("{}x,", kind.prefix));
            for option in kind.options() {
                let name = format!("{}x,{}", kind.prefix, option.name);
                assert!(offered.iter().any(|word| word.trim_end_matches('=') == name), "{name}");
            }
        }
    }
}
