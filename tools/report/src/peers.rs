//! Peers of the comparison, with their versions.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Peer on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// Reason why the peer is not compared.
    pub(super) skipped: Option<String>,
}

/// Name, package and version commands of a peer.
struct Question {
    name: &'static str,
    package: &'static str,
    /// Commands that are tried in order: distributions use different names for the same program.
    commands: &'static [&'static str],
}

const QUESTIONS: [Question; 8] = [
    Question {
        name: "DPDK",
        package: "libdpdk-dev",
        commands: &["pkg-config --modversion libdpdk"],
    },
    Question { name: "vde2", package: "vde2", commands: &["vde_switch --version"] },
    Question {
        name: "OVS-DPDK",
        package: "openvswitch-switch-dpdk",
        commands: &["/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk --version"],
    },
    Question { name: "the kernel (veth, bridge)", package: "uname", commands: &["uname -r"] },
    Question { name: "socat", package: "socat", commands: &["socat -V"] },
    Question { name: "iperf3", package: "iperf3", commands: &["iperf3 --version"] },
    Question { name: "valgrind", package: "valgrind", commands: &["valgrind --version"] },
    Question { name: "gcc", package: "gcc", commands: &["gcc --version", "cc --version"] },
];

/// Reads the versions of all peers.
pub(super) fn versions() -> Vec<Peer> {
    let answer = |question: &Question| {
        let version = question.commands.iter().find_map(|command| version(command));
        let skipped = version.is_none().then(|| format!("{} is not installed", question.package));
        Peer { name: question.name.to_owned(), version, skipped }
    };
    QUESTIONS.iter().map(answer).collect()
}

fn version(command: &str) -> Option<String> {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next()?);
    let output = command.args(words).stdin(Stdio::null()).output().ok()?;
    // Some programs print the version on stderr.
    let text = [output.stdout, output.stderr].concat();
    number(&String::from_utf8_lossy(&text))
}

/// First word with two numbers separated by a dot, from its first digit on; `None` if there is
/// none.
fn number(text: &str) -> Option<String> {
    let words = text.split([' ', '\n', '\t', '(', ')', ',']);
    let bare = words.map(|word| word.trim_start_matches(|c: char| !c.is_ascii_digit()));
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let number = |part: Option<&str>| part.is_some_and(|p| p.starts_with(char::is_numeric));
        number(parts.next()) && number(parts.next())
    };
    bare.map(|word| word.trim_end_matches('.')).find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the version is found in recorded output of the programs.
    #[test]
    fn versions_are_found() {
        let outputs = [
            ("22.11.5\n", "22.11.5"),
            ("iperf 3.12 (cJSON 1.7.15)\n", "3.12"),
            ("valgrind-3.19.0\n", "3.19.0"),
            ("gcc (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022\n", "12.2.0-14"),
            (
                "socat by Gerhard Rieger and contributors - see www.dest-unreach.org\n\
              socat version 1.7.4.4 on 06 Nov 2022\n",
                "1.7.4.4",
            ),
            ("ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.2\n", "3.1.0"),
            ("VDE 2.3.2\nCopyright 2003\n", "2.3.2"),
        ];
        for (text, version) in outputs {
            assert_eq!(number(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(number("command not found"), None);
    }

    // Goal: a missing program has no version.
    #[test]
    fn a_missing_program_has_no_version() {
        assert_eq!(version("mqnet-no-such-program --version"), None);
    }
}
