use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use mqnet_netdev::DropReason;
use mqnet_testkit::{Need, has};

use super::*;

/// Returns the sum of a metric family over all lines that contain `label`.
fn sum(text: &str, family: &str, label: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
    let values = lines.filter(|line| line.contains(label));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

// Goal: metrics equal the counters of a link, and received frames equal sent plus dropped frames.
// Each family has exactly one help line and one type line.
#[test]
fn metrics_are_the_counters() {
    let folder = Folder::new("metrics");
    let server = server(&folder);
    add_qdiscs(&server, "vm1");
    // Lanes of null functions are idle, so only the test changes these counters.
    let host = server.host.lock().unwrap();
    let entries = &host.links.entries;
    for (n, channel) in (0..).zip(entries[0].link.stats()[0]) {
        channel.rx.packets.add(1000 + n);
        channel.rx.drops.count(DropReason::TooLong, 10);
    }
    for (n, channel) in (0..).zip(entries[0].link.stats()[1]) {
        channel.tx.packets.add(990 + n);
        channel.tx.stopped_ns.add(1_500_000_000);
    }
    drop(host);
    let text = server.client().text("/metrics").unwrap();
    let of = |family: &str, label: &str| sum(&text, &format!("mqnet_{family}"), label);
    let received = of("netdev_receive_packets_total", "device=\"vm0\"");
    assert_eq!(received, 4006.0);
    let side_a = "device=\"vm0\",link=\"vm0\",side=\"a\"";
    assert_eq!(of("netdev_receive_packets_total", side_a), received, "separate by link and side");
    assert!(of("netdev_transmit_packets_total", "link=\"vm0\",side=\"b\"") > 0.0);
    let sent = of("netdev_transmit_packets_total", "device=\"ntb0\"");
    assert_eq!(received, sent + of("drops_total", "device=\"vm0\""));
    assert_eq!(of("queue_stopped_seconds_total", "channel=\"0\",device=\"ntb0\""), 1.5);
    assert_eq!(of("qdisc_drops_total", "device=\"vm1\",handle=\"1:\""), 0.0);
    assert!(text.contains("mqnet_qdisc_backlog_bytes{device=\"vm1\""), "{text}");
    assert_eq!(of("link_up", ""), 2.0);
    assert_eq!(of("link_channels", "vm1"), 4.0);
    assert!(of("worker_passes_total", "link=\"vm0\",worker=\"0\"") > 0.0);
    let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
    for line in text.lines() {
        let name = match line.strip_prefix("# ") {
            Some(comment) => comment.split(' ').nth(1).unwrap(),
            None => line.split('{').next().unwrap(),
        };
        *lines.entry(name).or_default() += if line.starts_with('#') { 1 } else { 100 };
    }
    assert!(lines.values().all(|n| n % 100 == 2 && *n > 100), "{lines:?}");
    for row in mqnet_netdev::LaneCounters::TABLE {
        assert!(lines.contains_key(&*format!("mqnet_{}", row.metric)), "{}", row.metric);
    }
}

// Goal: promtool reports no problem in the metrics.
#[test]
fn promtool_agrees() {
    if !has(&[Need::Program("promtool")]) {
        return;
    }
    let folder = Folder::new("promtool");
    let text = server(&folder).client().text("/metrics").unwrap();
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tool = tool.stderr(Stdio::piped()).spawn().unwrap();
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let lines = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success() && lines.is_empty(), "{}", String::from_utf8_lossy(&lines));
}

// Goal: the metrics port serves only /metrics.
#[tokio::test]
async fn the_metrics_port_serves_nothing_else() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_metrics_tcp(
        listener,
        TestHost::serve(Arc::new(Mutex::new(TestHost::new()))),
    ));
    for (path, status) in [("/metrics", 200), ("/v1/links", 404)] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}
