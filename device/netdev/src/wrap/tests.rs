use std::collections::BTreeSet;
use std::sync::Arc;

use mqnet_wire::Layer;

use super::capture::{self, CaptureConfig, CaptureDirection, CaptureTap};
use super::{flow_samples, merge, offload};
use crate::probe::{METHODS, hidden_by_rx, hidden_by_tx};
use crate::{Offloads, Rx, Tx};

fn tap() -> CaptureTap {
    let config = CaptureConfig {
        channel: 3,
        direction: CaptureDirection::Inbound,
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
        ("flow_samples", |rx| {
            flow_samples::wrap_rx(rx, flow_samples::FlowSamples::new(1), Arc::new(|_| None))
        }),
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
    for owning in [true, false] {
        for (name, wrap) in rx {
            let methods = hidden_by_rx(owning, wrap).unwrap();
            hidden.extend(methods.into_iter().map(|method| (name, owning, method)));
        }
        for (name, wrap) in tx {
            let methods = hidden_by_tx(owning, wrap).unwrap();
            hidden.extend(methods.into_iter().map(|method| (name, owning, method)));
        }
        assert_eq!(hidden_by_rx(owning, |rx| rx).unwrap(), [""; 0]);
        assert_eq!(hidden_by_tx(owning, |tx| tx).unwrap(), [""; 0]);
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
