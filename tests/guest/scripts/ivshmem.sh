# One end of a link in the memory of an ivshmem device, with traffic of every kind. With VFIO=1 the
# device is bound to vfio-pci first, for its interrupts.
for dev in /sys/bus/pci/devices/*; do
    if [ "$(cat "$dev/device")" = 0x1110 ]; then device=${dev##*/}; fi
done
if [ "$VFIO" ]; then
    modprobe vfio_iommu_type1; modprobe vfio_pci
    echo vfio-pci > /sys/bus/pci/devices/$device/driver_override
    echo "$device" > /sys/bus/pci/drivers_probe
    echo "driver $(basename "$(readlink /sys/bus/pci/devices/$device/driver)")"
fi
mqnet link --json --control-socket none tap:t0,address=10.9.0.2/24 ntb:ivshmem="${PLACE:-$device}" \
    > /tmp/link.json 2> "$RESULTS/link.errors" & link=$!
for _ in $(seq 120); do ping -c 1 -W 1 10.9.0.1 > /dev/null 2>&1 && break; sleep 0.2; done
grep '"event"' /tmp/link.json
echo "guest: traffic"
exec 3<> /dev/udp/10.9.0.1/9001
cat <&3 > /tmp/numbers & receiver=$!
(i=0; while :; do echo $((i++)) >&3; done) 2> /dev/null & sender=$!
dd if=/dev/urandom of=/tmp/out bs=1M count=4 2> /dev/null
nc 10.9.0.1 7001 < /tmp/out
nc 10.9.0.1 7000 > /tmp/in < /dev/null
echo "in $(sha256sum /tmp/in | cut -c1-64)"
echo "out $(sha256sum /tmp/out | cut -c1-64)"
ping -c 10 -i 0.1 10.9.0.1 | grep -E 'transmitted|min/avg'
iperf3 -c 10.9.0.1 -t 1 | grep receiver
kill $sender $receiver
echo "guest: still"
ping -c 3 -i 1 10.9.0.1 | grep -E 'transmitted|min/avg'
echo "came $(wc -l < /tmp/numbers), twice $(sort /tmp/numbers | uniq -d | wc -l)"
echo "doorbells $(grep -c mqnet-doorbells /proc/$link/task/*/comm | grep -c ':1$')"
grep -E 'vfio|ivshmem' /proc/interrupts | awk '{n = $2 + $3; if (n > 0) c++} END {print "interrupts " c + 0}'
kill -TERM $link; wait $link
echo "link $?"
echo "== done"
