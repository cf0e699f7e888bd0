# A tunnel over a slow path with delay, alternately with the default of TUN devices (drop) and with
# IFF_BACKPRESSURE (stop). One TCP stream per run.
#
# near: iperf3 -> [tn] -> guest-tunnel -> [n0: rate] ==veth== [f0: delay] -> guest-tunnel -> far
#
# RATE (Mbit/s), DELAY (ms, one way), RING (packets), ROOM (bytes of the tunnel's socket), ROUNDS
# and SECONDS_EACH come from the host. Each run leaves N-MODE.{client,server,end}.json.
set -e
# The path must not drop, regardless of delays of the emulated CPUs.
sysctl -qw net.core.netdev_max_backlog=100000
ip netns add near
ip netns add far
ip link add n0 netns near type veth peer name f0 netns far
for end in near:n0:1 far:f0:2; do
    IFS=: read -r host device number <<< "$end"
    ip -n "$host" link set lo up
    ip -n "$host" addr add 192.168.0.$number/24 dev "$device"
    ip -n "$host" link set "$device" up
    # One datagram is one packet for the rate limiter.
    ip netns exec "$host" ethtool -K "$device" tso off gso off gro off > /dev/null
done
# tbf limits the rate, so that the tunnel's socket waits. netem would remove the packets from the
# socket's account. The delay of both directions is applied on the return path.
tc -n near qdisc add dev n0 root tbf rate "${RATE}mbit" burst 64kb limit 50mb
tc -n far qdisc add dev f0 root netem delay $((DELAY * 2))ms limit 100000

# Waits until a command succeeds, with a limit.
within_time() {
    for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
    echo "waited in vain: $*"
    return 1
}
dropped() { tc -n "$1" -s qdisc show dev "$2" | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -1; }
count() { ip netns exec near cat "/sys/class/net/tn/statistics/$1"; }
full() { ip netns exec "$1" cat /proc/net/snmp | grep ^Udp: | tail -1 | cut -d' ' -f6; }

run() {
    local name=$1
    shift
    ip netns exec near guest-tunnel tn 192.168.0.1:5000 192.168.0.2:5000 --sndbuf "$ROOM" "$@" &
    local near=$!
    ip netns exec far guest-tunnel tf 192.168.0.2:5000 192.168.0.1:5000 &
    local far=$!
    within_time ip -n near link show tn
    within_time ip -n far link show tf
    ip -n near addr add 10.0.0.1/24 dev tn
    ip -n far addr add 10.0.0.2/24 dev tf
    ip -n near link set tn mtu 1400 txqueuelen "$RING" up
    ip -n far link set tf mtu 1400 up
    tc -n near qdisc replace dev tn root fq_codel
    ip netns exec far iperf3 -s -1 -i 0.5 -J > "$RESULTS/$name.server.json" &
    local server=$!
    within_time eval 'ip netns exec far ss -ltn | grep -q :5201'
    ip netns exec near iperf3 -c 10.0.0.2 -C cubic -t "$SECONDS_EACH" -i 0.5 -J \
        > "$RESULTS/$name.client.json"
    wait $server
    printf '{"flags":"%s","sent":%d,"ring_drops":%d,"qdisc_drops":%d,"path_drops":%d}' \
        "$(ip netns exec near cat /sys/class/net/tn/tun_flags)" "$(count tx_packets)" \
        "$(count tx_dropped)" "$(dropped near tn)" \
        $(($(dropped near n0) + $(dropped far f0) + $(full near) + $(full far))) \
        > "$RESULTS/$name.end.json"
    kill $near $far
    wait $near $far || true
}

for round in $(seq "$ROUNDS"); do
    run "$round-drop"
    run "$round-stop" --backpressure
done
