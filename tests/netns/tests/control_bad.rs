//! Invalid input to the program: it changes nothing and causes an error of one line that names the
//! field, with exit code 2 or an HTTP status 4xx.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mqnet_testkit::{Control, Need, Running, World, captured, has, until};
use serde_json::Value;

/// Sends raw bytes to the control socket; returns status and body of the response, or status 0
/// without a response.
fn send(control: &Control, bytes: &[u8]) -> (u16, String) {
    let mut socket = UnixStream::connect(control.runtime("ctl.sock")).expect("the socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    socket.write_all(bytes).expect("writing a request");
    let mut answer = Vec::new();
    // The read fails for an incomplete request, because the server responds only after its own
    // timeout.
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |parts| parts.1);
    (status, body.to_owned())
}

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let n = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {n}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn daemon(world: &World, control: &Control) -> Running {
    let netns = world.a.name();
    let text = format!("[link.one]\na = 'tap:one,netns={netns}'\nb = 'null:'\nchannels = 2\n");
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    daemon
}

/// All state that a request could have changed.
fn state(control: &Control) -> Vec<Value> {
    let mut show = control.json(&["show", "--json"]);
    for link in show.as_array_mut().into_iter().flatten() {
        link["workers"] = Value::Null;
        link["instance"]["uptime-ms"] = Value::Null;
    }
    let mut all = vec![show];
    for flag in ["-l", "-c", "-k", "-x"] {
        all.push(control.json(&["ethtool", "--json", flag, "one"]));
    }
    all
}

// Goal: invalid arguments are refused with exit code 2 before any action, with an error of one line
// that names the field and the allowed values.
#[test]
fn invalid_arguments_are_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let daemon = daemon(&world, &control);
    let before = state(&control);
    for (line, words) in [
        ("link tap:a", "<B>"),
        ("link x y", "no kind; addresses are tap:NAME"),
        ("link vhost:a null:", "unknown kind 'vhost'"),
        ("link tap: null:", "is not a valid interface name"),
        ("link tap:a,mtu=12 null:", "mtu=12: must be a number from 68 to"),
        ("link tap:a,mac=1 null:", "mac="),
        ("link tap:a,address=1.2.3.4 null:", "address=1.2.3.4"),
        ("link tap:a,x=1 null:", "allowed: netns= mac= mtu= address= persist io= fd="),
        ("link tap:a,fd=99 null:", "fd=99"),
        ("link tap:a ntb:/x,window=1", "from 4K to 1G"),
        ("link tap:a ntb:/x,window=64K -c 64", "use window="),
        ("link tap:a null: -c 0", "1..=64"),
        ("link tap:a null: --cpus 9-3", "--cpus"),
        ("link tap:a null: --poll-window 1000001", "--poll-window"),
        ("link tap:a null: --control-mode 9", "--control-mode"),
        ("link tap:a null: --control-socket @", "control socket"),
        ("add two tap:two null: -c 65", "channels: 65 is not a number from 1 to 64"),
        ("add two tap:two nul", "no kind"),
        ("set one channels 65", "channels: 65 is not a number from 1 to 64"),
        ("set one channels 0", "channels: 0 is not a number from 1 to 64"),
        ("set one mtu 67", "mtu: 67 is not a number from 68 to"),
        ("set one colour 1", "channels, mtu, rx-ring, tx-ring"),
        ("capture one --channel 7", "channel: 7 is not in use, there are 2"),
        ("ynl --dump queue-get --json {", "--json"),
        ("ynl --dump nothing-get", "queue-get"),
        ("config check /no/such/file", "/no/such/file: No such file"),
        ("daemon -f /no/such/file", "/no/such/file: No such file"),
        ("demo --plot /no/such/file.svg", "--plot /no/such/file.svg: No such file"),
        ("link null: null: --cpus 1023", "may not run on CPU 1023"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let output = control.say(&args);
        // A channel that does not exist is a runtime error with exit code 1.
        let code = if line.starts_with("capture") { 1 } else { 2 };
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
        assert!(output.err.contains(words), "{line}: {output:?}");
        let no_usage = output.err.lines().filter(|line| !line.is_empty()).count();
        assert!(output.err.starts_with("error: ") || no_usage == 1, "{line}: {output:?}");
        assert!(!output.err.contains("panicked"), "{line}: {output:?}");
    }
    for args in [["link", "tap:a", "null:"].as_slice(), &["daemon"]] {
        let mut command = control.command(args);
        let output = captured(command.env("MQNET_STORES", "fast"));
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.contains("allowed: auto, cached, streamed"), "{output:?}");
    }
    assert_eq!(state(&control), before);
    daemon.stop();
}

// Goal: invalid requests get 4xx and a JSON body that names the error, and change nothing. Bytes
// that are not HTTP get status 400 or no response.
#[test]
fn invalid_requests_are_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let daemon = daemon(&world, &control);
    let before = state(&control);
    for (method, path, body, status, words) in [
        ("PATCH", "/v1/netdevs/one/channels", "{", 400, "EOF"),
        ("PATCH", "/v1/netdevs/one/channels", "[]", 400, "must be a JSON object"),
        ("PATCH", "/v1/netdevs/one/channels", r#"{"combined":"x"}"#, 400, "combined"),
        ("PATCH", "/v1/netdevs/one/channels", r#"{"combined":-1}"#, 400, "combined"),
        ("PATCH", "/v1/netdevs/one/channels", r#"{"combined":65}"#, 400, "combined"),
        ("PATCH", "/v1/netdevs/one/channels", r#"{"combined":2,"x":1}"#, 400, "`x`"),
        ("PATCH", "/v1/netdevs/one/mtu", r#"{"mtu":5}"#, 400, "from 68 to"),
        ("PATCH", "/v1/netdevs/one/coalesce", r#"{"rx-usecs":1000001}"#, 400, "rx-usecs"),
        ("PATCH", "/v1/netdevs/one/rss", "{}", 400, "exactly one of"),
        ("PATCH", "/v1/netdevs/one/features", r#"{"features":{"x":true}}"#, 400, "bit name"),
        ("PATCH", "/v1/netdevs/none/mtu", r#"{"mtu":1500}"#, 404, "none"),
        ("PUT", "/v1/links/two", r#"{"a":"tap:x"}"#, 400, "`b`"),
        ("PUT", "/v1/links/two", r#"{"a":"x","b":"null:"}"#, 400, "no kind"),
        ("PUT", "/v1/links/two", r#"{"a":"tap:x","b":"null:","cpus":"z"}"#, 400, "cpus"),
        ("PUT", "/v1/links/two", r#"{"a":"tap:x","b":"null:","channels":0}"#, 400, "channels"),
        ("DELETE", "/v1/links/none", "", 404, "none"),
        ("GET", "/v1/events?after=x", "", 400, "after"),
        ("GET", "/v1/nothing", "", 404, "/v1/nothing"),
        ("POST", "/v1/links", "{}", 405, ""),
        ("GET", "/v2/links", "", 404, "v1"),
    ] {
        let (got, output) = send(&control, &request(method, path, body));
        assert_eq!(got, status, "{method} {path} {body}: {output}");
        assert!(output.contains(words), "{method} {path} {body}: {output}");
        if !output.is_empty() {
            let json: Value =
                serde_json::from_str(&output).unwrap_or_else(|e| panic!("{e}: {output}"));
            assert!(json["message"].is_string() && json["code"].is_string(), "{output}");
        }
    }
    for bytes in [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\r\n"] {
        let (status, output) = send(&control, bytes);
        assert!([0, 400].contains(&status), "{bytes:?}: {status} {output}");
    }
    let flood = [b"GET /".as_slice(), &vec![b'x'; 1 << 20], b" HTTP/1.1\r\nHost: x\r\n\r\n"];
    let (status, _) = send_lossy(&control, &flood.concat());
    assert!([0, 400, 404, 414, 431].contains(&status), "{status}");
    let big = request("PATCH", "/v1/netdevs/one/mtu", &" ".repeat(4 << 20));
    let (status, _) = send_lossy(&control, &big);
    assert!([0, 400, 413].contains(&status), "{status}");
    assert_eq!(state(&control), before);
    until("an answer", || (control.links() == ["one"]).then_some(()));
    daemon.stop();
}

/// Like [`send`], for a server that may close the connection before it has read all bytes.
fn send_lossy(control: &Control, bytes: &[u8]) -> (u16, String) {
    let mut socket = UnixStream::connect(control.runtime("ctl.sock")).expect("the socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut sender = socket.try_clone().expect("a socket");
    let bytes = bytes.to_vec();
    let sent = std::thread::spawn(move || sender.write_all(&bytes));
    let mut answer = [0; 256];
    let n = socket.read(&mut answer).unwrap_or(0);
    let text = String::from_utf8_lossy(&answer[..n]).into_owned();
    let _ = socket.shutdown(std::net::Shutdown::Both);
    let _ = sent.join().expect("the sender");
    (text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0), text)
}
