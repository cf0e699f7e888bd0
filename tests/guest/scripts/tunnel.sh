# A tunnel over a slow path with delay, once as TUN devices are (drop) and once with
# IFF_BACKPRESSURE (stop), in turns. One TCP stream a run.
#
#   west: iperf3 -> [tw] -> guest-tunnel -> [w0: rate] ==veth== [e0: delay] -> guest-tunnel -> east
#
# RATE (Mbit/s), DELAY (ms, one way), RING (packets), ROOM (bytes of the tunnel's socket), ROUNDS and
# SECONDS_EACH come from the host. For each run N-MODE.{client,server,end}.json and .drops are left.
set -e
# Nothing may be lost on the path itself, however late the emulated CPUs are.
sysctl -qw net.core.netdev_max_backlog=100000
ip netns add west
ip netns add east
ip link add w0 netns west type veth peer name e0 netns east
for end in west:w0:1 east:e0:2; do
    IFS=: read -r host device number <<< "$end"
    ip -n "$host" link set lo up
    ip -n "$host" addr add 192.168.0.$number/24 dev "$device"
    ip -n "$host" link set "$device" up
    # One datagram is one packet to the rate limiter.
    ip netns exec "$host" ethtool -K "$device" tso off gso off gro off > /dev/null
done
# The rate is tbf's: it makes the tunnel's socket wait. netem would take the packets out of the
# socket's account. The delay of both ways lies on the way back.
tc -n west qdisc add dev w0 root tbf rate "${RATE}mbit" burst 64kb limit 50mb
tc -n east qdisc add dev e0 root netem delay $((DELAY * 2))ms limit 100000

dropped() { tc -n "$1" -s qdisc show dev "$2" | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -1; }
count() { ip netns exec west cat "/sys/class/net/tw/statistics/$1"; }
full() { ip netns exec "$1" cat /proc/net/snmp | grep ^Udp: | tail -1 | cut -d' ' -f6; }

run() {
    local name=$1 drops
    shift
    ip netns exec west guest-tunnel tw 192.168.0.1:5000 192.168.0.2:5000 --sndbuf "$ROOM" "$@" &
    local west=$!
    ip netns exec east guest-tunnel te 192.168.0.2:5000 192.168.0.1:5000 &
    local east=$!
    until ip -n west link show tw && ip -n east link show te; do sleep 0.1; done > /dev/null 2>&1
    ip -n west addr add 10.0.0.1/24 dev tw
    ip -n east addr add 10.0.0.2/24 dev te
    ip -n west link set tw mtu 1400 txqueuelen "$RING" up
    ip -n east link set te mtu 1400 up
    tc -n west qdisc replace dev tw root fq_codel
    ip netns exec east iperf3 -s -1 -i 0.5 -J > "$RESULTS/$name.server.json" &
    local server=$!
    until ip netns exec east ss -ltn | grep -q :5201; do sleep 0.1; done
    # The device's own counter over time: seconds since boot, packets dropped.
    ( while sleep 0.5; do
        read -r now _ < /proc/uptime
        echo "$now $(count tx_dropped)"
    done ) > "$RESULTS/$name.drops" &
    local watch=$!
    local from
    read -r from _ < /proc/uptime
    ip netns exec west iperf3 -c 10.0.0.2 -C cubic -t "$SECONDS_EACH" -i 0.5 -J \
        > "$RESULTS/$name.client.json"
    kill $watch
    wait $server
    printf '{"flags":"%s","from":%s,"sent":%d,"ring_drops":%d,"qdisc_drops":%d,"path_drops":%d}' \
        "$(ip netns exec west cat /sys/class/net/tw/tun_flags)" "$from" "$(count tx_packets)" \
        "$(count tx_dropped)" "$(dropped west tw)" \
        $(($(dropped west w0) + $(dropped east e0) + $(full west) + $(full east))) \
        > "$RESULTS/$name.end.json"
    kill $west $east
    wait $west $east || true
}

for round in $(seq "$ROUNDS"); do
    run "$round-drop"
    run "$round-stop" --backpressure
done
