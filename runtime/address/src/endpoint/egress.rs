//! Options of all kinds for the egress of frames.

use mqnet_engine::{EgressConfig, Full};
use mqnet_qdisc::Tree;
use mqnet_wire::Layer;

use super::option::{Custom, OptionDecl, ValueType, option};
use super::options::Options;
use super::value::Value;

pub(super) const OPTIONS: &[OptionDecl] = &[
    option(
        "qdisc",
        ValueType::Custom(&Custom {
            syntax: "WORDS",
            allowed: "arguments of tc qdisc",
            example: "fq_codel limit 100",
            read: |text| {
                // Separate the words by one blank, as in a tc command.
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                (!words.is_empty()).then_some(Value::Text(words))
            },
        }),
        "queueing discipline of each channel for frames that leave here, in tc's syntax; arguments \
         with a comma are not possible",
    )
    .once(),
    option(
        "full",
        ValueType::Choice(&["stop", "drop"]),
        "a full sink stops the source, or drops frames",
    )
    .or("stop"),
    option(
        "rx-locality",
        ValueType::Choice(&["off", "learn"]),
        "learn: flows arrive at the queue on which the peer behind this endpoint sends; the other \
         endpoint is a TAP, an xdp: interface with a table of its own, or a group of these",
    )
    .or("off"),
];

pub(super) fn read(options: &Options) -> Result<EgressConfig, String> {
    let qdisc: Option<String> = options.optional("qdisc");
    if let Some(words) = &qdisc {
        Tree::new(words, Layer::Ethernet).map_err(|e| {
            format!("qdisc={words}: {e} (arguments with a comma are not possible here)")
        })?;
    }
    Ok(EgressConfig {
        qdisc,
        full: options.pick("full", [Full::Stop, Full::Drop]).unwrap_or_default(),
        learn: options.pick("rx-locality", [false, true]).unwrap_or_default(),
    })
}
