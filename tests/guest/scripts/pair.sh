# One of two guests with joined devices. SIDE 1 is the client, 2 the server until it is ended.
modprobe virtio_pci; modprobe virtio_net
for _ in $(seq 50); do dev=$(ls /sys/class/net | grep -v '^lo$' | head -1); [ "$dev" ] && break; sleep 0.1; done
ip addr replace 10.9.0.$SIDE/24 dev $dev; ip link set $dev up
for _ in $(seq 90); do ping -c 1 -W 1 10.9.0.$((3 - SIDE)) > /dev/null && break; done
# Endless input: nc closes the connection at the end of its input.
mkfifo /tmp/open; exec 4<> /tmp/open
if [ $SIDE = 2 ]; then
    dd if=/dev/urandom of=/tmp/file bs=1M count=16 2> /dev/null
    echo "sum $(sha256sum /tmp/file | cut -c1-64)"
    iperf3 -s > /dev/null 2>&1 & server=$!
    nc -l -p 7000 < /tmp/file > /dev/null
    nc -l -p 7001 <&4 > /tmp/back
    echo "sum $(sha256sum /tmp/back | cut -c1-64)"
    nc -l -p 7002 <&4 > /dev/null
    kill $server; wait $server
else
    for _ in $(seq 90); do iperf3 -c 10.9.0.2 -t 1 > /dev/null && break; sleep 0.5; done
    iperf3 -c 10.9.0.2 -t 3 | grep -E 'sender|receiver'
    iperf3 -c 10.9.0.2 -t 3 -R | grep -E 'sender|receiver'
    iperf3 -c 10.9.0.2 -u -b 20M -t 2 | grep receiver
    iperf3 -c 10.9.0.2 -u -b 20M -t 2 -R | grep receiver
    until nc 10.9.0.2 7000 <&4 > /tmp/file && [ -s /tmp/file ]; do sleep 0.5; done
    until nc 10.9.0.2 7001 < /tmp/file > /dev/null; do sleep 0.5; done
    echo "sum $(sha256sum /tmp/file | cut -c1-64)"
    until echo | nc 10.9.0.2 7002; do sleep 0.5; done
fi
echo "== done"
