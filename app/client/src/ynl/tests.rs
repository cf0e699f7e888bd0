//! Requests to two processes with four netdevs; comparison of the notation with Python itself.

mod notation;

use mqnet_control_api::{ApiError, Code};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{YnlArgs, run};
use crate::api::Api;

/// Process with two netdevs, with the ifindexes `base` (up) and `base + 1` (down).
struct Process {
    base: u32,
}

impl Process {
    fn netdev(&self, n: u32) -> Value {
        json!({
            "name": format!("dev{}", self.base + n), "ifindex": self.base + n,
            "function": "ntb:/run/x.sock", "link": "l", "partner": "p", "carrier": n == 0,
        })
    }

    fn device(&self, name: &str, what: &str) -> Result<Value, ApiError> {
        let ifindex: u32 = name.trim_start_matches("dev").parse().unwrap();
        let function = "ntb:/run/x.sock";
        let napi = 8192 + 2 * ifindex;
        let up = ifindex == self.base;
        Ok(match what {
            "queues" | "napis" if !up => json!([]),
            "queues" => json!([
                {"id": 0, "ifindex": ifindex, "type": "rx", "napi-id": napi, "function": function},
                {"id": 0, "ifindex": ifindex, "type": "tx", "function": function},
            ]),
            "napis" => {
                let one = |id: u32| {
                    json!({
                        "id": id, "ifindex": ifindex, "pid": 77, "defer-hard-irqs": 0,
                        "gro-flush-timeout": 0, "irq-suspend-timeout": 0, "threaded": "enabled",
                        "function": function,
                    })
                };
                json!([one(napi + 1), one(napi)])
            }
            "qstats?scope=device" if up => {
                json!([{"ifindex": ifindex, "rx-packets": 5, "rx-bytes": u64::MAX, "tx-stop": 0}])
            }
            "qstats?scope=queue" if up => json!([
                {"ifindex": ifindex, "queue-type": "rx", "queue-id": 0, "rx-packets": 5},
            ]),
            _ => return Err(ApiError::new(Code::NotSupported, "no statistics")),
        })
    }
}

impl Api for Process {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        Ok(match path {
            "/v1/netdevs" => json!([self.netdev(1), self.netdev(0)]),
            "/v1/page-pools" => {
                json!([{"id": self.base, "ifindex": self.base, "napi-id": 1, "inflight": 3,
                    "inflight-mem": 12288}])
            }
            "/v1/page-pool-stats" => {
                json!([{"id": self.base, "ifindex": self.base, "alloc-fast": 9, "alloc-slow": 1}])
            }
            path => {
                let rest = path.strip_prefix("/v1/netdevs/").unwrap();
                let (name, what) = rest.split_once('/').unwrap();
                return self.device(name, what);
            }
        })
    }

    fn patch(&self, path: &str, _: &Value) -> Result<Value, ApiError> {
        panic!("{path}: nothing is ever changed");
    }
}

fn call(args: &YnlArgs) -> (String, String, u8) {
    let all = || -> Result<Vec<Box<dyn Api>>, ApiError> {
        Ok(vec![Box::new(Process { base: 30 }), Box::new(Process { base: 10 })])
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run(args, &all, &mut out, &mut err);
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), exit)
}

fn args(mode: &str, operation: &str, json: &str) -> YnlArgs {
    let operation = Some(operation.to_owned());
    let (dump, do_) = if mode == "dump" { (operation, None) } else { (None, operation) };
    let json = (!json.is_empty()).then(|| json.to_owned());
    YnlArgs { dump, do_, json, output_json: false, family: "netdev".to_owned() }
}

// Goal: each operation, with and without a filter, prints the same as the kernel's tool.
#[test]
fn answers() {
    let queue = |id: u32| {
        format!(
            "{{'function': 'ntb:/run/x.sock',\n  'id': 0,\n  'ifindex': {id},\n  'napi-id': {},\n  \
             'type': 'rx'}},\n {{'function': 'ntb:/run/x.sock', 'id': 0, 'ifindex': {id}, \
             'type': 'tx'}}",
            8192 + 2 * id
        )
    };
    let queues = format!("[{},\n {}]\n", queue(10), queue(30));
    for (mode, operation, json, want) in [
        ("dump", "queue-get", "", queues.as_str()),
        ("dump", "queue-get", r#"{"ifindex": 31}"#, "[]\n"),
        ("dump", "queue-get", r#"{"ifindex": "10"}"#, &format!("[{}]\n", queue(10))),
        (
            "do",
            "queue-get",
            r#"{"ifindex": 30, "type": "tx", "id": 0}"#,
            "{'function': 'ntb:/run/x.sock', 'id': 0, 'ifindex': 30, 'type': 'tx'}\n",
        ),
        (
            "do",
            "napi-get",
            r#"{"id": 8252}"#,
            "{'defer-hard-irqs': 0,\n 'function': 'ntb:/run/x.sock',\n 'gro-flush-timeout': 0,\n \
             'id': 8252,\n 'ifindex': 30,\n 'irq-suspend-timeout': 0,\n 'pid': 77,\n 'threaded': \
             'enabled'}\n",
        ),
        (
            "dump",
            "qstats-get",
            "",
            "[{'ifindex': 10,\n  'rx-bytes': 18446744073709551615,\n  'rx-packets': 5,\n  \
             'tx-stop': 0},\n {'ifindex': 30,\n  'rx-bytes': 18446744073709551615,\n  \
             'rx-packets': 5,\n  'tx-stop': 0}]\n",
        ),
        (
            "dump",
            "qstats-get",
            r#"{"ifindex": 10, "scope": "queue"}"#,
            "[{'ifindex': 10, 'queue-id': 0, 'queue-type': 'rx', 'rx-packets': 5}]\n",
        ),
        (
            "do",
            "page-pool-get",
            r#"{"id": 10}"#,
            "{'id': 10, 'ifindex': 10, 'inflight': 3, 'inflight-mem': 12288, 'napi-id': 1}\n",
        ),
        (
            "do",
            "page-pool-stats-get",
            r#"{"info": {"id": 30}}"#,
            "{'alloc-fast': 9, 'alloc-slow': 1, 'info': {'id': 30, 'ifindex': 30}}\n",
        ),
    ] {
        let got = call(&args(mode, operation, json));
        assert_eq!(got, (want.to_owned(), String::new(), 0), "{mode} {operation} {json}");
    }
}

// Goal: NAPIs are listed by ascending ifindex, in the server's order for each netdev; a dump of
// pools ignores its attributes and lists every pool.
#[test]
fn order_of_dumps() {
    let mut request = args("dump", "napi-get", "");
    request.output_json = true;
    let (out, _, exit) = call(&request);
    let napis: Vec<Value> = serde_json::from_str(&out).unwrap();
    let ids: Vec<_> = napis.iter().map(|napi| napi["id"].as_u64().unwrap()).collect();
    assert_eq!((ids, exit), (vec![8213, 8212, 8253, 8252], 0));
    let (out, ..) = call(&args("dump", "page-pool-get", r#"{"id": 1}"#));
    assert_eq!(out.matches("'inflight'").count(), 2, "a dump of pools has no filter: {out}");
}

// Goal: --output-json prints Python's JSON, in the order in which the kernel sends attributes.
#[test]
fn output_json() {
    let mut request = args("do", "queue-get", r#"{"ifindex": 30, "type": 0, "id": 0}"#);
    request.output_json = true;
    let want = "{\"id\": 0, \"type\": \"rx\", \"ifindex\": 30, \"napi-id\": 8252, \"function\": \
                \"ntb:/run/x.sock\"}\n";
    assert_eq!(call(&request), (want.to_owned(), String::new(), 0));
    let mut request = args("dump", "page-pool-stats-get", "");
    request.output_json = true;
    let want = "{\"info\": {\"id\": 30, \"ifindex\": 30}, \"alloc-fast\": 9, \"alloc-slow\": 1}";
    assert!(call(&request).0.contains(want));
    assert_eq!(super::dumps(&json!("a\u{e9}\u{1f600}\""), &[]), r#""a\u00e9\ud83d\ude00\"""#);
}

fn range(min: u32, max: u32, kind: &str, path: &str) -> String {
    format!(
        "integer out of range: Numerical result out of range {{'policy': {{'min-value': {min}, \
         'max-value': {max}, 'type': '{kind}'}}, 'bad-attr': '{path}'}}"
    )
}

fn refused(requests: &[(&str, &str, &str, &str)]) {
    for (mode, operation, json, want) in requests {
        let got = call(&args(mode, operation, json));
        let want = (format!("Netlink error: {want}\n"), String::new(), 1);
        assert_eq!(got, want, "{mode} {operation} {json}");
    }
}

// Goal: refusals match the errors of a kernel for the same requests, in the tool's form.
#[test]
fn refusals() {
    let zero = range(1, u32::MAX, "u32", ".ifindex");
    let bad_type = range(0, 1, "u32", ".type");
    refused(&[
        ("do", "queue-get", "", "Invalid argument {'miss-type': 'id'}"),
        ("do", "queue-get", r#"{"id":0,"type":"rx"}"#, "Invalid argument {'miss-type': 'ifindex'}"),
        ("do", "queue-get", r#"{"ifindex":10,"type":"rx","id":9}"#, "Invalid argument"),
        ("do", "queue-get", r#"{"ifindex":11,"type":"rx","id":0}"#, "No such file or directory"),
        ("do", "queue-get", r#"{"ifindex":9,"type":"rx","id":0}"#, "No such device"),
        ("do", "queue-get", r#"{"ifindex":10,"type":7,"id":0}"#, bad_type.as_str()),
        ("do", "queue-get", r#"{"ifindex":0,"type":"rx","id":0}"#, &zero),
        ("dump", "queue-get", r#"{"ifindex":9}"#, "No such device"),
        ("dump", "queue-get", r#"{"ifindex":0}"#, &zero),
        (
            "dump",
            "queue-get",
            r#"{"id":0}"#,
            "Unsupported attribute: Invalid argument {'bad-attr': '.id'}",
        ),
        (
            "dump",
            "queue-get",
            r#"{"type":"rx"}"#,
            "Unknown attribute type: Invalid argument {'bad-attr': '.type'}",
        ),
        ("dump", "napi-get", r#"{"ifindex":9}"#, "No such device"),
        (
            "dump",
            "napi-get",
            r#"{"id":1}"#,
            "Unknown attribute type: Invalid argument {'bad-attr': '.id'}",
        ),
        ("do", "napi-get", "", "Invalid argument {'miss-type': 'id'}"),
        ("do", "napi-get", r#"{"id":0}"#, "No such file or directory {'bad-attr': '.id'}"),
        (
            "do",
            "napi-get",
            r#"{"ifindex":10}"#,
            "Unsupported attribute: Invalid argument {'bad-attr': '.ifindex'}",
        ),
        ("do", "qstats-get", "", "Operation not supported"),
        ("dump", "qstats-get", r#"{"ifindex":9}"#, "No such device {'bad-attr': '.ifindex'}"),
        ("dump", "qstats-get", r#"{"ifindex":0}"#, &zero),
        (
            "dump",
            "qstats-get",
            r#"{"ifindex":11}"#,
            "Operation not supported {'bad-attr': '.ifindex'}",
        ),
    ]);
}

// Goal: refusals of page pool requests match the errors of a kernel, in the tool's form.
#[test]
fn pool_refusals() {
    let zero_pool = range(1, u32::MAX, "uint", ".id");
    refused(&[
        ("do", "page-pool-get", "{}", "Invalid argument {'miss-type': 'id'}"),
        ("do", "page-pool-get", r#"{"id":0}"#, &zero_pool),
        ("do", "page-pool-get", r#"{"id":999}"#, "No such file or directory"),
        ("do", "page-pool-stats-get", "", "Invalid argument {'miss-type': 'info'}"),
        (
            "do",
            "page-pool-stats-get",
            r#"{"info":{}}"#,
            "Invalid argument {'miss-type': 1, 'miss-nest': 20}",
        ),
        ("do", "page-pool-stats-get", r#"{"info":{"id":999}}"#, "No such file or directory"),
        (
            "do",
            "page-pool-stats-get",
            r#"{"info":{"id":10,"ifindex":10}}"#,
            "selecting by ifindex not supported: Invalid argument {'bad-attr': '.info.ifindex'}",
        ),
        (
            "dump",
            "page-pool-stats-get",
            r#"{"info":{"id":10}}"#,
            "Unsupported attribute: Invalid argument {'bad-attr': '.info.id'}",
        ),
    ]);
}

// Goal: an invalid request fails with one line that names the option and the allowed values, and
// exit code 2.
#[test]
fn nonsense() {
    for (mode, operation, json, words) in [
        ("dump", "queue", "", "--dump: no operation 'queue' (allowed: queue-get, napi-get"),
        ("do", "bind-rx", "", "--do: no operation 'bind-rx'"),
        ("dump", "queue-get", "{", "--json: not a JSON object"),
        ("dump", "queue-get", "[]", "--json: not a JSON object"),
        ("dump", "queue-get", r#"{"x":1}"#, "no attribute 'x' (allowed: ifindex)"),
        ("do", "queue-get", r#"{"id":-1}"#, "--json: id is -1 (allowed: 0..=4294967295)"),
        ("do", "queue-get", r#"{"type":"up"}"#, "--json: type is \"up\" (allowed: rx, tx)"),
        ("dump", "qstats-get", r#"{"scope":"x"}"#, "scope is \"x\" (allowed: queue)"),
        ("do", "page-pool-stats-get", r#"{"info":1}"#, "info is 1 (allowed: an object"),
        ("do", "page-pool-stats-get", r#"{"info":{"x":1}}"#, "info has no attribute 'x'"),
    ] {
        let (out, err, exit) = call(&args(mode, operation, json));
        assert_eq!((out.as_str(), exit), ("", 2), "{mode} {operation} {json}");
        assert!(err.starts_with("mqnet ynl: ") && err.contains(words), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

// Goal: without an mqnet process, a dump is an empty list; an error of the search for processes is
// printed on stderr with exit code 1.
#[test]
fn dump_without_process_is_empty() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let none = || -> Result<Vec<Box<dyn Api>>, ApiError> { Ok(Vec::new()) };
    assert_eq!(run(&args("dump", "napi-get", ""), &none, &mut out, &mut err), 0);
    assert_eq!(out, b"[]\n");
    let denied = || -> Result<Vec<Box<dyn Api>>, ApiError> {
        Err(ApiError::new(Code::Permission, "/run/mqnet: permission denied"))
    };
    assert_eq!(run(&args("dump", "napi-get", ""), &denied, &mut out, &mut err), 1);
    assert_eq!(err, b"mqnet ynl: /run/mqnet: permission denied\n");
}

fn request_json() -> impl Strategy<Value = String> {
    let name = proptest::sample::select(vec!["id", "ifindex", "type", "scope", "info", "x"]);
    let scalar = prop_oneof![
        any::<i64>().prop_map(Value::from),
        (0..40_u32).prop_map(Value::from),
        "rx|tx|queue|7|".prop_map(Value::from),
        Just(Value::Null),
    ];
    let inner = proptest::collection::vec((name.clone(), scalar.clone()), 0..3)
        .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>());
    let value = prop_oneof![3 => scalar, 1 => inner];
    prop_oneof![
        4 => proptest::collection::vec((name, value), 0..4).prop_map(|fields| {
            let fields = fields.into_iter().map(|(k, v)| (k.to_owned(), v));
            fields.collect::<Value>().to_string()
        }),
        1 => ".{0,12}",
    ]
}

proptest! {
    // Goal: no request causes a panic; a request with exit code 2 prints only on stderr, any other
    // request only on stdout.
    #[test]
    fn arbitrary_requests(
        mode in "do|dump",
        operation in "(queue|napi|qstats|page-pool|page-pool-stats)-get|.{0,9}",
        json in request_json(),
    ) {
        let (out, err, exit) = call(&args(&mode, &operation, &json));
        prop_assert!(exit <= 2);
        prop_assert_eq!(out.is_empty(), exit == 2);
        prop_assert_eq!(err.is_empty(), exit != 2);
    }
}
