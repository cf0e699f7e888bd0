# A guest that is migrated while files and numbered datagrams are transferred. "guest: traffic"
# permits the migration; the files take some seconds.
modprobe virtio_pci; modprobe virtio_net
for _ in $(seq 50); do dev=$(ls /sys/class/net | grep -v '^lo$' | head -1); [ "$dev" ] && break; sleep 0.1; done
ip addr replace 10.9.0.2/24 dev $dev; ip link set $dev up
for _ in $(seq 60); do ping -c 1 -W 1 10.9.0.1 > /dev/null && break; done
exec 3<> /dev/udp/10.9.0.1/9001
cat <&3 > /tmp/numbers & receiver=$!
(i=0; while :; do echo $((i++)) >&3; done) 2> /dev/null & sender=$!
ping -i 0.1 -c 1000000 10.9.0.1 > /tmp/ping & ping=$!
dd if=/dev/urandom of=/tmp/out bs=1M count=4 2> /dev/null
(for i in $(seq 0 63); do dd if=/tmp/out bs=64k skip=$i count=1 2> /dev/null; sleep 0.3; done) | nc 10.9.0.1 7001 & give=$!
(sleep 1; echo "guest: traffic") &
nc 10.9.0.1 7000 > /tmp/in < /dev/null
echo "in $(sha256sum /tmp/in | cut -c1-64)"
wait $give
echo "out $(sha256sum /tmp/out | cut -c1-64)"
kill -INT $ping; wait $ping; grep transmitted /tmp/ping
# Lost pings: a single gap means that the link stood still, scattered ones mean drops.
sed -n 's/.*icmp_seq=\([0-9]*\) .*/\1/p' /tmp/ping | awk 'NR > 1 && $1 != last + 1 { print "no pings", last + 1, "to", $1 - 1 } { last = $1 }'
grep -v 'icmp_seq=[0-9]* ttl' /tmp/ping | head -20
kill $sender $receiver
awk '$1 > last + 20 { print "no numbers", last + 1, "to", $1 - 1 } { last = $1 }' /tmp/numbers
grep -E '^(Ip|Icmp|Udp):' /proc/net/snmp
ip -s link show dev $dev
tc -s qdisc show dev $dev
echo "came $(wc -l < /tmp/numbers), twice $(sort /tmp/numbers | uniq -d | wc -l)"
ping -c 5 -i 0.2 10.9.0.1 | grep transmitted
echo "== done"
