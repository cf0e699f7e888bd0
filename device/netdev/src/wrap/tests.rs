use std::collections::BTreeSet;
use std::sync::Arc;

use mqnet_wire::Layer;

use super::capture::{self, CaptureConfig, CaptureTap, Direction};
use super::{merge, offload, sights};
use crate::probe::{METHODS, hidden_by_rx, hidden_by_tx};
use crate::{Offloads, Rx, Tx};

fn tap() -> CaptureTap {
    let config = CaptureConfig {
        channel: 3,
        direction: Direction::Inbound,
        drops_only: false,
        snaplen: 64,
        ring_bytes: 4096,
        clock: || 0,
    };
    capture::tap(config).0
}

type WrapRx = fn(Rx) -> Rx;
type WrapTx = fn(Tx) -> Tx;

// Goal: no wrapper hides a method of the queue with a default body.
#[test]
fn wrappers_forward_every_default_method() {
    let rx: [(&str, WrapRx); 2] = [
        ("capture", |rx| capture::wrap_rx(rx, tap())),
        ("sights", |rx| sights::wrap_rx(rx, sights::Sights::new(1), Arc::new(|_| None))),
    ];
    let tx: [(&str, WrapTx); 3] = [
        ("capture", |tx| capture::wrap_tx(tx, tap(), Arc::default())),
        ("merge", |tx| {
            let how =
                merge::Merging { layer: Layer::Ethernet, takes: Offloads::ALL, frame_max: 9000 };
            merge::wrap_tx(tx, how, Arc::default())
        }),
        ("offload", |tx| {
            let how =
                offload::Finish { layer: Layer::Ethernet, takes: Offloads::NONE, frame_max: 9000 };
            offload::wrap_tx(tx, how, Arc::default(), 9000).0
        }),
    ];
    let mut hidden = Vec::new();
    for brings in [true, false] {
        for (name, wrap) in rx {
            let methods = hidden_by_rx(brings, wrap).unwrap();
            hidden.extend(methods.into_iter().map(|method| (name, brings, method)));
        }
        for (name, wrap) in tx {
            let methods = hidden_by_tx(brings, wrap).unwrap();
            hidden.extend(methods.into_iter().map(|method| (name, brings, method)));
        }
        assert_eq!(hidden_by_rx(brings, |rx| rx).unwrap(), [""; 0]);
        assert_eq!(hidden_by_tx(brings, |tx| tx).unwrap(), [""; 0]);
    }
    assert!(hidden.is_empty(), "{hidden:?}");
}

// Goal: the probe overrides every method of the queue traits that has a default body.
#[test]
fn the_probe_overrides_every_default_method() {
    let source = include_str!("../queue.rs");
    let traits = source.split("\npub enum Rx {").next().unwrap();
    let methods = traits
        .split("\n    fn ")
        .skip(1)
        .filter(|text| text.find('{').unwrap_or(usize::MAX) < text.find(';').unwrap_or(usize::MAX));
    let names: BTreeSet<_> = methods.map(|text| text.split('(').next().unwrap()).collect();
    assert_eq!(names, METHODS.into_iter().collect());
}
