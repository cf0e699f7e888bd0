use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use mqnet_control::serve_tcp;
use mqnet_control::testing::TestHost;
use mqnet_testkit::skip;

/// API path that the test omits, because its response never ends.
const CAPTURE: &str = "/v1/netdevs/{dev}/capture";
/// Check that the test omits, because a schema cannot express every rule. The schema accepts 8.0 as
/// an integer and any string after `tap:`.
const BEYOND_SCHEMA: &str = "positive_data_acceptance";

/// Path of schemathesis: `$MQNET_SCHEMATHESIS`, otherwise the program that `cargo xtask setup`
/// installs.
fn program() -> PathBuf {
    let ours = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../schemathesis/bin/schemathesis");
    std::env::var_os("MQNET_SCHEMATHESIS").map_or_else(ours, PathBuf::from)
}

/// Serves a host of null functions on a free port until the test process ends; returns the port.
fn serve() -> u16 {
    let (send, port) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap().port()).unwrap();
            serve_tcp(listener, TestHost::serve(Arc::new(Mutex::new(TestHost::new())))).await;
        });
    });
    port.recv().unwrap()
}

// Goal: a client generates requests from the OpenAPI document alone. Every response has a
// documented status, content type and schema, forbidden requests are refused, and no request causes
// a server error.
#[test]
fn the_document_and_the_server_agree() {
    let program = program();
    if !program.is_file() {
        skip("needs schemathesis: cargo xtask setup");
        return;
    }
    let port = serve();
    let output = Command::new(program)
        .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/schemathesis.toml")])
        .args(["run", &format!("http://127.0.0.1:{port}/v1/openapi.json"), "--no-color"])
        .args(["--exclude-path", CAPTURE, "--exclude-checks", BEYOND_SCHEMA])
        .args(["--max-examples", "30", "--generation-deterministic"])
        .args(["--request-timeout", "30"])
        .stdin(Stdio::null())
        // schemathesis keeps its cache in its working directory.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "schemathesis found something");
    assert!(printed.contains("38 selected / 39 total"), "all operations but one are tested");
}
