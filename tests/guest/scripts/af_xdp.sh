# A NIC of the guest, attached by `xdp:` and linked with a TAP in its own network namespace, which
# has 10.7.1.1. The host behind the NIC has 10.7.1.2, an iperf3 server, serves a file at port 7000
# and receives one at 7001. $OPTIONS: options of the NIC. $PLAIN: a second NIC without zero copy
# exists. $DRIVER: driver of the NIC.
modprobe -q virtio_pci; modprobe -a $DRIVER tun; modprobe -q af_packet
ip netns add inner
inner="ip netns exec inner"
fail() { echo "failed: $1"; cat /tmp/link.log; tail -1 /tmp/link.jsonl; ip link; dmesg | tail; exit 1; }
# Feature bit 33 (VIRTIO_F_ACCESS_PLATFORM): the platform's DMA rules apply, so that the device can
# access all memory.
cards() {
    for dir in /sys/class/net/*/device; do
        [ "$(basename "$(readlink $dir/driver)")" = $DRIVER ] || continue
        [ $DRIVER != virtio_net ] || [ "$(cut -c34 $dir/features)" = $1 ] && basename ${dir%/device}
    done
}
for _ in $(seq 100); do [ "$(cards 1)" ] && break; sleep 0.1; done
nic=$(cards 1); plain=$(cards 0)
verbosity=-v
start() {
    mqnet $verbosity link --json tap:t0,netns=inner,address=10.7.1.1/24$1 xdp:$nic$OPTIONS > /tmp/link.jsonl 2> /tmp/link.log &
    link=$!
}
alive() { for _ in $(seq 60); do $inner ping -c 1 -W 1 10.7.1.2 > /dev/null 2>&1 && return; sleep 0.1; done; fail "no answer: $1"; }
fetch() { $inner nc 10.7.1.2 7000 < /dev/null > /tmp/file; echo "file $(sha256sum /tmp/file | cut -c1-64)"; }

# Distribution of flows over the NIC's queues: first and last line of its indirection table.
table() { "$@" -x $nic | awk '/^ +[0-9]+:/ { line = $6 " " $7 " " $8 " " $9; if (!n++) first = $2 " " $3 " " $4 " " $5 } END { print first, line }'; }
count() { mqnet ethtool -S $nic | sed -n "s/^ *rx_queue_$1_packets: *//p"; }

ip link set $nic up
own=$(table ethtool)
if [ "$PLAIN" ]; then
    echo "== refused"
    ip link set $plain up
    mqnet link --json --control-socket none null: xdp:$plain,zerocopy=on > /tmp/refused 2>&1 & link=$!
    for _ in $(seq 100); do grep -q zerocopy=auto /tmp/refused && break; sleep 0.1; done
    grep -o 'the driver of .* zerocopy=auto[^"]*' /tmp/refused | head -1
    kill -INT $link; wait $link
fi

echo "== traffic"
start; alive start
grep -o '[0-9]* queues, .*' /tmp/link.log
$inner ping -c 30 -i 0.02 10.7.1.2 | grep transmitted
$inner iperf3 -s -1 > /dev/null & server=$!
for _ in $(seq 100); do $inner ss -ltn | grep -q 5201 && break; sleep 0.1; done
echo "guest: serves"
wait $server
fetch
$inner nc 10.7.1.2 7001 < /tmp/file
$inner iperf3 -c 10.7.1.2 -P 4 -t 2 | grep 'SUM.*receiver'
$inner iperf3 -c 10.7.1.2 -P 4 -t 2 -R | grep 'SUM.*receiver'

echo "== resizes"
$inner ping -i 0.02 -c 1000000 10.7.1.2 > /tmp/ping & ping=$!
for n in 1 2 1 2 1 2; do mqnet ethtool -L t0 combined $n || fail "to $n channels"; sleep 0.3; done
kill -INT $ping; wait $ping; grep transmitted /tmp/ping
alive resizes; fetch

echo "== table"
echo "own $own"
for queue in 0 1; do
    [ $queue = 0 ] && how="equal 1" || how="weight 0 1"
    mqnet ethtool -X $nic $how || fail "ethtool -X"
    echo "kernel $queue $(table ethtool)"; echo "mqnet $queue $(table mqnet ethtool)"
    for of in 0 1; do counted[$of]=$(count $of); done
    $inner iperf3 -c 10.7.1.2 -P 4 -t 1 -R > /dev/null
    for of in 0 1; do
        # Frames other than IP have no hash, and arrive at the first queue.
        more=$(($(count $of) - counted[of])) few=$((of == queue ? 0 : 10))
        echo "to $queue: by $of $([ $more -gt $few ] && echo more || echo none)"
    done
done

echo "== given back"
kill -INT $link; wait $link
echo "table again $(table ethtool)"
tail -1 /tmp/link.jsonl > "$RESULTS/end.json"
ip -d link show $nic | grep -q xdp && fail "there still is a program"
# The kernel does not remove a queue in a table that it regards as set by the user.
if [ $DRIVER = virtio_net ]; then
    for n in 1 2; do ethtool -L $nic combined $n || fail "its table is not the kernel's again"; done
fi
ip addr add 10.7.1.1/24 dev $nic
ping -c 5 -i 0.2 10.7.1.2 | grep transmitted
ip addr flush dev $nic

echo "== taken again"
verbosity=-vv; start ,rx-locality=learn; alive again; fetch

echo "== follows"
whole() { ethtool -x $nic | sha256sum; }
send_by() { [ $1 = 0 ] && mqnet ethtool -X t0 equal 1 || mqnet ethtool -X t0 weight 0 1 || fail "ethtool -X t0"; }
behind() { $inner awk '/^TcpExt:/ { if (!n++) split($0, names); else for (i = 2; i <= NF; i++) if (names[i] == "TCPOFOQueue") print $i }' /proc/net/netstat; }
followed() { grep -c 'buckets of flows move to queue' /tmp/link.log; }
# Frames are sent on one queue; replies arrive on the same queue once it is learnt, after a time
# that depends on the machine. The first time they may arrive there by chance.
$inner iperf3 -c 10.7.1.2 -P 4 -t 300 -R > /dev/null & stream=$!
was= late=$(behind)
for queue in 1 0 1; do
    send_by $queue
    for _ in $(seq 30); do
        for of in 0 1; do counted[$of]=$(count $of); done
        sleep 1
        for of in 0 1; do counted[$of]=$(($(count $of) - counted[of])); done
        [ $((counted[queue] / 20)) -gt $((counted[1 - queue])) ] && told=all && break
        told="${counted[*]}"
    done
    [ "$(whole)" = "$was" ] && told="$told, in the same table"
    was=$(whole)
    echo "follow to $queue: $told"
done
echo "segments behind others: $(($(behind) - late)), moves $(followed)"
kill -INT $stream; wait $stream
# Flows move under traffic, and stay in order.
moved=$(followed)
$inner iperf3 -c 10.7.1.2 -u -b 10M -l 1000 -t 6 --bidir > /tmp/udp & stream=$!
for queue in 0 1 0 1 0; do
    sleep 1
    send_by $queue
done
wait $stream; grep -E 'RX-C.*receiver|out-of-order' /tmp/udp
echo "moves with datagrams $(($(followed) - moved))"
# A table set by another program is not changed until it is reset.
ethtool -X $nic weight 3 1; was=$(whole)
send_by 1
$inner iperf3 -c 10.7.1.2 -P 4 -t 2 -R > /dev/null
[ "$(whole)" = "$was" ] && echo "another's table stays"
ethtool -X $nic weight 1 3
mqnet ethtool -X $nic default || fail "ethtool -X default"
[ "$(table ethtool)" = "0 1 0 1 0 1 0 1" ] && echo "and becomes the default"
grep 'arrived on other queues' /tmp/link.log
mqnet ethtool -X $nic equal 1 || fail "ethtool -X"
kill -KILL $link; wait $link
for _ in $(seq 100); do ip -d link show $nic | grep -q xdp || break; sleep 0.1; done
ip -d link show $nic | grep -q xdp && fail "a program outlived its process"
[ "$(table ethtool)" = "$own" ] && fail "a killed process has put its table back"
mqnet doctor --put-back 2>&1 | grep 'killed mqnet'
[ "$(table ethtool)" = "$own" ] || fail "the table of a killed process stays"
dmesg | grep -i -E 'BUG:|Call Trace|WARNING' | head -3
echo "== done"
