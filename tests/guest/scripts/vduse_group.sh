echo "== group"
# Two devices as one side of a link: the kernel distributes flows over both by a multipath route,
# with one Ethernet address for both.
mac=02:00:00:00:00:09
mqnet link vduse:g0,mac=$mac+vduse:g1,mac=$mac tap:t1,netns=east,address=10.7.0.2/24 --channels 2 \
    --json > /tmp/group.jsonl 2> /tmp/group.log & group=$!
for _ in $(seq 150); do [ -e /sys/class/net/g0 ] && [ -e /sys/class/net/g1 ] && break; sleep 0.1; done
sysctl -qw net.ipv4.fib_multipath_hash_policy=1
their=$($in_east cat /sys/class/net/t1/address)
ip addr add 10.7.0.1/32 dev g0
for card in g0 g1; do
    ip link set $card up || { cat /tmp/group.log; exit 1; }
    ip neigh replace 10.7.0.2 lladdr "$their" dev $card
    echo "$card max $(ethtool -l $card | awk '/Combined/ {print $2; exit}')"
done
$in_east ip neigh replace 10.7.0.1 lladdr $mac dev t1
ip route add 10.7.0.2/32 src 10.7.0.1 nexthop dev g0 nexthop dev g1
for _ in $(seq 60); do ping -c 1 -W 1 10.7.0.2 > /dev/null && break; done
ping -c 20 -i 0.05 10.7.0.2 | grep transmitted
iperf3 -c 10.7.0.2 -P 16 -t 2 | grep SUM.*receiver
for card in g0 g1; do
    for way in tx rx; do echo "$card $way $(cat /sys/class/net/$card/statistics/${way}_packets)"; done
done
kill -INT $group; wait $group
tail -1 /tmp/group.jsonl > "$RESULTS/group.json"
for card in g0 g1; do [ -e /sys/class/net/$card ] && { echo "$card is still there"; exit 1; }; done
echo "== done"
