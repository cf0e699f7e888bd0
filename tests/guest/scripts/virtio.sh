# A guest behind `vhost-user:`: its device, channels, traffic, and operations of a driver. The host
# has 10.9.0.1 and an iperf3 server, serves a file on port 7000, and floods the guest after "guest:
# flood". After "guest: look" the host reads its counters, and then receives at port 7001. $PAIRS:
# queue pairs of the device.
modprobe virtio_pci; modprobe virtio_net
find_card() { for _ in $(seq 50); do dev=$(ls /sys/class/net | grep -v '^lo$' | head -1); [ "$dev" ] && break; sleep 0.1; done; }
up() { ip addr replace 10.9.0.2/24 dev $dev; ip link set $dev up; }
alive() { for _ in $(seq 60); do ping -c 1 -W 1 10.9.0.1 > /dev/null && return; done; echo "no answer: $1"; exit 1; }
combined() { ethtool -l $dev | awk '/Combined/ {print $2}' | tail -1; }
# Newer kernels have these counters only in sysfs.
sum() {
    local n=$(ethtool -S $dev | grep -E "^ *$1(_queue_)?[0-9]+_packets:" | awk '{n += $2} END {print n + 0}')
    [ "$n" -gt 0 ] && echo "$n" || cat /sys/class/net/$dev/statistics/$1_packets
}
fetch() { nc 10.9.0.1 7000 > /tmp/file < /dev/null; echo "file $(sha256sum /tmp/file | cut -c1-64)"; }
# Fetches files one after the other until the work is done.
fetching() { (while [ -e /tmp/work ]; do fetch; done) & fetcher=$!; }
rest() { rm /tmp/work; wait $fetcher; }
find_card; up; alive start
echo "max $(ethtool -l $dev | awk '/Combined/ {print $2; exit}')"
ethtool -k $dev | grep -E '^(tx-checksumming|tcp-segmentation-offload|rx-checksumming):'
ping -c 50 -i 0.02 10.9.0.1 | grep transmitted

echo "== tcp and udp"
tc qdisc replace dev $dev root fq_codel
iperf3 -c 10.9.0.1 -t 3 | grep -E 'sender|receiver'
tc -s qdisc show dev $dev | awk '/fq_codel/ {f = 1} /Sent/ && f {print "fq_codel " ($2 > 1000000 ? "worked" : "idle: " $2); exit}'
tc qdisc del dev $dev root
iperf3 -c 10.9.0.1 -t 3 -R | grep -E 'sender|receiver'
iperf3 -c 10.9.0.1 -u -b 20M -t 2 | grep receiver
iperf3 -c 10.9.0.1 -u -b 20M -t 2 -R | grep receiver
ethtool -S $dev | head -6
echo "counted $(sum rx) $(sum tx) combined $(combined)"
echo "guest: look"
until echo | nc 10.9.0.1 7001 > /dev/null 2>&1; do sleep 1; done

echo "== resizes"
touch /tmp/work; fetching
ping -i 0.02 -c 1000000 10.9.0.1 > /tmp/ping & ping=$!
for i in $(seq 200); do ethtool -L $dev combined $((i % PAIRS + 1)) || exit 1; done
kill -INT $ping; wait $ping; grep transmitted /tmp/ping
ethtool -L $dev combined $PAIRS; echo "combined $(combined)"
rest

echo "== rings"
ethtool -G $dev rx 128 tx 128 && echo "resized"
alive rings

echo "== features"
touch /tmp/work; fetching
for i in $(seq 20); do
    for feature in tx rx tso gso gro; do ethtool -K $dev $feature off > /dev/null 2>&1; done
    for feature in rx gro tx gso tso; do ethtool -K $dev $feature on > /dev/null 2>&1; done
done
rest
alive features

echo "guest: flood"
echo "== up and down"
for _ in $(seq 50); do ip link set $dev down; ip link set $dev up; done
alive "up and down"

echo "== bind"
id=$(basename $(readlink -f /sys/class/net/$dev/device))
for _ in $(seq 20); do
    echo $id > /sys/bus/virtio/drivers/virtio_net/unbind
    echo $id > /sys/bus/virtio/drivers/virtio_net/bind
    find_card; up
    ping -c 1 -W 1 10.9.0.1 > /dev/null
done
alive bind
fetch
dmesg | grep -i -E 'watchdog: eth|transmit queue|BUG:|Call Trace' | head -3
echo "== done"
