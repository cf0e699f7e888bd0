# mqnet as a VDUSE device of the guest's kernel, linked with a TAP in another network namespace with
# an iperf3 server and a file. $OPTIONS: options of the device.
modprobe -a vduse virtio_vdpa virtio_net tun; modprobe -q sch_fq_codel
sysctl -qw net.core.rmem_max=67108864
ip netns add east
in_east="ip netns exec east"
start() {
    mqnet link "vduse:v0$OPTIONS" tap:t0,netns=east,address=10.9.0.2/24 --json >> /tmp/link.jsonl 2>> /tmp/link.log &
    link=$!
}
fail() { echo "failed: $1"; cat /tmp/link.log; tail -1 /tmp/link.jsonl; dmesg | tail -20; exit 1; }
there() { for _ in $(seq 150); do [ -e /sys/class/net/v0 ] && return; sleep 0.1; done; ip link; fail "no netdev: $1"; }
up() { ip addr replace 10.9.0.1/24 dev v0; ip link set v0 up; }
alive() { for _ in $(seq 60); do ping -c 1 -W 1 10.9.0.2 > /dev/null && return; done; ip link; fail "no answer: $1"; }
# Endless input: nc exits when the other end closes its direction.
mkfifo /tmp/silence; exec 9<> /tmp/silence
# The server does not listen between two files.
fetch() {
    for _ in $(seq 50); do nc 10.9.0.2 7000 > /tmp/file <&9 && [ -s /tmp/file ] && break; sleep 0.1; done
    echo "$(stat -c %s /tmp/file) bytes"
    echo "file $(sha256sum /tmp/file | cut -c1-64)"
}
carrier() { for _ in $(seq 100); do [ "$(cat /sys/class/net/v0/carrier)" = "$1" ] && return; sleep 0.1; done; fail "carrier is not $1"; }
# Drops of the device's driver (not of its qdisc), and of the qdisc.
tail_drops() { cat /sys/class/net/v0/statistics/tx_dropped; }
queued() { tc -s qdisc show dev v0 | sed -n 's/.*(dropped \([0-9]*\),.*requeues \([0-9]*\)).*/\1 \2/p' | tail -1; }

mqnet doctor | grep VDUSE
start; there start; up; alive start; carrier 1
ip -d link show v0 | head -2
echo "== numbers"
ethtool -i v0 | head -1
echo "max $(ethtool -l v0 | awk '/Combined/ {print $2; exit}')"
ethtool -k v0 | grep -E '^(tx-checksumming|rx-checksumming|tcp-segmentation-offload|scatter-gather):'
ethtool -k v0 | grep -E '(tx-udp-segmentation|rx-gro-hw):'
mqnet ethtool -l v0
ping -c 50 -i 0.02 10.9.0.2 | grep transmitted

echo "== tcp and udp"
$in_east iperf3 -s -D > /dev/null
head -c 4194304 /dev/urandom > /tmp/given
echo "given $(sha256sum /tmp/given | cut -c1-64)"
(while :; do $in_east nc -l -p 7000 < /tmp/given > /dev/null; done) & giver=$!
for _ in $(seq 50); do $in_east ss -ltn | grep -q 7000 && $in_east ss -ltn | grep -q 5201 && break; sleep 0.1; done
fetch
iperf3 -c 10.9.0.2 -t 2 | grep -E 'sender|receiver'
iperf3 -c 10.9.0.2 -t 2 -R | grep -E 'sender|receiver'
fetch

echo "== flood"
tc qdisc replace dev v0 root fq_codel
before=($(tail_drops) $(queued))
$in_east guest-flood receive 10.9.0.2:9000 > /tmp/received & receiver=$!
for _ in $(seq 100); do $in_east ss -lun | grep -q 9000 && break; sleep 0.1; done
guest-flood send 10.9.0.2:9000 8 3 > /tmp/sent & sender=$!
stalls=0
while kill -0 $sender 2> /dev/null; do
    kill -STOP $link
    for _ in $(seq 20); do
        tc -s qdisc show dev v0 | grep -q 'backlog 0b' || { stalls=$((stalls + 1)); break; }
        sleep 0.05
    done
    kill -CONT $link; sleep 0.2
done
wait $sender $receiver
after=($(tail_drops) $(queued))
printf '{"stalls":%d,"tail":%d,"qdisc":%d,"requeues":%d,"send":%s,"receive":%s}\n' $stalls $((after[0] - before[0])) \
    $((after[1] - before[1])) $((after[2] - before[2])) "$(cat /tmp/sent)" "$(cat /tmp/received)" |
    tee "$RESULTS/flood.json"
tc -s qdisc show dev v0 | head -3

echo "== features"
for i in 1 2; do
    for feature in tso gso gro; do ethtool -K v0 $feature off > /dev/null 2>&1; done
    fetch
    for feature in gro gso tso; do ethtool -K v0 $feature on > /dev/null 2>&1; done
done

echo "== bind"
for _ in 1 2; do
    echo v0 > /sys/bus/vdpa/drivers/virtio_vdpa/unbind
    [ -e /sys/class/net/v0 ] && fail "the netdev outlives its driver"
    echo v0 > /sys/bus/vdpa/drivers/virtio_vdpa/bind
    there bind; up; alive bind
done
fetch
echo "bound again"

echo "== kill"
mqnet stats v0 | grep '\[' || true
for _ in 1 2; do
    kill -KILL $link; wait $link 2> /dev/null
    [ -e /sys/class/net/v0 ] || fail "the netdev went with its process"
    ping -c 20 -i 0.01 -W 1 10.9.0.2 > /dev/null 2>&1
    start; alive kill; carrier 1
done
fetch
echo "came back"

echo "== end"
mqnet stats v0 | grep '\['
kill -INT $link; wait $link
cat /tmp/link.log
tail -1 /tmp/link.jsonl > "$RESULTS/end.json"
[ -e /dev/vduse/v0 ] && fail "the device is still there"
[ -e /sys/class/net/v0 ] && fail "the netdev is still there"

echo "== split rings, another card"
OPTIONS=,packed=off,mac=02:00:00:00:00:07,mtu=1400
start; there again; up; alive again; fetch
ip link show v0 | sed -n 's/.*\(mtu [0-9]*\).*/\1/p'
cat /sys/class/net/v0/address
# Feature bit 34 (VIRTIO_F_RING_PACKED).
echo "packed $(cut -c35 /sys/bus/vdpa/devices/v0/virtio*/features)"
kill -KILL $link; wait $link 2> /dev/null
start; alive "split, killed"; fetch
mqnet link vduse:v0 null: 2>&1 | tail -1
kill $giver
kill -INT $link; wait $link
[ -e /sys/class/net/v0 ] && fail "the netdev of the second card is still there"
dmesg | grep -i -E 'watchdog: v0|transmit queue|BUG:|Call Trace' | head -3
echo "== done"
