use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use mqnet_control_api::ApiError;

use super::*;

/// Sends one request as bytes and returns the whole answer.
fn raw(socket: &str, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    // Ignore errors: a server that rejects the request early closes the connection during the
    // write.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn refused(socket: &str, line: &str, body: &str, status: u16, words: &str) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answer = raw(socket, &request);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {body:.80}: {answer}");
    let json = answer.split_once("\r\n\r\n").unwrap().1;
    let error: ApiError = serde_json::from_str(json).unwrap();
    assert!(error.message.contains(words), "{line} {body:.80}: {error}");
    assert!(!error.message.contains(char::is_control), "{error}");
}

const CHANNELS: &str = "PATCH /v1/netdevs/vm0/channels";

// Goal: every malformed request gets a 4xx status and one line of JSON that explains the error, and
// changes nothing.
#[test]
fn malformed_requests_are_refused() {
    let folder = Folder::new("malformed");
    let server = server(&folder);
    let state = || {
        let of = |path| server.client().get(path).unwrap();
        let names: Vec<Value> = of("/v1/netdevs").as_array().unwrap().clone();
        (names, of("/v1/netdevs/vm0/channels"), of("/v1/events?wait=0")["last"].clone())
    };
    let before = state();
    let large = format!("{{\"combined\":{}1}}", " ".repeat(1_100_000));
    let deep = format!("{{\"combined\":{}", "[".repeat(10_000));
    for (line, body, status, words) in [
        (CHANNELS, "", 400, "must be a JSON object"),
        (CHANNELS, "{", 400, "EOF"),
        (CHANNELS, &deep, 400, "expected u16"),
        (CHANNELS, "[2]", 400, "must be a JSON object"),
        (CHANNELS, "{nonsense", 400, "key must be a string"),
        (CHANNELS, r#"{"combined":"2"}"#, 400, "combined: invalid type: string"),
        (CHANNELS, r#"{"combined":2,"rx":1}"#, 400, "unknown field `rx`, expected `combined`"),
        (CHANNELS, "{}", 400, "missing field `combined`"),
        (CHANNELS, r#"{"combined":0}"#, 400, "no RX or TX channel"),
        (CHANNELS, r#"{"combined":65536}"#, 400, "combined: invalid value"),
        (CHANNELS, r#"{"combined":2} x"#, 400, "after the JSON object"),
        (CHANNELS, &large, 413, "at most 1048576 bytes"),
        ("PATCH /v1/netdevs/no/channels", r#"{"combined":2}"#, 404, "'no'"),
        ("PATCH /v1/netdevs/vm0/rings", r#"{"rx":64}"#, 422, "vm0: "),
        ("PATCH /v1/netdevs/ntb0/priv-flags", r#"{"flags":{"x":true}}"#, 422, "no private flags"),
        ("PATCH /v1/netdevs/vm0/rss", "{}", 422, "this device has no"),
        ("PATCH /v1/netdevs/vm0/features", r#"{"features":{"x":true}}"#, 400, "bit name not found"),
        ("PUT /v1/links/new", r#"{"a":"x:","b":"null:"}"#, 400, "a: "),
        ("PUT /v1/links/vm0", r#"{"a":"tap:x","b":"null:"}"#, 409, "link 'vm0' exists already"),
        ("PUT /v1/links/%20", r#"{"a":"tap:x","b":"null:"}"#, 400, "link"),
        ("DELETE /v1/links/no", "", 404, "'no'"),
        ("DELETE /v1/links", "", 405, "DELETE is not allowed for /v1/links"),
        ("PROPFIND /v1/links", "", 405, "PROPFIND"),
        ("GET /", "", 404, "openapi.json"),
        ("GET /v2/links", "", 404, "v1"),
        ("GET /v1/links/", "", 404, "no path"),
        ("GET /v1/netdevs/%zz/rings", "", 400, "two hexadecimal digits"),
        ("GET /v1/netdevs/%f", "", 400, "two hexadecimal digits"),
        ("GET /v1/netdevs/%ff%fe/rings", "", 400, "UTF-8"),
        ("GET /v1/netdevs/a%0a%1bb/rings", "", 404, r"a\n\u{1b}b"),
        (CHANNELS, r#"{"a\u0000b":1}"#, 400, r"unknown field `a\u{0}b`"),
        ("GET /v1/links?all=1", "", 400, "takes no parameters"),
        ("GET /v1/events?after=-1", "", 400, "after=NUMBER"),
        ("GET /v1/events?wait=26", "", 400, "0..=25"),
        ("GET /v1/events?aftr=1", "", 400, "unknown field `aftr`"),
        ("GET /v1/netdevs/vm0/qstats?scope=all", "", 400, "scope=device or scope=queue"),
        ("GET /v1/netdevs/vm0/capture?snaplen=0", "", 400, "snaplen=1..=262144"),
        ("GET /v1/netdevs/vm0/capture?channel=9", "", 404, "there are 4"),
        ("GET /v1/netdevs/vm0/capture?drops=yes", "", 400, "true or false"),
    ] {
        refused(&server.socket, line, body, status, words);
    }
    let no_type = "PATCH /v1/netdevs/vm0/channels HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                   Content-Length: 14\r\n\r\n{\"combined\":2}";
    let answer = raw(&server.socket, no_type);
    assert!(answer.starts_with("HTTP/1.1 415 ") && answer.contains("application/json"), "{answer}");
    let answer = raw(&server.socket, "nonsense\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(state(), before);
}

// Goal: clients that send garbage or incomplete requests do not stop the server: a later request
// succeeds.
#[test]
fn rubbish_does_not_stop_the_server() {
    let folder = Folder::new("rubbish");
    let server = server(&folder);
    let mut kept = Vec::new();
    for n in 0..60_u8 {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        let bytes: Vec<u8> = (0..200).map(|i: u8| i.wrapping_mul(n)).collect();
        let _ = stream.write_all(if n % 2 == 0 { &bytes } else { b"PATCH /v1/links HTTP/1.1\r\n" });
        kept.push(stream);
    }
    assert_eq!(server.client().get("/v1/links").unwrap().as_array().unwrap().len(), 2);
}
