//! Requests generated from fuzzer input: documented paths with names, parameters, headers and
//! bodies from tables, or arbitrary bytes.

use std::sync::LazyLock;

/// Source of numbers from the fuzzer input. Returns zeros at the end of the input.
pub(super) struct Choices<'a>(pub(super) &'a [u8]);

impl<'a> Choices<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, most: u8) -> &'a [u8] {
        let len = usize::from(self.byte() % most).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// Takes the next byte. True if the byte is a multiple of `of` and not zero.
    fn rarely(&mut self, of: u8) -> bool {
        let byte = self.byte();
        byte != 0 && byte.is_multiple_of(of)
    }

    fn pick<T: Copy>(&mut self, table: &[T]) -> T {
        table[usize::from(self.byte()) % table.len()]
    }
}

/// Documented method and path.
struct Operation {
    method: &'static str,
    path: String,
    statuses: Vec<u16>,
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for (path, item) in &crate::openapi().paths.paths {
        let methods = [
            ("GET", &item.get),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("POST", &item.post),
            ("DELETE", &item.delete),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let statuses = operation.responses.responses.keys();
            let statuses = statuses.filter_map(|status| status.parse().ok());
            let statuses = statuses.filter(|&status| status != 500).collect();
            all.push(Operation { method, path: path.clone(), statuses });
        }
    }
    all
});

/// Returns the byte that selects an operation.
#[cfg(test)]
pub(super) fn number_of(method: &str, path: &str) -> u8 {
    let is_it = |operation: &Operation| operation.method == method && operation.path == path;
    OPERATIONS.iter().position(is_it).unwrap() as u8
}

/// Allowed statuses for an undocumented path or method.
const UNDOCUMENTED: [u16; 3] = [400, 404, 405];

const METHODS: [&str; 8] = ["GET", "PUT", "PATCH", "POST", "DELETE", "HEAD", "OPTIONS", "PROPFIND"];

/// Names in paths, percent-encoded.
const NAMES: [&str; 20] = [
    "vm0",
    "ntb0",
    "vm1",
    "ntb1",
    "vm0",
    "ntb1",
    "new",
    "no",
    "",
    "%76m0",
    "a%25b",
    "%ff",
    "%zz",
    "%f",
    "..",
    "vm0%2frings",
    "%00",
    "%0a",
    "%C3%A9%20?",
    "a-name-that-is-longer-than-any-netdev-may-have-%7f-0123456789",
];

/// Names that make a request line invalid.
const BROKEN_NAMES: [&str; 4] = ["vm 0", "vm0\u{e9}", "vm0#x", "vm0\u{1}"];

const QUERIES: [&str; 24] = [
    "after=0",
    "after=2&wait=0",
    "after=2&wait=1",
    "after=2",
    "after=99",
    "after=18446744073709551615",
    "after=18446744073709551616",
    "after=-1",
    "after=1&after=2",
    "wait=26",
    "wait=%32",
    "aftr=1",
    "scope=queue",
    "scope=device",
    "scope=all",
    "scope",
    "channel=0",
    "channel=9&drops=true",
    "drops=yes",
    "snaplen=1",
    "snaplen=0",
    "snaplen=4294967296",
    "%",
    "&&=&",
];

/// Bodies, each with the suffix of its path; each `@` stands for one of [`VALUES`].
const BODIES: [(&str, &str); 26] = [
    ("/channels", r#"{"combined":@}"#),
    ("/rings", r#"{"rx":@,"tx":@}"#),
    ("/rings", r#"{"rx":@}"#),
    ("/mtu", r#"{"mtu":@}"#),
    ("/coalesce", r#"{"rx-usecs":@,"tx-frames":@}"#),
    ("/coalesce", r#"{"rx-usecs":@}"#),
    ("/rss", r#"{"equal":@}"#),
    ("/rss", r#"{"weights":[@,@]}"#),
    ("/rss", r#"{"default":@}"#),
    ("/rss", r#"{"indirection-table":[@,@,@]}"#),
    ("/rules", r#"{"add":{"location":@,"flow":"ip4","queue":@}}"#),
    (
        "/rules",
        r#"{"add":{"location":@,"flow":"udp4","queue":1,
            "matches":[{"field":"dst-port","value":@,"mask":@}]}}"#,
    ),
    ("/rules", r#"{"delete":@}"#),
    ("/features", r#"{"features":{"tx-checksum-ip-generic":@}}"#),
    ("/features", r#"{"features":{@:true}}"#),
    ("/priv-flags", r#"{"flags":{"busy-poll":@}}"#),
    (
        "/tc",
        r#"{"object":"qdisc","command":"replace","parent":@,"kind":"pfifo","options":["limit",@]}"#,
    ),
    ("/tc", r#"{"object":"qdisc","command":"add","parent":"root","handle":"1:","kind":"htb"}"#),
    ("/tc", r#"{"object":"class","command":"add","parent":@,"handle":@,"kind":@}"#),
    ("/tc", r#"{"object":"filter","command":"add","parent":@,"prio":@,"protocol":@,"kind":@}"#),
    ("/tc", r#"{"object":@,"command":@,"parent":"root"}"#),
    ("/tc", r#"{"object":"qdisc","command":"delete","parent":"root"}"#),
    ("/xdp", r#"{"object":@,"section":@,"mode":"generic"}"#),
    ("/map", r#"{"map":@,"verb":"get","key":@}"#),
    ("/{link}", r#"{"a":"tap:new","b":"null:","channels":@}"#),
    ("/{link}", r#"{"a":@,"b":@,"workers":@,"cpus":@}"#),
];

/// Values in bodies: JSON, and text that resembles JSON.
const VALUES: [&str; 44] = [
    "0",
    "1",
    "2",
    "3",
    "8",
    "9",
    "64",
    "68",
    "128",
    "1024",
    "1500",
    "65521",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "-1",
    "1.5",
    "1e999",
    "true",
    "false",
    "null",
    "[]",
    "[1]",
    "{}",
    "{\"x\":1}",
    "\"\"",
    "\"root\"",
    "\"1:\"",
    "\"1:1\"",
    "\"ffff:ffff\"",
    "\"80\"",
    "\"0xffff\"",
    "\"pfifo\"",
    "\"htb\"",
    "\"tap:x\"",
    "\"null:\"",
    "\"qdisc\"",
    "\"delete\"",
    "\"\\u0000\\n\\r\\u001b\"",
    "\"\\ud800\"",
    "nonsense",
    "1,\"combined\":2",
];

const TYPES: [&str; 6] = [
    "application/json",
    "application/json",
    "Application/JSON ; charset=utf-8",
    "text/plain",
    "",
    "application/json;;;",
];

/// Largest number of additional headers. The HTTP library rejects more than 100 headers (431).
const HEADERS_MAX: usize = 3;

const HEADERS: [&str; 12] = [
    "mqnet-netns: 0\r\n",
    "mqnet-netns: 4026531840\r\n",
    "mqnet-netns: 18446744073709551616\r\n",
    "mqnet-netns: x\r\n",
    "mqnet-netns: \r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "Accept: text/plain\r\n",
    "Accept-Encoding: gzip\r\n",
    "X-Long: 0123456789012345678901234567890123456789\r\n",
    "Range: bytes=0-1\r\n",
];

/// Header lines that make a request invalid or ambiguous.
const BROKEN_HEADERS: [&str; 8] = [
    "Content-Length: 5\r\n",
    "Content-Length: x\r\n",
    "Transfer-Encoding: gzip\r\n",
    "no colon\r\n",
    ": empty\r\n",
    " folded\r\n",
    "Upgrade: websocket\r\nConnection: upgrade\r\n",
    "X: \u{1}\r\n",
];

/// Request and the rules for its answer.
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// True if the server must answer the request.
    pub(super) is_complete: bool,
    /// True if the answer has no body (method HEAD).
    pub(super) is_head: bool,
    /// True if the answer is read after the answers to all other requests.
    pub(super) is_deferred: bool,
    statuses: &'static [u16],
    path: &'static str,
}

impl Request {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        if choices.rarely(13) {
            return Self::of(choices.bytes(120).to_vec());
        }
        let operation = &OPERATIONS[usize::from(choices.byte()) % OPERATIONS.len()];
        let method = match choices.rarely(7) {
            true => choices.pick(&METHODS),
            false => operation.method,
        };
        let mut is_complete = true;
        let name = match choices.rarely(31) {
            true => {
                is_complete = false;
                choices.pick(&BROKEN_NAMES)
            }
            false => choices.pick(&NAMES),
        };
        let mut target = operation.path.replace("{dev}", name).replace("{link}", name);
        if choices.rarely(if operation.path.contains("events") { 2 } else { 5 }) {
            target = format!("{target}?{}", choices.pick(&QUERIES));
        }
        if choices.rarely(29) {
            target = choices.pick(&["*", "/", "/v2/links", "/v1", "http://x/v9", "//"]).into();
        }
        let version = if choices.rarely(17) { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut head = format!("{method} {target} {version}\r\nHost: x\r\n");
        for _ in 0..HEADERS_MAX {
            if choices.rarely(4) {
                head += choices.pick(&HEADERS);
            }
        }
        if choices.rarely(37) {
            is_complete = false;
            head += choices.pick(&BROKEN_HEADERS);
        }
        let mut bytes;
        let has_body = !["GET", "HEAD", "DELETE"].contains(&method) || choices.rarely(9);
        if has_body {
            let body = body(choices, &operation.path);
            let kind = choices.pick(&TYPES);
            head += &format!("Content-Type: {kind}\r\n");
            let is_chunked = version == "HTTP/1.1" && choices.rarely(6);
            if is_chunked {
                bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
                for part in body.chunks(usize::from(choices.byte() % 16) + 1) {
                    bytes.extend(format!("{:x}\r\n", part.len()).bytes());
                    bytes.extend(part);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            } else {
                bytes = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
                bytes.extend(body);
            }
        } else {
            bytes = (head + "\r\n").into_bytes();
        }
        if choices.rarely(41) {
            is_complete = false;
            bytes.truncate(usize::from(choices.byte()) * 2);
        }
        let is_deferred = choices.rarely(8);
        let wanted = if method == "HEAD" { "GET" } else { method };
        let own = |other: &&Operation| other.path == operation.path && other.method == wanted;
        let fixed = operation.path.split('{').next().unwrap_or_default();
        let own = OPERATIONS.iter().find(own).filter(|_| target.starts_with(fixed));
        let statuses = own.map_or(&UNDOCUMENTED[..], |own| &own.statuses);
        let is_head = method == "HEAD";
        Self { bytes, is_complete, is_head, is_deferred, statuses, path: &operation.path }
    }

    fn of(bytes: Vec<u8>) -> Self {
        let (is_complete, is_head, is_deferred) = (false, false, false);
        Self { bytes, is_complete, is_head, is_deferred, statuses: &[], path: "" }
    }

    pub(super) fn allows(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    pub(super) fn is_metrics(&self) -> bool {
        self.path == "/metrics" || !self.is_complete
    }

    pub(super) fn text(&self) -> String {
        format!("{:?}", String::from_utf8_lossy(&self.bytes))
    }
}

fn body(choices: &mut Choices<'_>, path: &str) -> Vec<u8> {
    if choices.rarely(11) {
        return choices.bytes(64).to_vec();
    }
    let own: Vec<&str> =
        BODIES.iter().filter(|(end, _)| path.ends_with(end)).map(|(_, body)| *body).collect();
    let template = match own.is_empty() || choices.rarely(10) {
        true => choices.pick(&BODIES).1,
        false => choices.pick(&own),
    };
    let mut text = String::new();
    for (at, part) in template.split('@').enumerate() {
        if at > 0 {
            text += choices.pick(&VALUES);
        }
        text += part;
    }
    if choices.rarely(19) {
        let len = usize::from(choices.byte()) % (text.len() + 1);
        text.truncate(len);
    }
    text.into_bytes()
}
