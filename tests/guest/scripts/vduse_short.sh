# Short test of a VDUSE device of the guest's kernel: it appears, answers, and is removed.
modprobe -a vduse virtio_vdpa virtio_net tun
ip netns add east
in_east="ip netns exec east"
fail() { echo "failed: $1"; cat /tmp/*.log; dmesg | tail -20; exit 1; }
mqnet doctor | grep VDUSE
mqnet link vduse:v0 tap:t0,netns=east,address=10.9.0.2/24 --json > /tmp/link.jsonl 2> /tmp/link.log & link=$!
for _ in $(seq 150); do [ -e /sys/class/net/v0 ] && break; sleep 0.1; done
ip addr add 10.9.0.1/24 dev v0 && ip link set v0 up || fail "no netdev"
for _ in $(seq 60); do ping -c 1 -W 1 10.9.0.2 > /dev/null && break; done
ping -c 20 -i 0.05 10.9.0.2 | grep transmitted
ethtool -i v0 | head -1
echo "max $(ethtool -l v0 | awk '/Combined/ {print $2; exit}')"
ethtool -k v0 | grep -E '^(tx-checksumming|tcp-segmentation-offload):'
ethtool -k v0 | grep tx-udp-segmentation:
ethtool -K v0 tx-udp-segmentation on
echo "then $(ethtool -k v0 | grep tx-udp-segmentation:)"
kill -INT $link; wait $link
[ -e /sys/class/net/v0 ] && fail "the netdev is still there"
$in_east iperf3 -s -D > /dev/null
