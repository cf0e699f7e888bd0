use mqnet_control_api::{ApiError, Class, Filter, QdiscEntry};

use super::*;

fn set(server: &Server, body: &Value) -> Result<Value, ApiError> {
    server.client().request("POST", "/v1/netdevs/vm0/tc", Some(body))
}

fn qdiscs(server: &Server) -> Vec<QdiscEntry> {
    serde_json::from_value(server.client().get("/v1/netdevs/vm0/qdiscs").unwrap()).unwrap()
}

// Goal: lists have the names and the structure of `tc -j`, and deserializing them loses nothing.
#[test]
fn lists_are_shaped_as_by_tc() {
    let folder = Folder::new("tc-shape");
    let server = server(&folder);
    add_qdiscs(&server, "vm0");
    let leaf = json!({"object": "qdisc", "command": "add", "parent": "1:1", "kind": "fq_codel"});
    set(&server, &leaf).unwrap();
    let list = server.client().get("/v1/netdevs/vm0/qdiscs").unwrap();
    assert_eq!((&list[0]["root"], &list[0]["handle"]), (&json!(true), &json!("1:")));
    let leaf = list.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "fq_codel").unwrap();
    assert_eq!(leaf["options"]["memory_limit"], 33_554_432);
    assert_eq!((&leaf["ecn_mark"], &leaf["backlog"]), (&json!(0), &json!(0)));
    assert_eq!(json!(qdiscs(&server)), list);
    let filters = server.client().get("/v1/netdevs/vm0/filters").unwrap();
    let options = &filters[1]["options"];
    assert_eq!(options["keys"]["dst_port"], 80, "{filters}");
    assert_eq!(options["actions"][0]["queue_mapping"], 3, "{filters}");
    let typed: Vec<Filter> = serde_json::from_value(filters.clone()).unwrap();
    assert_eq!(json!(typed), filters);
    let classes = server.client().get("/v1/netdevs/vm0/classes").unwrap();
    let typed: Vec<Class> = serde_json::from_value(classes.clone()).unwrap();
    assert_eq!(json!(typed), classes);
}

// Goal: each error has the errno of tc. Errors in the syntax of a request name a field; errors that
// a kernel would report name none.
#[test]
fn refusals_have_the_errno_of_tc() {
    let folder = Folder::new("tc-refusals");
    let server = server(&folder);
    add_qdiscs(&server, "vm0");
    let before = qdiscs(&server).len();
    let root = |command: &str, kind: &str, options: &[&str]| {
        json!({
            "object": "qdisc", "command": command, "parent": "root", "kind": kind,
            "options": options,
        })
    };
    for (body, code, field) in [
        (root("add", "prio", &[]), Code::Exists, None),
        (root("replace", "foo", &[]), Code::NoEntry, None),
        (root("replace", "pfifo", &["limit", "x"]), Code::Invalid, Some("options")),
        (root("put", "pfifo", &[]), Code::Invalid, Some("command")),
        (json!({ "object": "qdisc" }), Code::Invalid, Some("command")),
        (json!({ "object": "chain", "command": "add" }), Code::Invalid, Some("object")),
        (json!({ "object": "qdisc", "command": "add", "speed": 1 }), Code::Invalid, Some("speed")),
    ] {
        let error = set(&server, &body).expect_err(&body.to_string());
        assert_eq!((error.code, error.field.as_deref()), (code, field), "{body}: {error}");
    }
    assert_eq!(qdiscs(&server).len(), before, "refused, and yet something is different");
    let delete = json!({"object": "qdisc", "command": "delete", "parent": "root"});
    set(&server, &delete).unwrap();
    let error = set(&server, &delete).unwrap_err();
    assert_eq!((error.code, error.field), (Code::NoEntry, None));
    set(&server, &root("add", "pfifo", &["limit", "7"])).unwrap();
    assert_eq!(qdiscs(&server)[0].options["limit"], 7);
}
