//! Declaration of the settings of configuration files, for documents.

/// Setting of a configuration file.
struct Setting {
    /// Section, without brackets.
    section: &'static str,
    key: &'static str,
    /// Type and range of the value.
    values: &'static str,
    /// Value of an absent setting.
    default: &'static str,
    meaning: &'static str,
}

/// Sections with their purposes.
const SECTIONS: [(&str, &str); 4] = [
    ("link.NAME", "A link. Files of `conf.d` may have these sections only."),
    ("daemon", "Sockets. Under systemd the unit `mqnet.socket` replaces the first three keys."),
    ("limits", "Limits for all peers and clients."),
    ("policy", "Endpoints that clients may name in requests; links of the files are not limited."),
];

const fn setting(
    section: &'static str,
    key: &'static str,
    values: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { section, key, values, default, meaning }
}

/// Default of the lists of `[policy]`.
const ANY: &str = "everything that the daemon's user may use";

const SETTINGS: [Setting; 18] = [
    setting("link.NAME", "a", "[endpoint address](endpoints.md)", "required", "first endpoint"),
    setting("link.NAME", "b", "[endpoint address](endpoints.md)", "required", "second endpoint"),
    setting(
        "link.NAME",
        "channels",
        "1 to 64",
        "the number of an endpoint or of its peer, otherwise 1",
        "number of channels",
    ),
    setting(
        "link.NAME",
        "workers",
        "1 to 1024",
        "one for each channel, at most one for each CPU",
        "number of worker threads",
    ),
    setting(
        "link.NAME",
        "cpus",
        "`auto` (distinct cores), `float` (not pinned), or a list such as `0-3,8`",
        "`auto`",
        "CPUs of the workers",
    ),
    setting(
        "link.NAME",
        "poll-window",
        "0 to 1000000 (microseconds)",
        "`1000`",
        "time for which a queue is polled before its worker sleeps",
    ),
    setting(
        "daemon",
        "control-socket",
        "absolute path, or `@NAME` for an abstract socket",
        "`/run/mqnet/ctl.sock`",
        "control socket; commands find another one only with `--control` or `MQNET_CONTROL`",
    ),
    setting("daemon", "socket-mode", "octal permissions", "`0660`", "permissions of the socket"),
    setting(
        "daemon",
        "socket-owner",
        "`USER` or `USER:GROUP`, names or numbers",
        "the daemon's user and group",
        "owner of the socket",
    ),
    setting(
        "daemon",
        "metrics",
        "address and port, such as `127.0.0.1:9101`",
        "off",
        "Prometheus metrics over TCP; the control socket always has them",
    ),
    setting("limits", "link-memory", SIZE, "`1T`", "memory that one VMM may share"),
    setting("limits", "memory", SIZE, "`64T`", "memory that all peers together may share"),
    setting("limits", "links", MANY, "`1024`", "number of links"),
    setting(
        "limits",
        "connections-per-second",
        MANY,
        "`50`",
        "connections to each socket of a link, with a burst of twice as many",
    ),
    setting(
        "limits",
        "log-lines-per-second",
        MANY,
        "`2`",
        "log lines of one kind; a summary follows",
    ),
    setting("policy", "kinds", "list of endpoint kinds", "all", "kinds that requests may name"),
    setting(
        "policy",
        "paths",
        "list of absolute paths",
        ANY,
        "sockets and files of endpoints, or folders that contain them",
    ),
    setting(
        "policy",
        "namespaces",
        "list of absolute paths",
        ANY,
        "files of `netns=`, or folders that contain them; `[]` allows only the daemon's namespace",
    ),
];

const SIZE: &str = "size, such as `64G`";
const MANY: &str = "1 to 1000000";

/// Default of a number or size; `None` if the key is not declared.
pub fn default_of(section: &str, key: &str) -> Option<&'static str> {
    let row = SETTINGS.iter().find(|row| row.section == section && row.key == key)?;
    Some(row.default.trim_matches('`'))
}

/// Contents of `book/src/reference/configuration.md`.
pub fn configuration_page() -> String {
    let mut out = HEAD.to_owned();
    for (section, purpose) in SECTIONS {
        out += &format!("\n## `[{section}]`\n\n{purpose}\n\n");
        out += "| key | values | default | meaning |\n|---|---|---|---|\n";
        for row in SETTINGS.iter().filter(|row| row.section == section) {
            let Setting { key, values, default, meaning, .. } = row;
            out += &format!("| `{key}` | {values} | {default} | {meaning} |\n");
        }
    }
    out
}

const HEAD: &str = "\
# Configuration

<!-- Generated from runtime/address/src/config/settings.rs by `cargo xtask generate`. -->

`mqnet daemon` reads `/etc/mqnet/mqnet.toml` (`--config FILE`) and the `*.toml` files of the folder
`conf.d` next to it, in the order of their names. `mqnet config check` prints each problem with
file, line and column. `mqnet reload` applies the differences; links that did not change continue.
`packaging/mqnet.toml` is a commented example.
";

#[cfg(test)]
mod tests {
    use super::super::{daemon, limits, links, policy};
    use super::*;
    use crate::{CHANNELS, POLL_WINDOW, POLL_WINDOW_DEFAULT, WORKERS};

    // Goal: the declared keys are those that the files may have, and the example has each of them.
    #[test]
    fn every_key_is_declared() {
        let accepted = [
            ("link.NAME", &links::KEYS[..]),
            ("daemon", &daemon::KEYS),
            ("limits", &limits::KEYS),
            ("policy", &policy::KEYS),
        ];
        let example = include_str!("../../../../packaging/mqnet.toml");
        for (section, keys) in accepted {
            let declared = SETTINGS.iter().filter(|row| row.section == section);
            let declared: Vec<_> = declared.map(|row| row.key).collect();
            assert_eq!(declared, keys, "{section}");
            for key in keys {
                assert!(example.contains(&format!("\n#{key} = ")), "{key}: not in the example");
            }
        }
    }

    // Goal: ranges and defaults of a link are those of its check.
    #[test]
    fn ranges_are_current() {
        for (key, range) in
            [("channels", &CHANNELS), ("workers", &WORKERS), ("poll-window", &POLL_WINDOW)]
        {
            let row = SETTINGS.iter().find(|row| row.key == key).unwrap();
            let expected = format!("{} to {}", range.start(), range.end());
            assert!(row.values.starts_with(&expected), "{key}: {}", row.values);
        }
        let default = default_of("link.NAME", "poll-window");
        assert_eq!(default, Some(POLL_WINDOW_DEFAULT.to_string().as_str()));
    }
}
