use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_testkit::{Need, has};

use super::*;

/// Writer that stores the bytes and sets `stop` after the fifth frame.
struct Taken<'a> {
    bytes: Vec<u8>,
    stop: &'a AtomicBool,
}

impl Write for Taken<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        let text = String::from_utf8_lossy(&self.bytes);
        self.stop.store(text.matches("channel ").count() >= 5, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn captured(server: &Server, query: &str) -> Vec<u8> {
    let stop = AtomicBool::new(false);
    let mut taken = Taken { bytes: Vec::new(), stop: &stop };
    let path = format!("/v1/netdevs/vm0/capture{query}");
    let copied = server.client().stream(&path, &mut taken, &stop).unwrap();
    assert_eq!(copied, taken.bytes.len() as u64);
    taken.bytes
}

// Goal: a capture ends when its reader disconnects, even without further frames.
#[test]
fn a_capture_ends_with_its_reader() {
    let folder = Folder::new("leaves");
    let server = server(&folder);
    let captures = || server.host.lock().unwrap().captures();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let client = server.client();
            client.stream("/v1/netdevs/vm0/capture", &mut io::sink(), &stop)
        });
        wait_for("the capture runs", || captures() == 1);
        // The pause is longer than the five frames of the test host take.
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(captures(), 1);
        stop.store(true, Ordering::Relaxed);
        assert!(read.join().unwrap().unwrap() > 300);
    });
    wait_for("the capture has ended", || captures() == 0);
}

// Goal: tshark reads nanoseconds, directions, comments and truncated frames from the file.
#[test]
fn tshark_reads_a_capture() {
    if !has(&[Need::Program("tshark")]) {
        return;
    }
    let folder = Folder::new("tshark");
    let server = server(&folder);
    let bytes = captured(&server, "?channel=1&snaplen=20");
    let file = folder.path().join("x.pcapng");
    std::fs::write(&file, bytes).unwrap();
    let fields = ["frame.time_epoch", "frame.cap_len", "frame.len", "frame.interface_name"]
        .into_iter()
        .chain(["frame.packet_flags_direction", "frame.comment"]);
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "separator=;", "-r"])
        .arg(&file)
        .args(fields.flat_map(|field| ["-e", field]))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    // Directions are 1 (inbound) and 2 (outbound); newer versions print them in hexadecimal.
    let plain: Vec<String> = lines.iter().map(|line| line.replace("0x0000000", "")).collect();
    assert_eq!(plain[0], "1700000000.123456001;20;60;vm0;2;channel 1");
    assert_eq!(plain[1], "1700000000.123456002;20;60;vm0;1;channel 1, dropped: too-long");
}
