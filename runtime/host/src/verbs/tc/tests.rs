//! Tests of the conversions from requests to commands, and from the tree to lists.

use mqnet_qdisc::{Fifo, FqCodel, Mqprio, Prio, Tbf};

use super::*;

fn request(object: TcObject) -> TcRequest {
    TcRequest {
        object,
        command: TcVerb::Add,
        parent: None,
        handle: None,
        kind: None,
        prio: None,
        protocol: None,
        options: Vec::new(),
    }
}

fn info(handle: u32, attach: Attach, params: Params) -> QdiscInfo {
    QdiscInfo { handle: Handle(handle), attach, params, refcnt: 1, totals: Totals::default() }
}

// Goal: a request without a parent refers to the position of the object with its handle, as in tc.
#[test]
fn a_handle_is_a_place() {
    let fifo = Params::Pfifo(Fifo { limit: 5 });
    let below = Attach::Parent(Handle(0x1_0001));
    let there = [info(0x1_0000, Attach::Root, Params::Mq), info(0x10_0000, below, fifo)];
    let want = TcRequest { handle: Some("10:".into()), ..request(TcObject::Qdisc) };
    let command = command(&want, &there).unwrap();
    assert_eq!((command.attach, command.handle), (below, Some(Handle(0x10_0000))));
    let want = TcRequest { handle: Some("11:".into()), ..want };
    let error = super::command(&want, &there).unwrap_err();
    assert_eq!((error.code, error.field), (Code::NoEntry, None));
    let error = super::command(&request(TcObject::Qdisc), &there).unwrap_err();
    assert_eq!(error.message, "Handle cannot be zero");
    let want = TcRequest { handle: Some("2:3".into()), ..request(TcObject::Class) };
    let class = super::command(&want, &there).unwrap();
    assert_eq!(class.attach, Attach::Parent(Handle(0x2_0000)));
    let filter = super::command(&request(TcObject::Filter), &there).unwrap();
    assert_eq!((filter.attach, filter.prio, filter.protocol), (Attach::Root, None, None));
}

// Goal: an invalid handle, class, number or protocol is rejected with the name of its field.
#[test]
fn wrong_fields_are_named() {
    type Change = fn(&mut TcRequest);
    let cases: [(&str, TcObject, Change); 6] = [
        ("parent", TcObject::Qdisc, |r| r.parent = Some("zz".into())),
        ("parent", TcObject::Qdisc, |r| r.parent = Some("0:0".into())),
        ("handle", TcObject::Qdisc, |r| r.handle = Some("12345:".into())),
        ("handle", TcObject::Class, |r| r.handle = Some("1:2:3".into())),
        ("handle", TcObject::Filter, |r| r.handle = Some("1:2".into())),
        ("protocol", TcObject::Filter, |r| r.protocol = Some("foo".into())),
    ];
    for (field, object, change) in cases {
        let mut want = TcRequest { parent: Some("root".into()), ..request(object) };
        change(&mut want);
        let error = super::command(&want, &[]).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::Invalid, Some(field)));
        assert!(error.message.starts_with(&format!("{field}: '")), "{error}");
    }
}

// Goal: the mask of a mark becomes an option before all other options.
#[test]
fn the_mask_of_a_mark_is_a_word() {
    let options = vec!["classid".to_owned(), "1:2".to_owned()];
    let handle = Some("0x8/0xff".into());
    let want = TcRequest { handle, options, ..request(TcObject::Filter) };
    let command = command(&want, &[]).unwrap();
    assert_eq!(command.handle, Some(Handle(8)));
    assert_eq!(command.options, ["mask", "0xff", "classid", "1:2"]);
}

// Goal: keys have the JSON types of `tc -j`.
#[test]
fn keys_have_types() {
    for (name, text, wanted) in [
        ("dst_port", "80", json!({ "dst_port": 80 })),
        ("src_port", "1-9", json!({ "src_port": { "start": 1, "end": 9 } })),
        ("ip_proto", "06", json!({ "ip_proto": "06" })),
        ("eth_type", "8100", json!({ "eth_type": "8100" })),
        ("ip_tos", "0xb8/fc", json!({ "ip_tos": 184, "ip_tos_mask": "fc" })),
        ("ip_tos", "0x8", json!({ "ip_tos": 8 })),
        ("dst_ip", "10.0.0.0/8", json!({ "dst_ip": "10.0.0.0/8" })),
    ] {
        let mut keys = BTreeMap::new();
        key(&mut keys, name, text);
        assert_eq!(json!(keys), wanted);
    }
}

// Goal: only an error in the usage of tc names the field `options`, and each errno of the tree maps
// to its code.
#[test]
fn refusals_keep_their_kind() {
    for (errno, code) in [
        (Errno::Exists, Code::Exists),
        (Errno::NotFound, Code::NoEntry),
        (Errno::Invalid, Code::Invalid),
        (Errno::NotSupported, Code::NotSupported),
        (Errno::Range, Code::Range),
    ] {
        for usage in [true, false] {
            let error = refused(TcError { errno, message: "why".into(), usage });
            assert_eq!((error.code, error.message.as_str()), (code, "why"));
            assert_eq!(error.field.as_deref(), usage.then_some("options"));
        }
    }
}

// Goal: the limit of tbf is shown as latency of the slower bucket. A limit below each bucket, or
// without a rate, is shown in bytes.
#[test]
fn tbf_is_shown_as_by_tc() {
    let tbf = Tbf { rate: 125_000, burst: 10_240, peakrate: 0, mtu: 0, limit: 16_490 };
    let shown = |tbf: &Tbf| json!(options(Params::Tbf(*tbf).options()));
    assert_eq!(shown(&tbf), json!({ "rate": 125_000, "burst": 10_240, "lat": 50_000 }));
    let small = shown(&Tbf { limit: 3000, ..tbf });
    assert_eq!(small, json!({ "rate": 125_000, "burst": 10_240, "limit": 3000 }));
    let peak =
        Tbf { rate: 12_500_000, burst: 1 << 20, peakrate: 25_000_000, mtu: 2000, ..small_of(tbf) };
    assert_eq!(shown(&peak)["lat"], 40);
    assert_eq!(shown(&Tbf { rate: 0, ..tbf })["limit"], 16_490);
}

fn small_of(tbf: Tbf) -> Tbf {
    Tbf { limit: 3000, ..tbf }
}

// Goal: only a root discipline that all channels share has a reference count, and clsact has the
// parent that tc shows.
#[test]
fn places_are_shown_as_by_tc() {
    let root =
        |params, refcnt| qdisc(&QdiscInfo { refcnt, ..info(0x1_0000, Attach::Root, params) });
    assert_eq!(root(Params::Prio(Prio::default()), 5).refcnt, Some(5));
    assert_eq!(root(Params::Mq, 5).refcnt, None);
    let mqprio = Mqprio { num_tc: 1, map: [0; 16], queues: vec![(1, 0)] };
    assert_eq!(root(Params::Mqprio(mqprio), 5).refcnt, None);
    let clsact = qdisc(&info(0xffff_0000, Attach::Egress, Params::Clsact));
    assert_eq!((clsact.parent.as_deref(), clsact.root), (Some("ffff:fff1"), false));
    let leaf = Attach::Parent(Handle(0x1_000a));
    let leaf = qdisc(&info(0, leaf, Params::FqCodel(FqCodel::default())));
    assert_eq!((leaf.handle.as_str(), leaf.parent.as_deref()), ("0:", Some("1:a")));
}
