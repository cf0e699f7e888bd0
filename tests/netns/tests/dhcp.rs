//! DHCP through a bridge: DHCP clients read raw sockets and so see the checksum field of each
//! frame.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mqnet_testkit::{Need, World, has};

/// Script that prints whether the checksum of the first datagram to each of three ports is correct.
const READ: &str = "import socket,struct,sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.bind(('b', 0x0800))
s.settimeout(20)
print('bound', flush=True)
def total(data):
    data += b'\\0' * (len(data) % 2)
    n = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return n
seen = {}
while len(seen) < 3:
    f = s.recv(2000)
    if f[14] != 0x45 or f[23] != 17: continue
    udp = f[34:14 + int.from_bytes(f[16:18], 'big')]
    port = int.from_bytes(udp[2:4], 'big')
    whole = total(f[26:34] + struct.pack('!HH', 17, len(udp)) + udp)
    seen[port] = 'right' if whole == 0xffff else 'wrong'
print(seen.get(67), seen.get(68), flush=True)
";

const SEND: &str = "import socket,time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for turn in range(5):
    for port in (67, 68, 69): s.sendto(b'discover' * 37, ('10.0.0.2', port))
    time.sleep(0.1)
";

// Goal: datagrams to and from the ports of DHCP cross a bridge with complete checksums, although
// the kernels at both ends use checksum offload.
#[test]
fn readers_of_raw_sockets_see_checksums() {
    if !has(&[Need::Root, Need::Program("python3")]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    let mut reader = world.b.command(&["python3", "-c", READ]);
    let mut reader = reader.stdout(Stdio::piped()).spawn().expect("the reader");
    let mut lines = BufReader::new(reader.stdout.take().expect("its output")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "bound");
    world.a.run(&["python3", "-c", SEND]);
    let seen = lines.next().map(|line| line.expect("text"));
    assert!(reader.wait().expect("its end").success());
    assert_eq!(seen.as_deref(), Some("right right"));
    pair.stop();
}
