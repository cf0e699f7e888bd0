# Traffic in all directions while one end of the device is killed as often as the test selects.
# Numbered datagrams and a file cross in either direction.
modprobe virtio_pci; modprobe virtio_net
for _ in $(seq 50); do dev=$(ls /sys/class/net | grep -v '^lo$' | head -1); [ "$dev" ] && break; sleep 0.1; done
ip addr replace 10.9.0.2/24 dev $dev; ip link set $dev up
for _ in $(seq 60); do ping -c 1 -W 1 10.9.0.1 > /dev/null && break; done
echo "guest: traffic"
exec 3<> /dev/udp/10.9.0.1/9001
cat <&3 > /tmp/numbers & receiver=$!
(i=0; while :; do echo $((i++)) >&3; done) 2> /dev/null & sender=$!
dd if=/dev/urandom of=/tmp/out bs=1M count=4 2> /dev/null
(for i in $(seq 0 63); do dd if=/tmp/out bs=64k skip=$i count=1 2> /dev/null; sleep 0.15; done) | nc 10.9.0.1 7001 & give=$!
nc 10.9.0.1 7000 > /tmp/in < /dev/null
echo "in $(sha256sum /tmp/in | cut -c1-64)"
wait $give
echo "out $(sha256sum /tmp/out | cut -c1-64)"
ping -c 5 -i 0.2 10.9.0.1 | grep transmitted
kill $sender $receiver
echo "came $(wc -l < /tmp/numbers), twice $(sort /tmp/numbers | uniq -d | wc -l)"
dmesg | grep -i -E 'watchdog|timed out' | head -5
echo "== done"
