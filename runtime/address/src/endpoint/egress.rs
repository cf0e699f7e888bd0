//! `qdisc=WORDS`, `full=stop|drop` and `rx-locality=off|learn`, which every kind of endpoint takes.

use mqnet_engine::{EgressConfig, Full};
use mqnet_qdisc::Tree;
use mqnet_wire::Layer;

/// For kinds that have no other options.
pub(super) const ALLOWED: &str = "qdisc= full= rx-locality=";

/// Takes these options out of the others.
pub(super) fn split(options: &str) -> Result<(EgressConfig, String), String> {
    let mut egress = EgressConfig::default();
    let mut rest = Vec::new();
    for option in options.split(',').filter(|_| !options.is_empty()) {
        match option.split_once('=') {
            Some(("qdisc", words)) => {
                if egress.qdisc.is_some() {
                    return Err("qdisc= is there twice".to_owned());
                }
                egress.qdisc = Some(checked(words)?);
            }
            Some(("full", "stop")) => egress.full = Full::Stop,
            Some(("full", "drop")) => egress.full = Full::Drop,
            Some(("full", other)) => return Err(format!("full={other}: must be stop or drop")),
            Some(("rx-locality", "off")) => egress.learn = false,
            Some(("rx-locality", "learn")) => egress.learn = true,
            Some(("rx-locality", other)) => {
                return Err(format!("rx-locality={other}: must be off or learn"));
            }
            _ => rest.push(option),
        }
    }
    Ok((egress, rest.join(",")))
}

/// The words of a discipline as they are said to tc, one blank between two.
fn checked(words: &str) -> Result<String, String> {
    let text = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        let like = "must be the words that tc takes, like qdisc=fq_codel limit 100";
        return Err(format!("qdisc=: {like}"));
    }
    match Tree::new(&text, Layer::Ethernet) {
        Ok(_) => Ok(text),
        Err(e) => Err(format!("qdisc={words}: {e} (words with a comma are not possible here)")),
    }
}
