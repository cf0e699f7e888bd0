use mqnet_control_api::{ApiError, Class, Filter, Qdisc};

use super::*;

fn set(server: &Server, body: &Value) -> Result<Value, ApiError> {
    server.client().request("POST", "/v1/netdevs/vm0/tc", Some(body))
}

fn qdiscs(server: &Server) -> Vec<Qdisc> {
    serde_json::from_value(server.client().get("/v1/netdevs/vm0/qdiscs").unwrap()).unwrap()
}

// Goal: what is shown has the names and the shape of `tc -j`, and survives the way over the wire.
#[test]
fn lists_are_shaped_as_by_tc() {
    let folder = Folder::new("tc-shape");
    let server = server(&folder);
    let list = server.client().get("/v1/netdevs/vm0/qdiscs").unwrap();
    assert_eq!((&list[0]["root"], &list[0]["handle"]), (&json!(true), &json!("8001:")));
    assert_eq!(list[1]["options"]["memory_limit"], 33_554_432);
    assert_eq!((&list[1]["ecn_mark"], &list[1]["backlog"]), (&json!(0), &json!(3000)));
    assert_eq!(json!(qdiscs(&server)), list);
    let filters = server.client().get("/v1/netdevs/vm0/filters").unwrap();
    assert_eq!(filters[0]["options"]["keys"]["dst_port"], 80);
    assert_eq!(filters[0]["options"]["actions"][0]["queue_mapping"], 3);
    let typed: Vec<Filter> = serde_json::from_value(filters.clone()).unwrap();
    assert_eq!(json!(typed), filters);
    let classes = server.client().get("/v1/netdevs/vm0/classes").unwrap();
    let typed: Vec<Class> = serde_json::from_value(classes.clone()).unwrap();
    assert_eq!(json!(typed), classes);
}

// Goal: each refusal has the errno of tc, and words that make no sense are told from what a kernel
// would refuse by their field.
#[test]
fn refusals_have_the_errno_of_tc() {
    let folder = Folder::new("tc-refusals");
    let server = server(&folder);
    let root = |command: &str, kind: &str, options: &[&str]| {
        json!({
            "object": "qdisc", "command": command, "parent": "root", "kind": kind,
            "options": options,
        })
    };
    for (body, code, field) in [
        (root("add", "pfifo", &[]), Code::Exists, None),
        (root("replace", "foo", &[]), Code::NoEntry, None),
        (root("replace", "pfifo", &["limit", "x"]), Code::Invalid, Some("options")),
        (root("put", "pfifo", &[]), Code::Invalid, Some("command")),
        (json!({ "object": "qdisc" }), Code::Invalid, Some("command")),
        (json!({ "object": "chain", "command": "add" }), Code::Invalid, Some("object")),
        (json!({ "object": "qdisc", "command": "add", "speed": 1 }), Code::Invalid, Some("speed")),
    ] {
        let error = set(&server, &body).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (code, field), "{body}: {error}");
    }
    assert_eq!(qdiscs(&server).len(), 5, "refused, and yet something is different");
    set(&server, &root("delete", "", &[])).unwrap();
    let error = set(&server, &root("delete", "", &[])).unwrap_err();
    assert_eq!((error.code, error.field), (Code::NoEntry, None));
    set(&server, &root("add", "pfifo", &["limit", "7"])).unwrap();
    assert_eq!(qdiscs(&server)[0].options["limit"], 7);
}
