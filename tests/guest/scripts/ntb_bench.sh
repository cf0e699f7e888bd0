# One guest with a port of each kind to the host: ntb_netdev (10.1.0.x), virtio-net over vhost-user
# (10.2.0.x), and mqnet over ivshmem (10.3.0.x). MTU, ROUNDS and SECONDS_EACH come from the
# host. Each run leaves ROUND.PORT.KIND.QUEUES.json and .busy (ticks of the CPUs before and after).
modprobe -q virtio_pci; modprobe -q virtio_net
fail() { echo "failed: $1"; dmesg | tail -20; cat /tmp/*.log; ip -s link; exit 1; }
insmod /ntb/ntb.ko && insmod /ntb/ntb_hw_epf.ko && insmod /ntb/ntb_transport.ko max_num_clients=2 &&
    insmod /ntb/ntb_netdev.ko || fail "drivers"
# Network device of a driver.
port() {
    for _ in $(seq 100); do
        for dev in /sys/class/net/*; do
            [ "$(ethtool -i "${dev##*/}" 2> /dev/null | sed -n 's/^driver: //p')" = "$1" ] &&
                { echo "${dev##*/}"; return; }
        done
        sleep 0.1
    done
}
ntb=$(port ntb_netdev); card=$(port virtio_net)
[ "$ntb" ] || fail "no NTB device"
[ "$card" ] || fail "no virtio-net device"
for dev in /sys/bus/pci/devices/*; do
    [ "$(cat "$dev/device")" = 0x1110 ] && device=${dev##*/}
done
mqnet link --control-socket none --channels 1 "tap:t3,address=10.3.0.2/24,mtu=$MTU" \
    "ntb:ivshmem=$device" > /tmp/link.log 2>&1 &
ip link set "$ntb" mtu "$MTU"; ip addr add 10.1.0.2/24 dev "$ntb"; ip link set "$ntb" up
ip link set "$card" mtu "$MTU"; ip addr add 10.2.0.2/24 dev "$card"; ip link set "$card" up
for net in 1 2 3; do
    for _ in $(seq 300); do ping -c 1 -W 1 10.$net.0.1 > /dev/null 2>&1 && continue 2; sleep 0.1; done
    fail "10.$net.0.1 does not answer"
done
busy() { awk '/^cpu / {print $2+$3+$4+$7+$8, $5+$6}' /proc/stat; }
frames() { cat /sys/class/net/$1/statistics/tx_packets; }
# Runs iperf3, with several attempts while its server is busy.
stream() {
    local file=$1 net=$2 dev=$3 before sent
    shift 3
    for _ in 1 2 3 4 5; do
        before=$(busy) sent=$(frames $dev)
        timeout $((SECONDS_EACH + 60)) iperf3 -J -c 10.$net.0.1 --connect-timeout 10000 \
            -t "$SECONDS_EACH" -P 4 -l 65480 "$@" > "$RESULTS/$file.json"
        if ! grep -q '"error"' "$RESULTS/$file.json" &&
            grep -q '"sum_received"' "$RESULTS/$file.json"; then
            echo "$before $(busy) $(($(frames $dev) - sent))" > "$RESULTS/$file.busy"
            return
        fi
        echo "again: $(grep '"error"' "$RESULTS/$file.json")"
        sleep 2
    done
}
for queues in 1 2; do
    ethtool -L "$ntb" combined $queues; ethtool -L "$card" combined $queues
    mqnet ethtool -L t3 combined $queues
    sleep 2
    for round in $(seq "$ROUNDS"); do
        for kind in tcp udp; do
            [ $kind = udp ] && how=(-u -b 0) || how=()
            for path in ntb:1:$ntb vhost-user:2:$card ivshmem:3:t3; do
                IFS=: read -r name net dev <<< "$path"
                stream "$round.$name.$kind.$queues" "$net" "$dev" "${how[@]}"
            done
            echo "round $round: $kind with $queues"
        done
    done
done
for dev in $ntb $card t3; do echo "$dev"; ethtool -l $dev | tail -2; ip -s link show $dev | tail -6; done
echo "== done"
