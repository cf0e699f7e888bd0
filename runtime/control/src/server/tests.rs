mod capture;
mod malformed;
mod metrics;
mod tc;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mqnet_control_api::{Code, NetdevRequest, ObjectName, Outcome, Request, SetChannels};
use serde_json::{Value, json};

use super::*;
use crate::client::segment;
use crate::testing::{Folder, Server, TestHost, wait_for};

fn server(folder: &Folder) -> Server {
    Server::start(&folder.options("ctl.sock"), TestHost::new())
}

/// Returns a valid request body for a path that accepts changes; `None` for other paths.
fn body(path: &str) -> Option<Value> {
    Some(match path.rsplit('/').next()? {
        "channels" => json!({"combined": 2}),
        "rings" => json!({"rx": 128}),
        "mtu" => json!({"mtu": 9000}),
        "coalesce" => json!({"rx-usecs": 5}),
        "rss" => json!({"equal": 2}),
        "rules" => json!({"add": {"location": 3, "flow": "ip4", "queue": 1}}),
        "features" => json!({"features": {"tx-checksum-ip-generic": false}}),
        "priv-flags" => json!({"flags": {"full-page-rx": true}}),
        "tc" => json!({
            "object": "qdisc", "command": "replace", "parent": "root", "kind": "pfifo",
            "options": ["limit", "5"],
        }),
        "{link}" => json!({"a": "tap:new", "b": "null:"}),
        _ => return None,
    })
}

/// Lists all documented methods and paths.
fn operations() -> Vec<(&'static str, String)> {
    let document = openapi();
    let mut all = Vec::new();
    for (path, item) in &document.paths.paths {
        for (method, operation) in [
            ("GET", &item.get),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("POST", &item.post),
            ("DELETE", &item.delete),
        ] {
            if operation.is_some() {
                all.push((method, path.clone()));
            }
        }
    }
    all
}

/// Suffixes of the paths that null functions reject, because they have no rings, no choice of
/// queues and no private flags.
const REFUSED: [&str; 4] = ["/rings", "/rss", "/rules", "/priv-flags"];

/// Adds a qdisc with classes and a filter, so that no list is empty.
fn add_qdiscs(server: &Server, dev: &str) {
    let path = format!("/v1/netdevs/{dev}/tc");
    for body in [
        json!({"object": "qdisc", "command": "add", "parent": "root", "handle": "1:",
               "kind": "prio"}),
        json!({"object": "filter", "command": "add", "parent": "1:", "protocol": "ip", "prio": 1,
               "kind": "flower", "options": ["ip_proto", "tcp", "dst_port", "80", "classid", "1:1",
               "action", "skbedit", "queue_mapping", "3"]}),
    ] {
        server.client().request("POST", &path, Some(&body)).unwrap();
    }
}

// Goal: every documented path works over a real socket. Reads return data, the first change has an
// effect, the same change again has none, and a device without the feature returns `NotSupported`.
#[test]
fn every_path_works() {
    let folder = Folder::new("every");
    let operations = operations();
    assert_eq!(operations.len(), 40, "{operations:?}");
    for (method, path) in &operations {
        if path.ends_with("/capture") || path == "/metrics" {
            continue; // The answers are not JSON and have tests of their own.
        }
        if *method == "POST" && path.contains("/xdp") {
            continue; // The request needs a program; `mqnet xdp` is tested with real ones.
        }
        let server = server(&folder);
        if *method == "GET" {
            add_qdiscs(&server, "vm1");
        }
        let link = if *method == "PUT" { "new" } else { "vm1" };
        let real = path.replace("{dev}", "vm1").replace("{link}", link);
        let wanted = body(path).filter(|_| *method != "GET" && *method != "DELETE");
        let answer = server.client().request(method, &real, wanted.as_ref());
        if REFUSED.iter().any(|end| path.ends_with(end)) {
            assert_eq!(answer.unwrap_err().code, Code::NotSupported, "{method} {path}");
            continue;
        }
        let answer = answer.unwrap_or_else(|e| panic!("{method} {path}: {e:?}"));
        if *method == "GET" {
            let is_empty = answer.as_array().is_some_and(Vec::is_empty);
            assert!(!answer.is_null() && !is_empty, "{method} {path}: {answer}");
        } else {
            let outcome: Outcome = serde_json::from_value(answer).unwrap();
            assert_eq!(outcome.changed, path != "/v1/reload", "{method} {path}");
            if let (true, Some(body)) = (*method == "PATCH" || path.ends_with("/tc"), &wanted) {
                let again = server.client().request(method, &real, Some(body)).unwrap();
                assert_eq!(again["changed"], false, "{method} {path} again");
            }
        }
    }
}

// Goal: a name with special characters is preserved, and an unknown name is contained in the error.
#[test]
fn names_are_percent_encoded() {
    let folder = Folder::new("names");
    let host = TestHost::new().named("a%b é?", None);
    let server = Server::start(&folder.options("ctl.sock"), host);
    let path = format!("/v1/netdevs/{}/channels", segment("a%b é?"));
    assert_eq!(server.client().get(&path).unwrap()["combined"], 4);
    let e = server.client().get("/v1/netdevs/a%25b/channels").unwrap_err();
    assert_eq!(e.code, Code::NoDevice);
    assert!(e.message.contains("'a%b'"), "{e}");
}

// Goal: a change that waits for its peer delays no other request, and is answered when the change
// is complete.
#[test]
fn pending_change_blocks_no_request() {
    let folder = Folder::new("pending");
    let server = server(&folder);
    server.host.lock().unwrap().hold(true);
    std::thread::scope(|scope| {
        let client = server.client();
        let change = scope.spawn(move || {
            client.request("PATCH", "/v1/netdevs/vm0/channels", Some(&json!({"combined": 1})))
        });
        let client = server.client().with_timeout(Duration::from_secs(5));
        wait_for("the change is under way", || {
            client.get("/v1/netdevs/vm0/channels").unwrap()["wanted"] == 1
        });
        let start = Instant::now();
        for _ in 0..20 {
            client.get("/v1/links").unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(!change.is_finished());
        server.host.lock().unwrap().hold(false);
        assert_eq!(change.join().unwrap().unwrap()["changed"], true);
    });
}

// Goal: a change that never completes is answered after 15 s with "still under way".
#[tokio::test(start_paused = true)]
async fn a_change_has_a_limit() {
    let mut host = TestHost::new();
    host.hold(true);
    let host = TestHost::serve(Arc::new(Mutex::new(host)));
    let start = tokio::time::Instant::now();
    let name = ObjectName { name: "vm0".to_owned(), netns: None };
    let want = NetdevRequest::SetChannels(SetChannels { combined: 1 });
    let answer = change::change(&host, Request::Netdev(name, want)).await;
    assert_eq!(start.elapsed().as_secs(), 15);
    let text = format!("{:?}", answer.err().unwrap());
    assert!(text.contains("504") && text.contains("still under way after 15 s"), "{text}");
}

// Goal: a long poll ends when an event occurs, and not before.
#[test]
fn events_are_waited_for() {
    let folder = Folder::new("events");
    let server = server(&folder);
    let client = server.client();
    let ask = |path: &str| -> Events { serde_json::from_value(client.get(path).unwrap()).unwrap() };
    let all = ask("/v1/events");
    assert_eq!((all.events.len(), all.last), (4, 4));
    // A number issued by another process is answered immediately, with the number from which to
    // continue.
    assert_eq!(ask("/v1/events?after=99"), Events { events: Vec::new(), last: 4 });
    assert_eq!(ask("/v1/events?after=4&wait=0"), Events { events: Vec::new(), last: 4 });
    std::thread::scope(|scope| {
        let polled = scope.spawn(|| ask("/v1/events?after=4&wait=15"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!polled.is_finished());
        server.client().request("DELETE", "/v1/links/vm1", None).unwrap();
        let polled = polled.join().unwrap();
        assert_eq!((polled.events.len(), polled.last), (1, 5));
        assert_eq!(polled.events[0].event, "link-del");
    });
}

// Goal: the document is OpenAPI 3.1, lists the errors of every operation, and contains every schema
// that it references.
#[test]
fn the_document_is_complete() {
    let document = serde_json::to_value(openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for (method, path) in operations() {
        let operation = &document["paths"][&path][method.to_lowercase()];
        for status in ["200", "400", "404", "405", "422", "500"] {
            assert!(operation["responses"][status].is_object(), "{method} {path}: {status}");
        }
        let has_body = operation["requestBody"].is_object();
        assert_eq!(operation["responses"]["413"].is_object(), has_body, "{method} {path}");
    }
    let link = &document["components"]["schemas"]["LinkSpec"]["properties"];
    for (side, kind) in ["a", "b"].into_iter().zip(["tap:NAME", "xdp:IFNAME"]) {
        assert!(link[side]["description"].as_str().unwrap().contains(kind), "{link}");
    }
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "no schema {name}");
    }
}

// Goal: a server on an abstract socket serves the user of its process.
#[test]
fn an_abstract_socket_serves() {
    let name = format!("@mqnet-test-{}", std::process::id());
    let address = Some(name.parse().unwrap());
    let options = crate::socket::SocketOptions { address, ..Default::default() };
    let server = Server::start(&options, TestHost::new());
    assert_eq!(server.client().get("/v1/instance").unwrap()["mode"], "daemon");
}

// Goal: more silent connections than the limit do not delay a client; the oldest connections are
// closed.
#[test]
fn silent_connections_delay_no_request() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    let folder = Folder::new("silent");
    let server = server(&folder);
    let silent = |_| UnixStream::connect(&server.socket).unwrap();
    let mut all: Vec<UnixStream> = (0..300).map(silent).collect();
    let begin = std::time::Instant::now();
    assert_eq!(server.client().get("/v1/links").unwrap().as_array().unwrap().len(), 2);
    // The bound is much smaller than the sum of the timeouts of all silent connections.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    all[0].set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    assert_eq!(all[0].read(&mut [0]).unwrap(), 0);
}

// Goal: changes of one link are executed one after the other, and no change is rejected because of
// another.
#[test]
fn changes_of_a_link_queue_up() {
    let folder = Folder::new("queue");
    let server = server(&folder);
    server.host.lock().unwrap().hold(true);
    let set = |combined: u16| {
        let body = serde_json::json!({ "combined": combined });
        server.client().request("PATCH", "/v1/netdevs/vm0/channels", Some(&body))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (1..4).map(|n| scope.spawn(move || set(n))).collect();
        std::thread::sleep(Duration::from_millis(200));
        assert!(all.iter().all(|thread| !thread.is_finished()));
        server.host.lock().unwrap().hold(false);
        for thread in all {
            assert_eq!(thread.join().unwrap().unwrap()["changed"], true);
        }
    });
}
