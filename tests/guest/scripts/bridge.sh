# One of two guests with a virtio-net device at a bridge of the host (10.8.0.x) and two ivshmem
# devices: the first has a vector for each queue pair (10.9.0.x), the second one for everything
# (10.7.0.x). ME is 1, the client, or 2, the server until it is killed. CHANNELS, CARD_QUEUES,
# ROUNDS and SECONDS_EACH come from the host. Each run leaves ROUND.PATH.KIND.json; successful runs
# of iperf3 also leave .clocks (of both guests before, of both after).
PEER=$((3 - ME))
modprobe -q virtio_pci; modprobe -q virtio_net; modprobe vfio_iommu_type1; modprobe vfio_pci
fail() { echo "failed: $1"; dmesg | tail -20; cat /tmp/*.log; exit 1; }
for _ in $(seq 100); do
    for dev in /sys/class/net/*; do [ -e "$dev/device" ] && card=${dev##*/}; done
    [ "$card" ] && break
    sleep 0.1
done
[ "$card" ] || fail "no card"
ethtool -L "$card" combined "$CARD_QUEUES" 2> /dev/null
ip addr replace 10.8.0.$ME/24 dev "$card"; ip link set "$card" up
subnet=9
raw=
for dev in /sys/bus/pci/devices/*; do
    [ "$(cat "$dev/device")" = 0x1110 ] || continue
    device=${dev##*/}
    echo vfio-pci > "$dev/driver_override"
    echo "$device" > /sys/bus/pci/drivers_probe
    [ $subnet = 0 ] && { raw=$device; continue; }
    mqnet link --control-socket none --channels "$CHANNELS" "tap:t$subnet,address=10.$subnet.0.$ME/24" \
        "ntb:ivshmem=$device" > /tmp/$subnet.log 2>&1 &
    links[subnet]=$!
    [ $subnet = 9 ] && subnet=7 || subnet=0
done
# Ticks since boot: busy and idle time of this guest's CPUs, and time of the links of subnets 9 and
# 7 in their own code and in the kernel.
cat > /tmp/clocks <<- END
	#!/bin/bash
	awk 'FNR == 1 && FILENAME == "/proc/stat" {print \$2+\$3+\$4+\$7+\$8, \$5+\$6; nextfile}
	    {print \$14, \$15}' /proc/stat /proc/${links[9]}/stat /proc/${links[7]}/stat | tr '\n' ' '
	END
chmod +x /tmp/clocks
# Reads from these FIFOs block without end of file.
mkfifo /tmp/ask /tmp/told; exec 5<> /tmp/ask 6<> /tmp/told
if [ $ME = 2 ]; then
    # Prints the frames received through the third device, those of the virtio-net device, and the
    # clocks.
    mqnet-bench bench-end rx "ntb:ivshmem=$raw" 64 1 1 <&5 >&6 2> /tmp/raw.log &
    cat > /tmp/count <<- END
	#!/bin/bash
	echo > /tmp/ask
	read -r frames rest < /tmp/told
	echo "\$frames \$(cat /sys/class/net/$card/statistics/rx_packets) \$(/tmp/clocks)"
	END
    chmod +x /tmp/count
    (while :; do nc -l -p 7002 -e /tmp/count; done) 2> /dev/null &
    while :; do iperf3 -s -1 --rcv-timeout 20000 > /dev/null 2>&1; done
fi
for net in 8 9 7; do
    for _ in $(seq 300); do ping -c 1 -W 1 10.$net.0.$PEER > /dev/null 2>&1 && continue 2; sleep 0.1; done
    fail "nobody answers at 10.$net.0.$PEER"
done

# Clocks of both guests.
clocks() { echo "$(/tmp/clocks)" "$(count 3-8)"; }
# Runs iperf3; retries while the other end is not ready, and reports a run that never worked.
stream() {
    local file=$1 net=$2 before
    shift 2
    for _ in 1 2 3 4 5; do
        before=$(clocks)
        timeout $((SECONDS_EACH + 60)) iperf3 -J -c 10.$net.0.$PEER --connect-timeout 10000 \
            -t "$SECONDS_EACH" "$@" > "$RESULTS/$file"
        if ! grep -q '"error"' "$RESULTS/$file" && grep -q '"sum_received"' "$RESULTS/$file"; then
            echo "$before $(clocks)" > "$RESULTS/${file%.json}.clocks"
            return
        fi
        echo "again: $(grep '"error"' "$RESULTS/$file")"
        sleep 2
    done
}
# Number of voluntary sleeps of a process's threads: one for each wake-up.
woken() { cat /proc/"$1"/task/*/status | awk '/^voluntary/ {n += $2} END {print n}'; }
interrupts() { grep -E "vfio-msi.*$1" /proc/interrupts | awk '{n += $2 + $3} END {print n + 0}'; }
# Pings with pauses in which all threads sleep: counts the wake-ups for a frame.
wakes() {
    local file=$1 net=$2 link=${links[$2]} before after pings=$((SECONDS_EACH * 50))
    before="$(woken "$link") $(interrupts '')"
    ping -q -i 0.02 -c $pings 10.$net.0.$PEER > /tmp/ping
    after="$(woken "$link") $(interrupts '')"
    echo "$before $after $(sed -n 's/.* \([0-9]*\) received.*/\1/p' /tmp/ping)" \
        "$(sed -n 's/^rtt.*= [0-9.]*\/\([0-9.]*\)\/.*/\1/p' /tmp/ping)" |
        awk '{printf "{\"woken\":%d,\"interrupts\":%d,\"answers\":%d,\"rtt_ms\":%s}", $3-$1, $4-$2, $5, $6}' \
        > "$RESULTS/$file"
}
# Frames received at the other end: 1 through the third device, 2 by the virtio-net device.
count() {
    for _ in $(seq 100); do
        told=$(timeout 10 nc 10.8.0.$PEER 7002 < /tmp/silence 2> /dev/null)
        [ "$told" ] && { echo "$told" | cut -d' ' -f"$1"; return; }
        sleep 0.1
    done
    fail "the other end does not count"
}
now() { cut -d' ' -f1 /proc/uptime; }
# Counts before and after, starting when the first frames have arrived.
counted() {
    local file=$1 column=$2 first before from
    first=$(count "$column")
    for _ in $(seq 100); do [ $(($(count "$column") - first)) -gt 1000 ] && break; sleep 0.1; done
    before=$(count "$column"); from=$(now)
    sleep "$SECONDS_EACH"
    echo "$before $from $(count "$column") $(now)" |
        awk '{printf "{\"frames\":%d,\"seconds\":%s}", $3-$1, $4-$2}' > "$RESULTS/$file"
}
mkfifo /tmp/silence; exec 7<> /tmp/silence
insmod /pktgen.ko || fail "no pktgen"
pg() { echo "$2" > /proc/net/pktgen/"$1"; }
pg kpktgend_0 "add_device $card"
for word in "count 0" "clone_skb 1000" "burst 32" "pkt_size 64" "delay 0" "dst 10.8.0.99" \
    "dst_mac 02:00:00:00:08:02"; do
    pg "$card" "$word" || echo "pktgen does not take: $word"
done
frames() {
    (echo start > /proc/net/pktgen/pgctrl) & local starter=$!
    counted "$1.virtio.frames.json" 2
    echo stop > /proc/net/pktgen/pgctrl
    wait $starter
    mqnet-bench bench-end tx "ntb:ivshmem=$raw" 64 0 1 <&5 > /dev/null 2> /tmp/raw.log & local sender=$!
    counted "$1.ivshmem.frames.json" 1
    kill -KILL $sender
    wait $sender 2> /dev/null
}
for round in $(seq "$ROUNDS"); do
    for kind in udp64 udp1400 tcp; do
        for path in virtio:8 ivshmem:9 shared:7; do
            IFS=: read -r name net <<< "$path"
            case $kind in
                tcp) how=() ;;
                *) how=(-u -b 0 -l "${kind#udp}") ;;
            esac
            stream "$round.$name.$kind.json" "$net" "${how[@]}" -P $((4 * CHANNELS))
            echo "round $round: $kind over $name"
        done
    done
    for path in ivshmem:9 shared:7; do wakes "$round.${path%:*}.wakes.json" "${path#*:}"; done
done
# Last, because an end without its peer polls for it and would take CPU time from the streams.
for round in $(seq "$ROUNDS"); do
    frames "$round"
    echo "round $round: frames"
done
echo "== done"
