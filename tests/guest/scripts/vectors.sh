# One of two guests whose ivshmem devices interrupt each other, with a vector for each of 8 queue
# pairs. ME 1 is the client, changes channels under traffic and then waits for its peer's return; 2
# is the server.
PEER=$((3 - ME))
modprobe vfio_iommu_type1; modprobe vfio_pci
for dev in /sys/bus/pci/devices/*; do
    if [ "$(cat "$dev/device")" = 0x1110 ]; then device=${dev##*/}; fi
done
echo vfio-pci > /sys/bus/pci/devices/$device/driver_override
echo "$device" > /sys/bus/pci/drivers_probe
mqnet link --json tap:t0,address=10.9.0.$ME/24 ntb:ivshmem=pci \
    > /tmp/link.json 2> /tmp/link.errors & link=$!
if [ $ME = 2 ]; then
    while :; do iperf3 -s -1 --rcv-timeout 20000 > /dev/null 2>&1; done
fi
fail() { echo "failed: $1"; cat /tmp/link.errors; tail -3 /tmp/link.json; exit 1; }
answers() { for _ in $(seq 300); do ping -c 1 -W 1 10.9.0.2 > /dev/null && return; sleep 0.1; done; fail "no answer"; }
# Runs iperf3; retries while the other end is not ready.
stream() { for _ in $(seq 60); do iperf3 -c 10.9.0.2 -t "$1" --connect-timeout 5000 > /tmp/stream && return; sleep 0.5; done; fail "no stream"; }
# Prints each channel's number, CPU and interrupt as reported by mqnet, and the affinity in the
# kernel.
affinity() {
    mqnet show | sed -n 's/.*channel \([0-9]*\) .*cpu \([0-9]*\) .*irq \([0-9]*\).*/\1 \2 \3/p' |
        while read -r channel cpu irq; do
            echo "channel $channel: $cpu is $(cat /proc/irq/$irq/smp_affinity_list)," \
                "$(cat /sys/kernel/irq/$irq/actions)"
        done
}
answers
stream 1
stream 10 & streaming=$!
for channels in 8 3 1 8; do
    mqnet ethtool -L t0 combined $channels || fail "resize to $channels"
    for _ in $(seq 100); do
        now=$(mqnet ethtool -l t0 | awk '/Combined/ {n = $2} END {print n}')
        [ "$now" = $channels ] && break
        sleep 0.1
    done
    echo "channels $now"
    ping -c 3 -i 0.2 -W 10 10.9.0.2 | grep transmitted
done
affinity
wait $streaming || fail "the stream broke"
grep receiver /tmp/stream
grep 'vfio-msix' /proc/interrupts | awk '$2 + $3 > 0 {n++} END {print "vectors used " n + 0}'
echo "guest: resized"
for _ in $(seq 900); do [ "$(grep -c '"event":"up"' /tmp/link.json)" -ge 2 ] && break; sleep 0.2; done
grep '"event"' /tmp/link.json | tail -3
answers
stream 1
grep receiver /tmp/stream
ping -c 5 -i 0.2 10.9.0.2 | grep transmitted
kill -TERM $link; wait $link
echo "link $?"
echo "== done"
